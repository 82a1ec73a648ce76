"""Torture: jobs that are killed, starved of disk or handed damaged files, and what becomes of them.

`python -m tests.torture --jobs 100` prints how many jobs that were killed ended with the weights that they would have
had, how many folders were corrupt, how many records were lost; then what a full disk, a read-only disk and damaged
checkpoints led to. It exits with 1 if anything did not end in the right result or in one clear line.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tests.torture.faults import Fault, faults
from tests.torture.job import Job, jobs, make_ready
from tests.torture.kill import Tally, kill_and_finish


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100, help="how many jobs to kill, each once or more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="jobs whose name holds this word")
    parser.add_argument("--no-faults", action="store_true", help="kill jobs and do nothing else to them")
    given = parser.parse_args()
    make_ready()
    with tempfile.TemporaryDirectory(prefix="torture-") as folder:
        work = Path(folder)
        os.environ["XDG_STATE_HOME"] = str(work / "state")  # not the user's own
        there = {job.name: job for job in jobs(work)}
        chosen = [job for name, job in there.items() if not given.only or given.only in name]
        tally = kill(chosen, work, given.jobs, given.seed)
        tried = [] if given.no_faults else faults(there["forget bi-encoder cocol"], work, given.seed)
        wrong = [fault for fault in tried if not show(fault)]
    print(tally)
    print(f"faults that did not end well: {len(wrong)}")
    return int(bool(wrong) or not tally.clean)


def kill(chosen: list[Job], work: Path, most: int, seed: int) -> Tally:
    """Each job in turn: killed once or more at random moments, then let go to its end."""
    tally, turn = Tally(), 0
    while tally.jobs < most:
        job = chosen[turn % len(chosen)]
        tally += kill_and_finish(job, work, seed + turn)
        turn += 1
        print(f"{job.name}: {tally}", flush=True)
    return tally


def show(fault: Fault) -> bool:
    print(f"{'well' if fault.well else 'WRONG'}: {fault.name}: {fault.said}", flush=True)
    return fault.well


if __name__ == "__main__":
    sys.exit(main())
