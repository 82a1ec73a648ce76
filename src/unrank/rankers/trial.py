"""A trial: a model that this machine does not know is first loaded in a process with limits on memory and time.

The limits follow from the size of the model's files. What a model does to the process of the trial, it does not do to
the one that asks: if it takes too much, or ends the process, the model is refused in one line. Models that passed are
remembered in the owner's state folder, by a digest of their files; if it cannot be written, trials are repeated.

On Linux the trial is a copy of the running process (a fork), which takes a few milliseconds. Elsewhere it is a new
process, which takes seconds, and only its time is limited: macOS does not enforce limits on memory.
"""

from __future__ import annotations

import faulthandler
import gc
import hashlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

import unrank
from unrank.disk import sha256_once
from unrank.errors import BadFile, UnrankError
from unrank.owner import recall, remember
from unrank.rankers.allow_list import DESCRIPTION
from unrank.rankers.folder_check import check_folder, check_tokenizers, model_files
from unrank.rankers.model_folder import check_unchanged, loading
from unrank.record import version_of

PASSED, WRITTEN = "loaded-safely", "written-here"
"""Kinds of facts in the state folder: models that passed a trial, and folders that unrank itself wrote."""
LIBRARIES = ("torch", "transformers", "sentence-transformers", "tokenizers", "safetensors")

GIB = 2**30
STATM = Path("/proc/self/statm")
LOADED = b"{}"
FORKS = sys.platform == "linux"
"""Whether a process can be copied: libraries of macOS do not survive it."""


@dataclass(frozen=True)
class Limits:
    """How much memory, beyond that of the process it starts from, and how much time a trial may take."""

    memory: int
    seconds: int

    @classmethod
    def of(cls, files: Sequence[Path]) -> Limits:
        """Return the limits for a model with these files: 2 GiB and 8 times their size, 2 minutes and 2 for each GiB.

        Weights of half precision double when they are loaded, and a library may hold them twice. A file may claim any
        size, so the memory is never more than three quarters of the machine's.
        """
        size = sum(path.stat().st_size for path in files)
        most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
        return cls(min(2 * GIB + 8 * size, most), 120 + 120 * size // GIB)

    def impose(self) -> None:
        """Limit this process. It ends when its time is over, whatever it does then."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(self.seconds)
        _limit(resource.RLIMIT_CORE, 0)
        if STATM.exists():
            taken = int(STATM.read_text().split()[5]) * resource.getpagesize()
            _limit(resource.RLIMIT_DATA, taken + self.memory)

    def __str__(self) -> str:
        return f"{self.memory / GIB:.1f} GiB of memory and {self.seconds} s"


def _limit(which: int, amount: int) -> None:
    highest = resource.getrlimit(which)[1]
    with suppress(ValueError, OSError):  # a lower limit is set already
        resource.setrlimit(which, (amount if highest == resource.RLIM_INFINITY else min(amount, highest), highest))


@dataclass(frozen=True)
class Attempt:
    """An attempt to load a ranker from a folder, or to make one of some kind on the encoder in it."""

    folder: str
    fast: bool = True
    new: str = ""
    """The kind of the ranker to make; empty if one is to be loaded."""

    def make(self) -> None:
        """Check what is in the folder, load it and score a few pairs."""
        from unrank.rankers import CATALOGUE, detect_kind, ranker_class, read_ranker
        from unrank.rankers.adapter_folder import base_of, has_adapter, whole_model
        from unrank.rankers.encoder import check_parts, check_weights
        from unrank.rankers.library_check import PAIRS, check_library_scores
        from unrank.rankers.size_check import check_size

        folder = Path(self.folder)
        if self.new:
            with loading(folder, f"the base of a {self.new}"):
                queries, documents = zip(*PAIRS, strict=True)
                ranker = ranker_class(self.new).create(self.folder).eval()
                ranker.fast = self.fast
                ranker.score_texts(queries, documents)
            return
        own = CATALOGUE.find(detect_kind(folder))[1].own is not None
        if has_adapter(folder):
            with whole_model(folder) as whole:
                check_parts(whole)
                check_size(whole)
            for part in {folder, base_of(folder) or folder}:
                check_tokenizers(part)
        else:
            check_weights(folder, with_vocabulary=not own)
        check_unchanged(folder)
        check_library_scores(read_ranker(folder, self.fast), folder)


class Refused(BadFile):
    """A model that its trial refused. The message is the whole line of the trial."""

    def __init__(self, line: str) -> None:
        UnrankError.__init__(self, line)


def try_out(attempt: Attempt) -> None:
    """Refuse a model that cannot be loaded within limits, unless unrank wrote it or it has passed before."""
    from unrank.rankers import CATALOGUE, detect_kind
    from unrank.rankers.adapter_folder import base_of, has_adapter
    from unrank.rankers.encoder import check_parts

    folder = Path(attempt.folder)
    with loading(folder, "a ranker"):
        files = model_files(folder)
        digest = files_digest(file_hashes(folder, files))
        if recall(WRITTEN, digest) is not None:
            return
        base = None
        if has_adapter(folder):
            check_folder(folder)
            base = base_of(folder)
        if base is not None:
            check_folder(base)
            files += (theirs := model_files(base))
            digest += f" on {files_digest(file_hashes(base, theirs))}"
        versions = [unrank.__version__, *map(version_of, LIBRARIES)]
        trial = " ".join([digest, *versions, f"fast {attempt.fast}", f"new {attempt.new}"])
        if recall(PASSED, trial) is not None:
            return
        entry = None if attempt.new else CATALOGUE.find(detect_kind(folder))[1]
        check_folder(folder)
        if base is None:
            check_parts(folder, with_vocabulary=entry is None or entry.own is None)
    refused = in_limits(Limits.of(files), attempt)
    if refused:
        raise Refused(refused)
    remember(PASSED, trial)


def note_own(folder: Path, hashes: Mapping[str, str]) -> None:
    """Remember a folder that unrank has just written, given the hashes of some of its files."""
    names = {str(path.relative_to(folder)): path for path in model_files(folder)}
    left = file_hashes(folder, [path for name, path in names.items() if name not in hashes])
    remember(WRITTEN, files_digest({name: left.get(name) or hashes[name] for name in names}))


def file_hashes(folder: Path, files: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file, by its name in the folder."""
    try:
        return {str(path.relative_to(folder)): sha256_once(path) for path in files}
    except OSError as error:
        raise BadFile(error.filename or folder, error.strerror or "cannot be read") from error


def files_digest(hashes: Mapping[str, str]) -> str:
    """Return one hash of the names and hashes of files."""
    lines = [f"{name} {hashes[name]}" for name in sorted(hashes)]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def in_limits(limits: Limits, attempt: Attempt) -> str | None:
    """Make an attempt in a process with limits; return why it was refused, or `None` if it was not."""
    answer, status = _forked(limits, attempt) if FORKS else _started(limits, attempt)
    if answer:
        return str(json.loads(answer)["refused"]) if answer != LOADED else None
    if status == -signal.SIGALRM:
        return f"{attempt.folder}: was not loaded within {limits.seconds} s, and is refused"
    return f"{attempt.folder}: ended the process in which it was tried, with {limits}, and is refused"


def _forked(limits: Limits, attempt: Attempt) -> tuple[bytes, int]:
    """Return what the process of the trial wrote and how it ended; the number of a signal is negative."""
    if not (Path(attempt.folder) / DESCRIPTION).is_file():
        importlib.import_module("sentence_transformers")  # else both processes would do it, which takes seconds
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads are not copied, and none is needed
        process = os.fork()
    if not process:
        _answer(limits, attempt, writing)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as answers:
            answer = answers.read()
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)  # it has answered, or nobody waits for its answer
        _, status = os.waitpid(process, 0)
    return answer, os.waitstatus_to_exitcode(status)


def _started(limits: Limits, attempt: Attempt) -> tuple[bytes, int]:
    """Return what a new process wrote and how it ended."""
    given = json.dumps([asdict(limits), asdict(attempt)])
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "unrank.rankers.trial", str(writing), given]
    silent = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=silent, stdout=silent, stderr=silent, pass_fds=[writing]) as process:
        os.close(writing)
        try:
            with os.fdopen(reading, "rb") as answers:
                answer = answers.read()
        finally:
            process.kill()
    return answer, process.returncode


def _answer(limits: Limits, attempt: Attempt, writing: int) -> None:
    """Make an attempt in a copied process, write what came of it, and end the process."""
    try:
        _let_go(writing)
        os.write(writing, answer_of(limits, attempt))
    finally:
        os._exit(0)


def _let_go(kept: int) -> None:
    """Close all files of the first process but one. Its locks would be held until the copy ends, even if it is killed
    before, and what the copy prints would be among its own words."""
    faulthandler.disable()
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(silent, stream)
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    sys.stdout = sys.stderr = os.fdopen(1, "w", closefd=False)


def answer_of(limits: Limits, attempt: Attempt) -> bytes:
    """Make an attempt in this process, within limits, on one thread of the CPU; return its outcome as JSON."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    torch.set_num_threads(1)  # threads of the first process are not in its copy
    gc.disable()  # it would touch, and so copy, all memory of the first process
    limits.impose()
    try:
        attempt.make()
    except UnrankError as error:
        return json.dumps({"refused": str(error)}).encode()
    except Exception as error:
        return json.dumps({"refused": f"{attempt.folder}: cannot be loaded: {type(error).__name__}: {error}"}).encode()
    return LOADED


if __name__ == "__main__":
    limited, attempted = json.loads(sys.argv[2])
    os.write(int(sys.argv[1]), answer_of(Limits(**limited), Attempt(**attempted)))
