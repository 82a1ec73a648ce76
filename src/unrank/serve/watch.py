"""The page of a run or a bench, served: each change is sent to it as a server-sent event."""

from __future__ import annotations

import json
from asyncio import sleep
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from unrank.errors import UnrankError
from unrank.report.watch import OVER, look
from unrank.report.watch_page import watch_fragment, watch_page

EVERY = 1.0
"""Seconds between two looks at the folder."""
QUIET = 15.0
"""Seconds after which something is sent even if nothing has changed, so that a connection that is gone is noticed."""
HERE = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}


async def watch_events(folder: Path, texts: bool = True, every: float = EVERY) -> AsyncIterator[str]:
    """Yield the state of a run as server-sent events, whenever it has changed, until it is over."""
    from starlette.concurrency import run_in_threadpool

    sent, silent = "", 0.0
    while True:
        view = await run_in_threadpool(look, folder, texts)
        over = view.state in OVER
        data = json.dumps({"html": watch_fragment(view), "over": over})
        if data != sent:
            yield f"data: {data}\n\n"
            sent, silent = data, 0.0
        elif silent >= QUIET:
            yield ": nothing new\n\n"
            silent = 0.0
        if over:
            return
        await sleep(every)
        silent += every


def watch_routes(folder: Path, texts: bool = True) -> list[Any]:
    """Return the routes of the page, of its events and of its JSON, for any application to mount."""
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse
    from starlette.routing import Route

    def page(_: Request) -> HTMLResponse:
        return HTMLResponse(watch_page(look(folder, texts), live=True, texts=texts), headers=HEADERS)

    def state(_: Request) -> JSONResponse:
        return JSONResponse(look(folder, texts).to_json(), headers=HEADERS)

    async def events(_: Request) -> StreamingResponse:
        return StreamingResponse(watch_events(folder, texts), media_type="text/event-stream", headers=HEADERS)

    return [Route("/", page), Route("/state.json", state), Route("/events", events)]


def watch_app(folder: Path, texts: bool = True, hosts: Sequence[str] = HERE) -> Any:
    """Return the application: the page of one folder, for browsers that call it by one of these names."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware

    only = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts))
    return Starlette(routes=watch_routes(folder, texts), middleware=[only])


def serve_watch(folder: Path, port: int, texts: bool = True) -> None:
    """Serve the page on this machine alone, until the process is stopped."""
    try:
        import uvicorn

        app = watch_app(folder, texts)
    except ImportError as error:
        raise UnrankError("--serve needs starlette and uvicorn: pip install 'unrank[serve]'") from error
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, timeout_graceful_shutdown=1)
