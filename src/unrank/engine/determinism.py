"""The same bits every time, on a GPU too.

On a processor this is so anyway. On a GPU some kernels add up in whatever order their threads come; here the others are
taken, which are slower, and a step that has no other is refused. The backward pass of flash attention follows the same
switch of torch's, and the kernels of `rankers/fused.py` and `rankers/attention.py` add up in a fixed order by
themselves. Passes are not recorded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from unrank.errors import UnrankError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
FIXED_WORKSPACE = ":4096:8"


@contextmanager
def deterministic(wanted: bool = True) -> Iterator[None]:
    """While this lasts, equal inputs give equal bits on the same machine. Begin it before the GPU is first used: what
    cuBLAS works in is settled then."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    os.environ.setdefault(WORKSPACE, FIXED_WORKSPACE)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    except RuntimeError as error:
        if "deterministic" not in str(error):
            raise
        raise UnrankError(f"--deterministic cannot be had here: {error}") from error
    finally:
        torch.use_deterministic_algorithms(before)
