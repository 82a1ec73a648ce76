"""A witness of a ledger: the signed head of its history, for somebody else to keep.

If the owner later shows a history that does not go on from that head, it was cut, rebuilt or rolled back. The witness
names nothing that was removed. It also lists revoked certificates, and the changes of the signing key. Each change is
signed by the key before it: a reader who trusts a former key can follow the changes to the present one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from unrank.desk.history_index import BrokenChain, Json
from unrank.desk.key import Key
from unrank.desk.ledger import Ledger
from unrank.desk.signature import check_signature, encoded
from unrank.desk.trust import revocations, rotation_statement, rotations
from unrank.disk import fits, open_regular, write_new
from unrank.errors import BadFile

WITNESS_VERSION = 1
PAYLOAD = "application/vnd.unrank.witness+json"
ROTATION = {"before": str, "public_key": str, "signed_by_before": (str, None), "signed_by_new": str}
FORM = {"ledger": str, "entries": int, "last_hash": str, "made": str, "rotations": [ROTATION]}
CHANGED = "not a witness of a ledger, or changed after it was signed"


@dataclass(frozen=True)
class Witness:
    """A head of a history with a valid signature."""

    value: Json
    public_key: str
    content: bytes
    """The bytes of its file, which a time stamp covers."""

    @property
    def entries(self) -> int:
        return int(self.value["entries"])

    def signed_for(self, known: Iterable[str]) -> bool:
        """Tell if one of these keys signed it, or a key that follows from one of them."""
        trusted = {*known}
        for change in self.value["rotations"]:
            if change["before"] in trusted and _follows(self.value["ledger"], change):
                trusted.add(change["public_key"])
        return self.public_key in trusted


def write_witness(ledger: Ledger, key: Key, out: Path) -> Witness:
    """Sign the head of a history, and write it to a file."""
    ledger.verify()
    with ledger.snapshot():
        ledger.check_signer(key)
        number, hashed = ledger.head()
        value = {
            "witness_version": WITNESS_VERSION,
            "ledger": key.fingerprint,
            "entries": number,
            "last_hash": hashed,
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "revoked": [asdict(one) for one in revocations(ledger)],
            "rotations": rotations(ledger),
        }
    payload = json.dumps(value, sort_keys=True).encode()
    signature = key.signing.sign(encoded(PAYLOAD, payload))
    content = _envelope(payload, key.public, signature)
    write_new(out, content.decode())
    return Witness(value, key.public, content)


def read_witness(path: Path) -> Witness:
    """Read a witness; refuse one that was changed after it was signed. Anybody can sign: see `Witness.signed_for`."""
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
    try:
        envelope = json.loads(content)
        [signed] = envelope["signatures"]
        payload, signature = (base64.b64decode(text, validate=True) for text in (envelope["payload"], signed["sig"]))
        check_signature(signed["keyid"], signature, encoded(PAYLOAD, payload))
        value = json.loads(payload)
        if content != _envelope(payload, signed["keyid"], signature) or not fits(value, FORM):
            raise ValueError("it has another form than the one that is written")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadFile(path, CHANGED) from error
    return Witness(value, signed["keyid"], content)


def check_witness(ledger: Ledger, witness: Witness) -> None:
    """Refuse a ledger whose history does not go on from the head that was witnessed."""
    number, when = witness.entries, f"witnessed on {witness.value['made']}"
    if witness.value["ledger"] != ledger.about("key"):
        raise BrokenChain(f"{ledger.path}: another ledger than the one that was {when}")
    if ledger.head()[0] < number:
        raise BrokenChain(
            f"{ledger.path}: its history ends at entry {ledger.head()[0]}, but entry {number} was {when}: "
            "its end was cut off, or an old copy was put back"
        )
    if number and ledger.ask("SELECT hash FROM history WHERE number = ?", [number]) != [(witness.value["last_hash"],)]:
        raise BrokenChain(f"{ledger.path}: entry {number} is not the one that was {when}: the history was rebuilt")


def _follows(ledger: str, change: Json) -> bool:
    """Tell if both keys signed a change of the signing key."""
    before, after = change["before"], change["public_key"]
    signatures = {before: change["signed_by_before"], after: change["signed_by_new"]}
    try:
        for public, signature in signatures.items():
            check_signature(public, bytes.fromhex(signature or ""), rotation_statement(ledger, before, after))
    except ValueError:
        return False
    return True


def _envelope(payload: bytes, public: str, signature: bytes) -> bytes:
    """Return the DSSE envelope of a payload."""
    signatures = [{"keyid": public, "sig": base64.b64encode(signature).decode()}]
    value = {"payload": base64.b64encode(payload).decode(), "payloadType": PAYLOAD, "signatures": signatures}
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()
