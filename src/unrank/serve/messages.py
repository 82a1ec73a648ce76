"""Messages between a browser and the desk: a call with its form, and the answer. No web library is known here."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from unrank.errors import UnrankError
from unrank.serve.sessions import Session

FIELDS = 500
"""The most fields of a form."""
BOUNDARY = re.compile(r'multipart/form-data;.*\bboundary="?([A-Za-z0-9\'()+_,./:=?-]{1,70})"?', re.IGNORECASE)
FIELD_NAME = re.compile(rb'^content-disposition: *form-data;.*?\bname="([a-z_]{1,40})"', re.IGNORECASE | re.MULTILINE)
FILE_NAME = re.compile(rb'\bfilename="([^"\r\n]*)"', re.IGNORECASE)


@dataclass(frozen=True)
class Upload:
    """A file that came with a form."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Form:
    """The fields and the files of a form."""

    fields: Sequence[tuple[str, str]] = ()
    uploads: Sequence[Upload] = ()

    def one(self, name: str) -> str:
        """Return a field; empty if the form has none of this name."""
        return next((value for key, value in self.fields if key == name), "")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key == name]


@dataclass(frozen=True)
class Call:
    """A call of a person who is signed in."""

    session: Session
    values: Mapping[str, str] = field(default_factory=dict)
    """The parts of the address that name something."""
    query: Mapping[str, str] = field(default_factory=dict)
    form: Form = field(default_factory=Form)

    @property
    def number(self) -> int:
        """The number in the address."""
        return int(self.values["number"])


@dataclass(frozen=True)
class Answer:
    """An answer to a browser."""

    body: bytes = b""
    status: int = 200
    kind: str = "text/html; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)
    events: AsyncIterator[bytes] | None = None
    """The lines of a stream of events, in place of a body."""


class NotFound(UnrankError):
    """Nothing has this name or number."""


def see(address: str) -> Answer:
    """Send the browser to another page, so that loading it again does nothing twice."""
    return Answer(status=303, headers={"location": address})


def read_form(kind: str, body: bytes) -> Form:
    """Read a form; refuse what no form of ours sends."""
    if kind.split(";")[0].strip().lower() == "application/x-www-form-urlencoded":
        try:
            fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS, errors="strict")
        except ValueError as error:
            raise UnrankError("this form cannot be read: it is not UTF-8, or has too many fields") from error
        return Form(fields)
    if (found := BOUNDARY.match(kind)) is None:
        raise UnrankError("this is not a form: send it from the page")
    return _read_parts(found.group(1).encode(), body)


def _read_parts(boundary: bytes, body: bytes) -> Form:
    """Read a form with files."""
    first, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if first or not parts or not parts[-1].startswith(b"--") or len(parts) > FIELDS:
        raise UnrankError("this form cannot be read: it is cut off, or has too many fields")
    fields, uploads = [], []
    for part in parts[:-1]:
        head, between, content = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = FIELD_NAME.search(head)
        if not between or name is None:
            raise UnrankError("this form cannot be read: one of its fields has no name")
        if file := FILE_NAME.search(head):
            uploads.append(Upload(file.group(1).decode(errors="replace"), content))
        else:
            fields.append((name.group(1).decode(), content.decode(errors="replace")))
    return Form(fields, [upload for upload in uploads if upload.name or upload.content])
