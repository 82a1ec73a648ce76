"""A private PostgreSQL server with pgvector, for the tests alone: its data and its socket are in a folder of theirs.

`python -m tests.index.server` starts one, prints how to connect, and stops it when its input ends.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "unrank"


def programs() -> Path | None:
    """Return the folder of PostgreSQL's programs: those of the package pgserver, or the system's if it has pgvector."""
    found = [
        (Path(folder), Path("/usr/share/postgresql") / Path(folder).parent.name)
        for folder in sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")))
    ]
    package = importlib.util.find_spec("pgserver")
    if package is not None and package.origin is not None:
        install = Path(package.origin).parent / "pginstall"
        found.append((install / "bin", install / "share" / "postgresql"))
    ready = [folder for folder, share in found if (share / "extension" / "vector.control").is_file()]
    return ready[-1] if ready else None


@contextmanager
def running() -> Iterator[dict[str, str]]:
    """Run a server, and yield the variables by which libpq finds it. PostgreSQL refuses to run as root."""
    folder = programs()
    assert folder is not None
    home = Path(tempfile.mkdtemp(prefix="unrank-pg-"))
    user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else None
    if user is not None:
        os.chown(home, user, -1)

    def call(program: str, *arguments: str) -> None:
        command = [str(folder / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=home, timeout=120, user=user)

    data = str(home / "data")
    options = f"-c listen_addresses='' -c unix_socket_directories='{home}' -c fsync=off"
    try:
        call("initdb", "-D", data, "-U", USER, "--auth=trust", "--encoding=UTF8", "--no-sync")
        call("pg_ctl", "-D", data, "-w", "-o", options, "-l", str(home / "log"), "start")
        yield {"PGHOST": str(home), "PGUSER": USER, "PGDATABASE": "postgres"}
    finally:
        if (home / "data" / "postmaster.pid").exists():
            call("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    if programs() is None:
        sys.exit("no PostgreSQL with pgvector: install postgresql-NN-pgvector, or the Python package pgserver")
    with running() as variables:
        print("\n".join(f"export {name}={value}" for name, value in variables.items()), flush=True)
        sys.stdin.read()
