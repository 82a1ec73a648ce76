"""A stand-in for a Qdrant server, for the tests alone: qdrant-client's own local mode, in memory, behind the addresses
that a client asks.

So clients send and read real messages, and may be killed; but the server is not Qdrant's. If `UNRANK_TEST_QDRANT` holds
the address of a real one, the tests use that. `python -m tests.index.qdrant_server` starts a stand-in, prints how to
connect, and stops it when its input ends.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

OLD = "--old"
NEEDED = ("qdrant_client", "starlette", "uvicorn")


def missing() -> list[str]:
    """Return the packages that are needed and not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


@contextmanager
def running(*words: str) -> Iterator[dict[str, str]]:
    """Run a server as a process, and yield the variable by which clients find it."""
    if (given := os.environ.get("UNRANK_TEST_QDRANT")) and not words:
        yield {"QDRANT_URL": given}
        return
    words = (sys.executable, "-m", "tests.index.qdrant_server", *words)
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            name, _, value = process.stdout.readline().strip().removeprefix("export ").partition("=")
            yield {name: value}
        finally:
            process.stdin.close()


Body = Mapping[str, Any]


def make_app(metadata: bool) -> Any:
    """Return the application; without `metadata` it drops that of collections, as servers before 1.16 do."""
    from pydantic_core import to_jsonable_python
    from qdrant_client import QdrantClient, models
    from qdrant_client.http.models import ChangeAliasesOperation, PointStruct
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    client, lock = QdrantClient(":memory:"), threading.Lock()

    def create(name: str, body: Body) -> object:
        vectors = models.VectorParams.model_validate(body["vectors"])
        return client.create_collection(name, vectors, metadata=body.get("metadata") if metadata else None)

    def upsert(name: str, body: Body) -> object:
        return client.upsert(name, [PointStruct.model_validate(point) for point in body["points"]])

    def scroll(name: str, body: Body) -> object:
        points, offset = client.scroll(
            name, limit=body["limit"], offset=body.get("offset"), with_payload=True, with_vectors=body["with_vector"]
        )
        return {"points": points, "next_page_offset": offset}

    def query(name: str, body: Body) -> object:
        asked = [models.QueryRequest.model_validate(each) for each in body["searches"]]
        return client.query_batch_points(name, asked)

    def aliases(_: str, body: Body) -> object:
        return client.update_collection_aliases(ChangeAliasesOperation.model_validate(body).actions)

    answers: dict[tuple[str, str], Callable[[str, Body], object]] = {
        ("POST", "/collections/aliases"): aliases,
        ("GET", "/collections/{name}"): lambda name, _: client.get_collection(name),
        ("PUT", "/collections/{name}"): create,
        ("PATCH", "/collections/{name}"): lambda name, body: client.update_collection(name, metadata=body["metadata"]),
        ("DELETE", "/collections/{name}"): lambda name, _: client.delete_collection(name),
        ("PUT", "/collections/{name}/points"): upsert,
        ("POST", "/collections/{name}/points/count"): lambda name, _: client.count(name),
        ("POST", "/collections/{name}/points/scroll"): scroll,
        ("POST", "/collections/{name}/points/query/batch"): query,
        ("POST", "/collections/{name}/points/delete"): lambda name, body: client.delete(name, body["points"]),
    }

    def route(method: str, path: str, answer: Callable[[str, Body], object]) -> Route:
        async def handle(request: Request) -> JSONResponse:
            body = await request.json() if await request.body() else {}
            try:
                with lock:
                    result = answer(request.path_params.get("name", ""), body)
            except ValueError as error:
                status = 404 if "not found" in str(error) else 400
                return JSONResponse({"status": {"error": str(error)}, "time": 0.0}, status)
            return JSONResponse({"result": to_jsonable_python(result), "status": "ok", "time": 0.0})

        return Route(path, handle, methods=[method])

    async def version(_: Request) -> JSONResponse:
        return JSONResponse({"title": "a stand-in for qdrant", "version": importlib.metadata.version("qdrant-client")})

    routes = [route(method, path, answer) for (method, path), answer in answers.items()]
    return Starlette(routes=[Route("/", version), *routes])


def serve() -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(make_app(OLD not in sys.argv), log_level="warning", access_log=False, lifespan="off")
    )
    threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True).start()
    print(f"export QDRANT_URL=http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    if names := missing():
        sys.exit(f"{', '.join(names)} not installed: pip install 'unrank[dev]'")
    serve()
