"""The server: starlette receives, the guard checks, the desk answers. Only this file knows the web library."""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from unrank.errors import UnrankError, describe_error
from unrank.report.page import element, paragraph
from unrank.serve.guard import HEADERS, Gate, Refused, check_rate, check_right, check_token
from unrank.serve.layout import View, button, field, frame, hidden, link, notice, script, section, style
from unrank.serve.limits import Rate
from unrank.serve.messages import Answer, Call, Form, NotFound, read_form, see
from unrank.serve.office import Office
from unrank.serve.people import People
from unrank.serve.routes import ROUTES, Route
from unrank.serve.sessions import HOURS, Session, Sessions

SIGN_IN = "desk-sign-in"
"""The cookie that binds the form of the sign-in to the browser that asked for it."""
LONGEST_NUMBER = 18
THREADS = 2
"""Pages that are made at once. More threads than that only wait for each other."""
STATIC = {"/static/desk.css": ("text/css; charset=utf-8", style), "/static/desk.js": ("text/javascript", script)}

Handler = Callable[[Any], Awaitable[Any]]


class Server:
    """The desk behind its guard."""

    def __init__(self, office: Office, people: People, gate: Gate, hours: float = HOURS) -> None:
        self._office, self._people, self._gate = office, people, gate
        self._sessions = Sessions(office.place.folder / "sessions", people, hours)
        self._wrong, self._posts = Rate(gate.limits.sign_ins), Rate(gate.limits.posts)
        self._streams: Counter[str] = Counter()
        self._hours = hours
        self._threads = ThreadPoolExecutor(THREADS, "desk")

    def app(self) -> Any:
        """Return the application for a web server."""
        from starlette.applications import Starlette
        from starlette.routing import Route as Path

        own = [
            Path("/sign-in", self._guarded(self._sign_in), methods=["GET", "POST"]),
            Path("/sign-out", self._guarded(self._sign_out), methods=["POST"]),
            *(Path(path, self._guarded(_static(*found))) for path, found in STATIC.items()),
        ]
        desk = [Path(each.path, self._guarded(self._desk(each)), methods=[each.method]) for each in ROUTES]
        nowhere = self._guarded(self._nowhere)

        async def missing(request: Any, _: Exception) -> Any:
            return await nowhere(request)

        return Starlette(routes=[*own, *desk], exception_handlers={404: missing, 405: missing})

    def _guarded(self, handler: Handler) -> Handler:
        """Check the name and the origin of a message; turn every error into a page with the headers of all pages."""

        async def handle(request: Any) -> Any:
            try:
                self._gate.check_host(request.headers)
                if request.method not in ("GET", "HEAD"):
                    self._gate.check_origin(request.headers)
                answer = await handler(request)
            except Exception as error:
                answer = _refusal(error, None)
            return _response(answer)

        return handle

    def _desk(self, route: Route) -> Handler:
        async def handle(request: Any) -> Answer:
            session = self._session(request)
            if session is None:
                if route.method == "GET":
                    return see("/sign-in")
                raise Refused(401, "you are not signed in, or no longer")
            try:
                check_right(session, route.right)
                form = await self._form(request, session, route.upload) if route.method == "POST" else Form()
                call = Call(session, _values(request.path_params), dict(request.query_params), form)
                answer = await self._in_thread(route.answer, self._office, call)
                return self._limited(session, answer) if answer.events else answer
            except Exception as error:
                return _refusal(error, session)

        return handle

    async def _nowhere(self, request: Any) -> Answer:
        return _refusal(NotFound("look at the address, or begin with the requests"), self._session(request))

    async def _in_thread(self, answer: Callable[[Office, Call], Answer], office: Office, call: Call) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, answer, office, call)

    def _session(self, request: Any) -> Session | None:
        return self._sessions.find(request.cookies.get(self._gate.cookie, ""))

    async def _form(self, request: Any, session: Session | None, upload: bool = False) -> Form:
        """Read a form, which must be small enough, not too frequent, and of this session."""
        limits = self._gate.limits
        if session is not None:
            check_rate(self._posts, session.cookie)
        body = await _body(request, limits.upload_bytes if upload else limits.form_bytes, limits.body_seconds)
        form = read_form(request.headers.get("content-type", ""), body)
        expected = session.csrf if session is not None else request.cookies.get(SIGN_IN, "")
        check_token(expected, form.one("csrf"))
        return form

    async def _sign_in(self, request: Any) -> Answer:
        if request.method != "POST":
            return self._sign_in_page()
        address = request.client.host if request.client else ""
        if self._wrong.is_full(address):
            raise Refused(429, "too many wrong tokens: wait a minute")
        form = await self._form(request, None)
        person = self._people.with_token(form.one("token").strip())
        if person is None:
            self._wrong.count(address)
            return self._sign_in_page(notice("Nobody has this token.", "bad"), status=403)
        session = self._sessions.begin(person)
        return self._cookie(see("/"), self._gate.cookie, session.cookie, int(self._hours * 3600))

    def _sign_in_page(self, *more: Any, status: int = 200) -> Answer:
        token = secrets.token_urlsafe(32)
        typed = element(
            "input", {"type": "password", "name": "token", "required": True, "autocomplete": "current-password"}
        )
        whole = element(
            "form",
            {"method": "post", "action": "/sign-in", "class": "form"},
            hidden("csrf", token),
            field("Your token", typed, "The line that 'unrank desk token' printed for you."),
            button("Sign in"),
        )
        view = View("Sign in", "The desk for requests to be forgotten.", [*more, section("sign-in", "Sign in", whole)])
        return self._cookie(Answer(frame(view, None).encode(), status), SIGN_IN, token, 3600)

    async def _sign_out(self, request: Any) -> Answer:
        session = self._session(request)
        if session is None:
            return see("/sign-in")
        await self._form(request, session)
        self._sessions.end(session)
        return self._cookie(see("/sign-in"), self._gate.cookie, "", 0)

    def _cookie(self, answer: Answer, name: str, value: str, seconds: int) -> Answer:
        flags = "; Secure" if self._gate.secure else ""
        cookie = f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{flags}"
        return Answer(answer.body, answer.status, answer.kind, {**answer.headers, "set-cookie": cookie})

    def _limited(self, session: Session, answer: Answer) -> Answer:
        """Return a stream that counts as one of its session's until it ends."""
        if self._streams[session.cookie] >= self._gate.limits.streams:
            raise Refused(429, "too many pages of yours follow a run: close some")

        async def counted(events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            self._streams[session.cookie] += 1
            try:
                async for event in events:
                    yield event
            finally:
                self._streams[session.cookie] -= 1

        assert answer.events is not None
        return Answer(kind=answer.kind, headers=answer.headers, events=counted(answer.events))


def _static(kind: str, content: Callable[[], str]) -> Handler:
    body = content().encode()

    async def handle(_: Any) -> Answer:
        return Answer(body, kind=kind)

    return handle


def _values(given: dict[str, str]) -> dict[str, str]:
    """Return the parts of an address; refuse a number that is none."""
    number = given.get("number", "0")
    if not (number.isascii() and number.isdigit() and len(number) <= LONGEST_NUMBER):
        raise NotFound("there is no such page")
    return given


def _refusal(error: Exception, session: Session | None) -> Answer:
    """Return the page of an error."""
    if isinstance(error, Refused):
        status, title = error.status, "This was refused"
    elif isinstance(error, NotFound):
        status, title = 404, "There is no such page"
    elif isinstance(error, UnrankError | OSError):
        status, title = 400, "This cannot be done"
    else:
        status, title = 500, "This is a bug"
        print(f"unrank: {describe_error(error)}", file=sys.stderr)
    words = str(error) if isinstance(error, Refused) else describe_error(error)
    back = paragraph(link("/" if session else "/sign-in", "All requests" if session else "Sign in"))
    return Answer(frame(View(title, None, [notice(words, "bad"), back]), session).encode(), status)


async def _body(request: Any, most: int, seconds: float) -> bytes:
    """Return the body of a message; refuse one that is too large, or that takes too long to arrive."""
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or int(declared) > most:
        raise Refused(413, f"this is too large: at most {most // 1024:,} KiB")

    async def read() -> bytes:
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > most:
                raise Refused(413, f"this is too large: at most {most // 1024:,} KiB")
        return bytes(content)

    try:
        return await asyncio.wait_for(read(), seconds)
    except TimeoutError as error:
        raise Refused(408, "this took too long to arrive: try again") from error


def _response(answer: Answer) -> Any:
    from starlette.responses import Response, StreamingResponse

    headers = {**HEADERS, **answer.headers, "content-type": answer.kind}
    if answer.events is not None:
        return StreamingResponse(answer.events, answer.status, headers)
    return Response(answer.body, answer.status, headers)


def run_server(app: Any, listening: socket.socket) -> None:
    """Answer until the process is stopped."""
    import uvicorn

    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        ws="none",
        http="auto",
        limit_concurrency=500,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=3,
    )
    uvicorn.Server(config).run(sockets=[listening])
