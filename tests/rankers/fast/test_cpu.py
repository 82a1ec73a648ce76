"""The gradient of GELU that is faster on some processors is the same gradient."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import gelu
from transformers.activations import GELUActivation

from unrank.rankers.fast.cpu import NO_KERNELS, faster_gelus


def quickened(monkeypatch: pytest.MonkeyPatch, capability: str = NO_KERNELS) -> GELUActivation:
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
    activation = GELUActivation()
    for module, forward in faster_gelus(torch.nn.Sequential(activation)).items():
        module.forward = forward
    return activation


def test_values_and_gradients_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    states = torch.cat([torch.linspace(-12, 12, 2001), torch.tensor([0.0, 60.0, -60.0])])
    expected, given = states.clone().requires_grad_(), states.clone().requires_grad_()
    weights = torch.randn(len(states), generator=torch.Generator().manual_seed(0))
    its, ours = gelu(expected), copy.deepcopy(quickened(monkeypatch))(given)
    assert torch.equal(its, ours)
    assert "_Gelu" in type(ours.grad_fn).__name__
    (its * weights).sum().backward()  # type: ignore[no-untyped-call]
    (ours * weights).sum().backward()
    assert given.grad is not None
    torch.testing.assert_close(given.grad, expected.grad, rtol=1e-5, atol=1e-6)


def test_without_a_gradient_nothing_is_kept_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert quickened(monkeypatch)(torch.ones(3)).grad_fn is None


def test_a_processor_with_kernels_keeps_the_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    activation = quickened(monkeypatch, "AVX512")
    assert "forward" not in vars(activation)
