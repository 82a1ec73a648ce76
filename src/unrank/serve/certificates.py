"""The pages of certificates: those that were written here, one to read and to download, and a file to verify."""

from __future__ import annotations

import io
import re
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path

from unrank.desk.certificate import write_certificate
from unrank.desk.ledger import Ledger
from unrank.desk.request import State
from unrank.desk.signature import CERTIFICATE, PAGE, SignedCertificate, read_public_key, read_signed
from unrank.desk.trust import Reason, Revocation, revocations, revoke
from unrank.desk.verification import Verification, verify_certificate
from unrank.disk import open_regular
from unrank.errors import UnrankError, count
from unrank.report.page import Child, Markup, element, paragraph
from unrank.serve.layout import (
    View,
    bullets,
    button,
    choice,
    field,
    form,
    link,
    notice,
    section,
    shown,
    state_tag,
    table,
)
from unrank.serve.messages import Answer, Call, Form, NotFound, see
from unrank.serve.office import Office
from unrank.serve.people import Right

NAME = re.compile(r"certificate-([0-9]{1,18})(-[0-9]{1,6})?")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'none'"
"""The page of a certificate may load nothing, and its script does not run."""
UNPACKED = 32 << 20
"""The most bytes of a certificate's two files."""
DROP = "Choose or drop the zip file that was downloaded here, or both files of the certificate's folder."
KEY = "Only for a certificate of somebody else: the public key that its owner published. Empty: one of this ledger."
UNKNOWN_STATE = "It is signed, but its state is none that this unrank knows: update unrank, or ask who signed it"
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
    NotImplementedError,
    RuntimeError,
    OSError,
    ValueError,
    EOFError,
    IndexError,
)
"""The errors of a file that is no zip file, or a damaged one."""


@dataclass(frozen=True)
class Issued:
    """A certificate in the folder of this office."""

    name: str
    signed: SignedCertificate | None
    """`None` if it was changed after it was signed."""
    revoked: Revocation | None = None

    @property
    def words(self) -> str:
        if self.signed is None:
            return "changed after it was signed"
        return f"revoked {self.revoked}" if self.revoked else str(self.signed.value.get("state", ""))


def issued(office: Office, ledger: Ledger) -> list[Issued]:
    """Return the certificates in the folder, those of the last requests first."""
    ended = {each.certificate: each for each in revocations(ledger)}
    folders = office.place.certificates.glob("certificate-*/")
    names = sorted((path.name for path in folders if NAME.fullmatch(path.name)), key=_order, reverse=True)
    return [_issued(office, name, ended) for name in names]


def _order(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("-")[1:])


def _issued(office: Office, name: str, ended: dict[str, Revocation]) -> Issued:
    try:
        signed = read_signed(office.place.certificates / name)
    except UnrankError:
        return Issued(name, None)
    return Issued(name, signed, ended.get(signed.digest))


def certificates_of(office: Office, ledger: Ledger, request: int) -> Markup | None:
    """Return the table of a request's certificates; `None` if there are none."""
    own = [each for each in issued(office, ledger) if _order(each.name)[0] == request]
    return certificates_table(own) if own else None


def certificates_table(found: Sequence[Issued]) -> Markup:
    rows: list[list[Child]] = [
        [
            link(f"/certificates/{each.name}", each.name),
            state_tag(each.words),
            str(each.signed.value["made"]).replace("T", " ")[:19] if each.signed else "",
            element(
                "a", {"href": f"/certificates/{each.name}/download", "aria-label": f"Download {each.name}"}, "Download"
            ),
        ]
        for each in found
    ]
    return table("Certificates", ["certificate", "state", "made (UTC)", "file"], rows, "None was written here yet.")


def list_certificates(office: Office, call: Call) -> Answer:
    with office.reading() as ledger:
        found, public = issued(office, ledger), ledger.about("public_key")
    key = paragraph("Publish it in another way than with a certificate: ", element("code", {}, public))
    return shown(
        call,
        View(
            "Certificates",
            "What can be given to whoever asked, signed.",
            [section("all", "All certificates", certificates_table(found)), section("key", "The public key", key)],
            "/certificates",
        ),
    )


def write(office: Office, call: Call) -> Answer:
    """Write the certificate of a request into the first free folder."""
    folder, id = office.place.certificates, call.number
    names = [f"certificate-{id}", *(f"certificate-{id}-{number}" for number in range(2, 1000))]
    out = next((folder / name for name in names if not (folder / name).exists()), folder / names[-1])
    with office.writing(call.session.person.name) as (ledger, key):
        write_certificate(ledger, key, id, out)
    return see(f"/certificates/{out.name}")


def show_certificate(office: Office, call: Call) -> Answer:
    with office.reading() as ledger:
        found = _named(office, call, ledger)
    session, address = call.session, f"/certificates/{found.name}"
    links = [
        element("a", {"class": "button", "href": f"{address}/page"}, "Read the page"),
        " ",
        element("a", {"class": "button", "href": f"{address}/download"}, "Download the zip file"),
    ]
    may_revoke = Right.close in session.person.rights and found.signed is not None and found.revoked is None
    reasons = choice("reason", {each.value: each.value.replace("-", " ") for each in Reason}, Reason.other.value)
    withdraw = form(session, f"{address}/revoke", field("Because", reasons), button("Revoke it"))
    request = _order(found.name)[0]
    return shown(
        call,
        View(
            f"Certificate of request {request}: {found.words}",
            "It is wrong if anybody changes a byte of it." if found.signed else "Do not use it: write a new one.",
            [
                section("read", "Read and send", paragraph(links) if found.signed else paragraph("It cannot be read.")),
                section("request", "The request", paragraph(link(f"/requests/{request}", f"Request {request}"))),
                section(
                    "revoke", "Revoke", paragraph("The history says so; whoever has a copy must be told."), withdraw
                )
                if may_revoke
                else None,
            ],
            "/certificates",
            kind=found.name,
        ),
    )


def _named(office: Office, call: Call, ledger: Ledger) -> Issued:
    """Return the certificate that an address names."""
    name = call.values["name"]
    if not NAME.fullmatch(name) or not (office.place.certificates / name).is_dir():
        raise NotFound("there is no certificate of this name here")
    return _issued(office, name, {each.certificate: each for each in revocations(ledger)})


def _files(office: Office, call: Call) -> tuple[str, dict[str, bytes]]:
    """Return the name and the two files of a certificate that nobody has changed."""
    with office.reading() as ledger:
        found = _named(office, call, ledger)
    folder, content = office.place.certificates / found.name, {}
    read_signed(folder)
    for file in (CERTIFICATE, PAGE):
        with open_regular(folder / file) as opened:
            content[file] = opened.read(UNPACKED)
    return found.name, content


def read_page(office: Office, call: Call) -> Answer:
    _, files = _files(office, call)
    return Answer(files[PAGE], headers={"content-security-policy": POLICY})


def download(office: Office, call: Call) -> Answer:
    name, files = _files(office, call)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, content in files.items():
            archive.writestr(f"{name}/{file}", content)
    disposition = {"content-disposition": f'attachment; filename="{name}.zip"'}
    return Answer(packed.getvalue(), kind="application/zip", headers=disposition)


def revoke_certificate(office: Office, call: Call) -> Answer:
    if (reason := call.form.one("reason")) not in {each.value for each in Reason}:
        raise UnrankError("choose one of the reasons of the list")
    with office.reading() as ledger:
        found = _named(office, call, ledger)
    if found.signed is None:
        raise UnrankError(f"{found.name} was changed after it was signed: there is nothing to revoke")
    with office.writing(call.session.person.name) as (ledger, _):
        ledger.verify()
        revoke(ledger, found.signed.digest, Reason(reason))
    return see(f"/certificates/{found.name}")


def verify_page(office: Office, call: Call) -> Answer:
    return shown(call, _verify_view(call))


def _verify_view(call: Call, *more: Child) -> View:
    file = element("input", {"type": "file", "name": "file", "multiple": True, "required": True, "class": "drop"})
    key = element("input", {"type": "text", "name": "public_key", "maxlength": 64, "autocomplete": "off"})
    ask = form(
        call.session,
        "/verify",
        field("Certificate", file, DROP),
        field("Public key", key, KEY),
        button("Verify"),
        files=True,
    )
    lead = "Is it genuine, is it ours, and does it still hold?"
    return View("Verify a certificate", lead, [*more, section("file", "The file", ask)], "/verify")


def verify(office: Office, call: Call) -> Answer:
    """Verify an uploaded certificate: by the ledger of this office, or by the public key of its owner."""
    typed = call.form.one("public_key").strip()
    known = read_public_key(typed) if typed else None
    with tempfile.TemporaryDirectory(prefix="unrank-verify-") as folder:
        place = Path(folder)
        try:
            for name, content in unpacked(call.form).items():
                (place / name).write_bytes(content)
            if known is not None:
                found = verify_certificate(place, known)
            else:
                with Ledger.read(office.place.ledger) as ledger:
                    found = verify_certificate(place, ledger=(ledger, office.place.key))
        except UnrankError as error:
            said = str(error).replace(f"{place}/", "").replace(str(place), "the certificate")
            return shown(call, _verify_view(call, _outcome("It is NOT verified", "bad", [said])), 422)
        return shown(call, _verify_view(call, _verified(found)))


def _verified(found: Verification) -> Markup:
    lines = [line.replace(str(found.place), "the certificate") for line in found.lines()]
    if not found.holds:
        return _outcome("It does NOT hold", "bad", lines)
    if found.trusted_by is None:
        return _outcome("Nobody knows who signed it", "bad", lines)
    state = _state_words(found.signed)
    if state is None:
        return _outcome(UNKNOWN_STATE, "bad", lines)
    entries = [f"the history of {count(found.entries, 'entry')} holds it"] if found.entries else []
    return _outcome(f"It is verified: request {found.signed.request}, {state}", "good", [*lines, *entries])


def _state_words(signed: SignedCertificate) -> str | None:
    """Return the state of a certificate, as people read it; `None` if this unrank does not know it."""
    if signed.version == 1:
        return "of version 1"
    state = signed.value["state"]
    return State(state).words if state in {*State} else None


def _outcome(heading: str, mood: str, lines: Sequence[str]) -> Markup:
    return section("outcome", "Result", notice(element("strong", {}, heading), mood), bullets(lines))


def unpacked(form: Form) -> dict[str, bytes]:
    """Return the two files of an uploaded certificate: from a zip file, or as they are. Refuse anything else."""
    files: dict[str, bytes] = {}
    for upload in form.uploads:
        name = Path(upload.name.replace("\\", "/")).name
        if name in (CERTIFICATE, PAGE):
            files[name] = upload.content
        else:
            files |= _from_zip(upload.content)
    if missing := [name for name in (CERTIFICATE, PAGE) if name not in files]:
        raise UnrankError(
            f"{' and '.join(missing)} missing: give the zip file, or both files of a certificate's folder"
        )
    return files


def _from_zip(content: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if not all(each.filename for each in archive.infolist()):
                raise zipfile.BadZipFile("a file without a name")
            members = {Path(each.filename).name: each for each in archive.infolist() if not each.is_dir()}
            wanted = {name: members[name] for name in (CERTIFICATE, PAGE) if name in members}
            found = {}
            for name, member in wanted.items():
                with archive.open(member) as file:
                    found[name] = file.read(UNPACKED + 1)
    except DAMAGED as error:
        raise UnrankError("this is neither a zip file of a certificate nor one of its two files") from error
    if any(len(content) > UNPACKED for content in found.values()):
        raise UnrankError("a file in this zip file is larger than any certificate")
    return found
