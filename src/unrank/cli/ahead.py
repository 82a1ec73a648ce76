"""Work that a thread begins while packages are imported: files are hashed, and the GPU is opened.

Nothing depends on it. What it has not done is done when it is needed, and what goes wrong in it is said there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from unrank.disk import read_json, regular_files, several_processes, sha256_once
from unrank.owner import recall, recall_all
from unrank.record import RECORD

DRIVER = "libcuda.so.1"


def begin(*work: Callable[[], None]) -> Thread:
    """Do some work, one after another, in a thread of its own, which does not keep the process from ending."""

    def do() -> None:
        for each in work:
            with suppress(Exception):
                each()

    thread = Thread(target=do, daemon=True)
    thread.start()
    return thread


def hash_files(ranker: str) -> None:
    """Hash the files of a ranker, of its base, and of the remembered proxies of such a ranker."""
    folder = Path(ranker)
    if not folder.is_dir():
        return
    for path in regular_files(folder):
        sha256_once(path)
    own = read_json(folder / RECORD)
    base = own["base_digest"] and recall("base", own["base_digest"])
    for path in regular_files(Path(base)) if base else ():
        sha256_once(path)
    for place in (place for places in recall_all("proxies") for place in places.split("\n") if place):
        for record in sorted(Path(place).glob(f"*/{RECORD}")):
            theirs = read_json(record)
            if all(theirs[name] == own[name] for name in ("ranker", "base_digest")):
                for path in regular_files(record.parent):
                    sha256_once(path)


def open_gpu() -> None:
    """Create the context of the first GPU, which takes its driver some tenths of a second."""
    if several_processes():
        return  # each has another GPU
    driver, device, context = ctypes.CDLL(DRIVER), ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), 0) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def warm_up_gpu() -> None:
    """Load what the first products of matrices need. Torch must have been imported."""
    import torch

    if several_processes() or not torch.cuda.is_available():
        return
    for kind in (torch.bfloat16, torch.float32):
        square = torch.ones(64, 64, device="cuda", dtype=kind)
        torch.addmm(square[0], square, square).softmax(-1).sum()
    torch.cuda.synchronize()
