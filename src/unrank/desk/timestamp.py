"""Time stamps by RFC 3161: an authority confirms when a witness existed. The authority gets a hash and nothing else.

This needs `unrank[timestamp]`. The answer of the authority is kept as it came, so that other tools can check it too.
"""

from __future__ import annotations

import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from unrank.disk import open_regular
from unrank.errors import BadFile, UnrankError

if TYPE_CHECKING:
    from rfc3161_client import TimeStampResponse

WAIT = 30.0
LONGEST = 1 << 20
"""The most bytes of an answer."""
MISSING = "time stamps need a package that is not installed: pip install 'unrank[timestamp]'"


def stamp_file(witness: Path) -> Path:
    """Return the place of the time stamp of a witness."""
    return witness.with_name(f"{witness.name}.tsr")


def request_stamp(content: bytes, url: str) -> tuple[bytes, datetime]:
    """Ask an authority for a time stamp; return its answer, and the time in it. It is not checked who signed it."""
    try:
        from rfc3161_client import HashAlgorithm, TimestampRequestBuilder
    except ImportError as error:
        raise UnrankError(MISSING) from error
    if not url.startswith(("https://", "http://")):
        raise UnrankError(f"--timestamp {url}: not the address of an authority: it begins with https:// or http://")
    asked = TimestampRequestBuilder().data(content).hash_algorithm(HashAlgorithm.SHA256).build()
    header = {"Content-Type": "application/timestamp-query"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, asked.as_bytes(), header), timeout=WAIT) as answer:
            stamp = answer.read(LONGEST)
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise UnrankError(f"--timestamp {url}: no answer: {error}") from error
    found = _decoded(stamp, f"the answer of {url}")
    imprint = found.tst_info.message_imprint.message
    if found.tst_info.nonce != asked.nonce or imprint != asked.message_imprint.message:
        raise UnrankError(f"--timestamp {url}: the answer is to another question")
    return stamp, found.tst_info.gen_time


def check_stamp(witness: Path, content: bytes, authority: Path) -> datetime:
    """Return the time that an authority confirmed for a witness; refuse a stamp of anybody else or anything else."""
    try:
        from cryptography.x509 import load_pem_x509_certificates
        from rfc3161_client import VerificationError, VerifierBuilder
    except ImportError as error:
        raise UnrankError(MISSING) from error
    place = stamp_file(witness)
    found = _decoded(_bytes(place), str(place))
    try:
        verifier = VerifierBuilder(roots=load_pem_x509_certificates(_bytes(authority))).build()
    except ValueError as error:
        raise BadFile(authority, "not a file of certificates in PEM format") from error
    try:
        verifier.verify_message(found, content)
    except VerificationError as error:
        raise BadFile(place, f"not a time stamp of {witness} by {authority}: {error}") from error
    when: datetime = found.tst_info.gen_time
    return when


def _decoded(stamp: bytes, name: str) -> TimeStampResponse:
    from rfc3161_client import PKIStatus, decode_timestamp_response

    try:
        found = decode_timestamp_response(stamp)
        if PKIStatus(found.status) != PKIStatus.GRANTED:
            raise ValueError(f"the authority refused it with status {found.status}")
        found.tst_info  # noqa: B018 - an answer without a token raises an error here
    except ValueError as error:
        raise UnrankError(f"{name} is not a time stamp: {error}") from error
    return found


def _bytes(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise BadFile(path, error.strerror or "cannot be read") from error
