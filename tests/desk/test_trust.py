"""Keys that are replaced, certificates that are revoked, and heads that somebody else keeps."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.attacks.test_certificate import make_desk
from tests.desk.conftest import take_in
from unrank.cli.main import run
from unrank.desk.key import Key, key_file, next_signing_file, read_ledger_secret, signing_file
from unrank.desk.ledger import Ledger
from unrank.desk.trust import Reason, rotate, signer_at, signers
from unrank.desk.witness import read_witness, write_witness
from unrank.errors import BadFile, UnrankError
from unrank.secret import make_secret

Said = pytest.CaptureFixture[str]
Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: Said) -> Refused:
    def refuse(*words: object) -> str:
        capsys.readouterr()
        assert run(["desk", *map(str, words)]) == 2
        return capsys.readouterr().err

    return refuse


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder with a ledger and a certificate."""
    (tmp_path / "ranker").mkdir()
    (tmp_path / "ranker" / "model.safetensors").write_text("weights")
    make_desk(tmp_path / "desk", tmp_path / "ranker")
    return tmp_path / "desk"


def test_the_signing_key_is_a_secret_of_its_own(path: Path, ledger: Ledger, key: Key) -> None:
    place = signing_file(key_file(path))
    assert place.name == "desk.ledger.signing-key" and place.stat().st_mode & 0o777 == 0o600
    assert key.seed == read_ledger_secret(place) != key.derived_seed
    place.unlink()
    without = ledger.key(key_file(path))
    take_in(ledger, without)
    with pytest.raises(UnrankError, match="signing key is not there"):
        _ = without.public
    make_secret(place)
    with pytest.raises(BadFile, match="not the signing key of"):
        ledger.key(key_file(path))


def test_a_ledger_of_an_earlier_version_signs_with_its_derived_key_until_it_is_replaced(
    path: Path, ledger: Ledger, key: Key
) -> None:
    signing_file(key_file(path)).unlink()
    derived = replace(key, seed=key.derived_seed)
    ledger.ask("UPDATE about SET value = ? WHERE name = 'public_key'", [derived.public])
    assert ledger.key(key_file(path)).public == derived.public
    new = rotate(ledger, key_file(path))
    assert ledger.key(key_file(path)).public == new != derived.public
    ledger.verify()


def test_certificates_of_a_former_key_stay_valid(desk: Path, capsys: Said) -> None:
    ledger = ["--ledger", str(desk / "desk.ledger")]
    certificate = str(desk / "certificate")
    assert run(["desk", "rotate", *ledger]) == 0
    first = capsys.readouterr().out.splitlines()[0].removeprefix("the public key is ")
    assert run(["desk", "certificate", "1", "--out", str(desk / "second"), *ledger]) == 0
    assert run(["desk", "rotate", "--quiet", *ledger]) == 0
    for place in (certificate, str(desk / "second")):
        assert run(["desk", "verify", place, *ledger]) == 0
        assert run(["desk", "verify", place]) == 4, "unknown without the ledger"
    assert run(["desk", "verify", str(desk / "second"), "--public-key", first]) == 0
    assert run(["desk", "verify", certificate, "--public-key", first]) == 2
    with Ledger.read(desk / "desk.ledger") as opened:
        known = signers(opened)
        assert len({signer.public for signer in known}) == 3 and known[1].public == first
        assert signer_at(opened, 1) == known[0].public and signer_at(opened, opened.head()[0]) == known[2].public
        opened.verify()


@pytest.mark.parametrize("recorded", [False, True])
def test_a_process_killed_while_the_key_is_replaced(
    path: Path, ledger: Ledger, key: Key, recorded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def kill(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as killed, pytest.raises(Killed):
        killed.setattr(
            "unrank.desk.trust.finish_rotation" if recorded else "unrank.desk.trust.rotation_statement", kill
        )
        rotate(ledger, key_file(path))
    assert next_signing_file(key_file(path)).exists()
    with Ledger.open(path) as later:
        assert (later.key(key_file(path)).public == key.public) != recorded
        assert next_signing_file(key_file(path)).exists() != recorded
        assert rotate(later, key_file(path)) == later.key(key_file(path)).public
        later.verify()


def test_a_revoked_certificate_is_refused(desk: Path, capsys: Said, refused: Refused) -> None:
    ledger, certificate = ["--ledger", desk / "desk.ledger"], str(desk / "certificate")
    words = ["desk", "revoke", certificate, "--reason", Reason.mistake.value, *map(str, ledger)]
    assert run(words) == 0
    capsys.readouterr()
    assert run(["desk", "verify", certificate, *map(str, ledger)]) == 3
    assert "REVOKED: on 20" in (said := capsys.readouterr().out) and "because: mistake" in said
    assert "revoked already" in refused(*words[1:])
    assert run(["desk", "certificate", "1", "--out", str(desk / "next"), *map(str, ledger)]) == 0
    assert run(["desk", "verify", str(desk / "next"), *map(str, ledger)]) == 0
    other, _ = make_desk(desk / "other", desk.parent / "ranker")
    assert "no certificate of this ledger" in refused("revoke", other, "--reason", "other", *ledger)


def test_a_witness_shows_a_rollback_to_an_outsider(
    desk: Path, capsys: Said, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, out = desk / "desk.ledger", tmp_path / "witness.json"
    shutil.copy(path, tmp_path / "old")
    with Ledger.open(path) as ledger:
        public = ledger.key(key_file(path)).public
        take_in(ledger, ledger.key(key_file(path)))
    assert run(["desk", "witness", "--out", str(out), "--ledger", str(path)]) == 0
    assert run(["desk", "rotate", "--ledger", str(path)]) == 0
    given = ["--witness", str(out), "--ledger"]
    assert run(["desk", "verify", *given, str(path)]) == 0
    capsys.readouterr()

    # the outsider has the witness and the public key, and gets the files of a ledger without its key
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    shutil.copy(path, tmp_path / "shown")
    assert run(["desk", "verify", *given, str(tmp_path / "shown")]) == 4
    assert capsys.readouterr().out.startswith("the signer is unknown")
    assert run(["desk", "verify", *given, str(tmp_path / "shown"), "--public-key", public]) == 0
    assert "only its owner can know if it is complete" in capsys.readouterr().out
    assert "but entry" in (said := refused("verify", *given, tmp_path / "old")) and "cut off, or an old copy" in said
    make_desk(tmp_path / "stranger", tmp_path / "ranker")
    assert "another ledger" in refused("verify", *given, tmp_path / "stranger" / "desk.ledger")
    value = json.loads(out.read_text())
    out.write_text(json.dumps(value))
    assert "changed after it was signed" in refused("verify", *given, tmp_path / "shown")


def test_who_trusts_a_former_key_can_follow_to_the_present_one(path: Path, ledger: Ledger, tmp_path: Path) -> None:
    former = ledger.key(key_file(path)).public
    rotate(ledger, key_file(path))
    rotate(ledger, key_file(path))
    made = write_witness(ledger, ledger.key(key_file(path)), tmp_path / "witness.json")
    witness = read_witness(tmp_path / "witness.json")
    assert witness == made and witness.public_key != former and witness.signed_for([former])
    assert not witness.signed_for(["ab" * 32]) and not witness.signed_for([])
    witness.value["rotations"][0]["signed_by_before"] = "00" * 64
    assert not witness.signed_for([former])


def openssl(folder: Path, *words: str) -> bytes:
    return subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True).stdout


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A time-stamping authority on this machine: its address and its root certificate."""
    pytest.importorskip("rfc3161_client", reason="needs unrank[timestamp]")
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to play the authority")
    folder = tmp_path / "authority"
    folder.mkdir()
    (folder / "ts.cnf").write_text(
        "[tsa]\ndefault_tsa = here\n[here]\nserial = serial\nsigner_cert = tsa.pem\nsigner_key = tsa.key\n"
        "signer_digest = sha256\ndefault_policy = 1.2.3.4\ndigests = sha256\ncrypto_device = builtin\n"
    )
    (folder / "tsa.ext").write_text("extendedKeyUsage = critical,timeStamping\nkeyUsage = critical,digitalSignature\n")
    (folder / "serial").write_text("01\n")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl(folder, "req", "-x509", *new, "-keyout", "root.key", "-out", "root.pem", "-subj", "/CN=Root", "-days", "2")
    openssl(folder, "req", *new, "-keyout", "tsa.key", "-out", "tsa.csr", "-subj", "/CN=Time")
    sign = ["x509", "-req", "-in", "tsa.csr", "-CA", "root.pem", "-CAkey", "root.key", "-extfile", "tsa.ext"]
    openssl(folder, *sign, "-out", "tsa.pem", "-days", "2", "-set_serial", "7")

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            (folder / "query").write_bytes(self.rfile.read(int(self.headers["Content-Length"])))
            openssl(folder, "ts", "-reply", "-config", "ts.cnf", "-queryfile", "query", "-out", "reply")
            self.send_response(200)
            self.end_headers()
            self.wfile.write((folder / "reply").read_bytes())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", folder / "root.pem"
    server.shutdown()
    server.server_close()


def test_an_authority_stamps_the_time_of_a_witness(
    desk: Path, authority: tuple[str, Path], tmp_path: Path, capsys: Said, refused: Refused
) -> None:
    url, root = authority
    ledger, out = ["--ledger", str(desk / "desk.ledger")], tmp_path / "witness.json"
    assert run(["desk", "witness", "--out", str(out), "--timestamp", url, *ledger]) == 0
    given = ["verify", "--witness", str(out), *ledger, "--authority"]
    assert run(["desk", *given, str(root)]) == 0
    assert "existed on 20" in capsys.readouterr().out
    stranger = tmp_path / "stranger.pem"
    new = ["req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", "other.key", "-subj", "/CN=Other"]
    openssl(tmp_path, *new, "-out", str(stranger))
    assert "not a time stamp of" in refused(*given, stranger)
    with Ledger.open(desk / "desk.ledger") as opened:
        take_in(opened, opened.key(key_file(desk / "desk.ledger")))
    out.unlink()
    assert run(["desk", "witness", "--out", str(tmp_path / "other.json"), *ledger]) == 0
    (tmp_path / "other.json").replace(out)
    assert "not a time stamp of" in refused(*given, root)
    assert "no answer" in refused("witness", "--out", tmp_path / "fourth.json", "--timestamp", f"{url}0", *ledger)
