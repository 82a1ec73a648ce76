"""`unrank bench`, writing down in OUT.log what begins and what ends: `from tests.bench.logged import main; main()`.

The arguments are those of `unrank bench`. With TEST_APART every process takes itself for a machine of its own, so that
the others know it by its heartbeat alone. Workers elsewhere import this module, and with it both.
"""

from __future__ import annotations

import os
import sys

from unrank.bench import heartbeat, runner
from unrank.bench.cell import Job
from unrank.bench.runner import JobRunner

if "TEST_APART" in os.environ:
    heartbeat.this_machine = lambda: f"machine of {os.getpid()}"


class Logged(JobRunner):
    """Runs jobs, and writes down when each begins and ends."""

    def run(self, job: Job) -> str:
        self._note("begins", job)
        said = super().run(job)
        self._note("ends", job)
        return said

    def _note(self, what: str, job: Job) -> None:
        with self.store.out.with_suffix(".log").open("a") as file:
            file.write(f"{what} {job.name}\n")


def main() -> None:
    from unrank.cli.main import run

    setattr(runner, "JobRunner", Logged)  # noqa: B010
    sys.exit(run(["bench", *sys.argv[1:]]))
