"""The signature of a certificate: an in-toto Statement in a DSSE envelope, signed with Ed25519.

The subjects of the statement are the files of the ranker. Its predicate holds the hash of the page, so the signature
covers both files of a certificate. The envelope is written in one form only, so a change of its form is found like a
change of its content. Certificates of version 1, which have a signature over their canonical JSON, are still read.

>>> encoded("http://example.com/HelloWorld", b"hello world")
b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from unrank.audit.evaluation import EVALUATION
from unrank.desk.history_index import Json
from unrank.desk.key import Key
from unrank.disk import fits, new_folder, open_regular
from unrank.errors import BadFile, UnrankError

CERTIFICATE = "certificate.json"
PAGE = "certificate.html"
PAYLOAD = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:unrank:certificate:v3"
PREDICATES = {"urn:unrank:certificate:v2": 2, PREDICATE: 3}
"""The types of the predicates that are read, and the version of each."""
CHANGED = "changed after it was signed, so it shows nothing"
SUBJECT = {"name": str, "digest": {"sha256": str}}
COMMITMENT = {"salt": str, "of": [str]}
RANKER = {"name": (str, None)}
AUDITED = {"verdict": str, "tests": lambda tests: _has_verdicts(tests), "evaluation": (EVALUATION, None)}
ANCHOR = {"entries": int, "last_hash": str}
PROMISED = {
    1: {"request": {"id": int}, "history": ANCHOR},
    2: {"request": {"id": int, "commitment": COMMITMENT}, "state": str, "rankers": [RANKER], "history": ANCHOR},
}
PROMISED[3] = {**PROMISED[2], "rankers": [{**RANKER, "audited": (AUDITED, None)}]}
"""The fields that every certificate of a version has."""


@dataclass(frozen=True)
class SignedCertificate:
    """A certificate with a valid signature."""

    value: Json
    """The predicate; of version 1, the whole certificate."""
    public_key: str
    digest: str
    """The hash by which the history names it."""
    version: int
    subjects: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of each file of the rankers; empty in version 1."""

    @property
    def request(self) -> int:
        return int(self.value["request"]["id"])

    @property
    def rankers(self) -> list[dict[str, str]]:
        """The files of each ranker. If there are several, the subjects begin with the name of their ranker."""
        names = [ranker["name"] for ranker in self.value["rankers"]]
        if len(names) == 1:
            return [dict(self.subjects)]
        return [
            {
                file.removeprefix(f"{name}/"): digest
                for file, digest in self.subjects.items()
                if file.startswith(f"{name}/")
            }
            for name in names
        ]


@dataclass(frozen=True)
class Seal:
    """A certificate that is ready to be written: its envelope and its page."""

    envelope: bytes
    page: bytes
    digest: str
    """The hash of the signed statement."""


def seal(value: Mapping[str, object], subjects: Mapping[str, str], page: str, key: Key) -> Seal:
    """Sign a certificate and the page that shows it."""
    predicate = {**value, "page": {"sha256": hashlib.sha256(page.encode()).hexdigest()}}
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": PREDICATE,
        "predicate": predicate,
    }
    payload = _canonical(statement)
    envelope = _envelope(payload, key.public, key.signing.sign(encoded(PAYLOAD, payload)))
    return Seal(envelope, page.encode(), hashlib.sha256(payload).hexdigest())


def write_seal(out: Path, sealed: Seal, before: Callable[[], None] = lambda: None) -> None:
    """Write the folder of a certificate; call `before` when only its name is missing."""
    with new_folder(out) as folder:
        (folder / CERTIFICATE).write_bytes(sealed.envelope)
        (folder / PAGE).write_bytes(sealed.page)
        before()


def read_signed(place: Path, trusted: Collection[str] | None = None) -> SignedCertificate:
    """Read the certificate in a folder; refuse one that was changed, or that none of the trusted keys signed.

    Without `trusted` the signature is checked by the key that the certificate names, which shows only that nothing was
    changed since: anybody can sign.
    """
    folder = place.parent if place.name in (CERTIFICATE, PAGE) else place
    path, page = folder / CERTIFICATE, folder / PAGE
    content = _bytes(path)
    try:
        value = json.loads(content)
        read = _read_before if isinstance(value, dict) and "certificate" in value else _read
        signed, page_hash = read(value, content)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadFile(path, CHANGED) from error
    if hashlib.sha256(_bytes(page)).hexdigest() != page_hash:
        raise BadFile(page, CHANGED)
    if trusted is not None and signed.public_key not in trusted:
        others = ", ".join(f"{key[:16]}…" for key in trusted)
        raise BadFile(path, f"signed by another key ({signed.public_key[:16]}…) than one that is trusted ({others})")
    if not fits(signed.value, PROMISED[signed.version]):
        raise BadFile(path, "signed, but not a certificate of forgetting: it names no request")
    return signed


def read_public_key(text: str) -> str:
    """Read a public key: 64 hex digits."""
    try:
        if len(bytes.fromhex(text)) == 32:
            return text.strip().lower()
    except ValueError:
        pass
    raise UnrankError(f"{text!r} is not a public key: give 64 hex digits, as 'unrank desk certificate' prints them")


def encoded(kind: str, payload: bytes) -> bytes:
    """Return the bytes that DSSE signs: the pre-authentication encoding of a payload and its type."""
    return b"DSSEv1 %d %s %d %s" % (len(kind.encode()), kind.encode(), len(payload), payload)


def _read(value: Json, content: bytes) -> tuple[SignedCertificate, str]:
    """Return a certificate of version 2 or later, and the hash of its page."""
    [signature] = value["signatures"]
    payload, signed = (base64.b64decode(text, validate=True) for text in (value["payload"], signature["sig"]))
    check_signature(signature["keyid"], signed, encoded(value["payloadType"], payload))
    if content != _envelope(payload, signature["keyid"], signed):
        raise ValueError("the envelope has another form than the one that is written")
    statement = json.loads(payload)
    subjects = statement["subject"]
    version = PREDICATES.get(statement["predicateType"])
    if statement["_type"] != STATEMENT or version is None or not fits(subjects, [SUBJECT]):
        raise ValueError("the statement is of another type")
    files = {subject["name"]: subject["digest"]["sha256"] for subject in subjects}
    predicate, digest = statement["predicate"], hashlib.sha256(payload).hexdigest()
    return SignedCertificate(predicate, signature["keyid"], digest, version, files), predicate["page"]["sha256"]


def _read_before(value: Json, content: bytes) -> tuple[SignedCertificate, str]:
    """Return a certificate of version 1, and the hash of its page."""
    signed, public, signature = (value[name] for name in ("certificate", "public_key", "signature"))
    check_signature(public, bytes.fromhex(signature), _canonical(signed))
    if content != _canonical(
        {"certificate": signed, "public_key": public, "signature": bytes.fromhex(signature).hex()}
    ):
        raise ValueError("the file has another form than the one that is written")
    recorded = {name: part for name, part in signed.items() if name != "page"}
    digest = hashlib.sha256(json.dumps(recorded, sort_keys=True).encode()).hexdigest()
    return SignedCertificate(signed, public, digest, 1), signed["page"]


def _has_verdicts(tests: object) -> bool:
    return isinstance(tests, dict) and all(fits(each, {"verdict": str}) for each in tests.values())


def check_signature(public: str, signature: bytes, signed: bytes) -> None:
    """Raise a ValueError if a signature is not that of a public key, or the key is not written in its one form."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(signature, signed)
    except InvalidSignature as error:
        raise ValueError("the signature is not that of the key") from error
    if bytes.fromhex(public).hex() != public:
        raise ValueError("the key is not written in its one form")


def _envelope(payload: bytes, public: str, signature: bytes) -> bytes:
    signatures = [{"keyid": public, "sig": base64.b64encode(signature).decode()}]
    return _canonical({"payload": base64.b64encode(payload).decode(), "payloadType": PAYLOAD, "signatures": signatures})


def _canonical(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def _bytes(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except FileNotFoundError as error:
        raise BadFile(path, "no such file; a certificate is a folder that 'unrank desk certificate' wrote") from error
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
