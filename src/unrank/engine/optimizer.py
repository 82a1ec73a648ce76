"""AdamW as torch has it, without torch's compiler.

torch marks the methods of its optimisers for its compiler, and so the first call imports it, though nothing is compiled
here: nearly a thousand modules, among them sympy. The marks wrap the methods; these are the methods below them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch


class AdamW(torch.optim.AdamW):
    """An AdamW whose steps are torch's own, to the bit."""

    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    load_state_dict = inspect.unwrap(torch.optim.AdamW.load_state_dict)
    state_dict = inspect.unwrap(torch.optim.AdamW.state_dict)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        return inspect.unwrap(torch.optim.AdamW.step)(self, closure)
