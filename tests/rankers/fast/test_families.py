"""Encoders of many families give the same states packed and padded, or `can_pack` says why they are not packed."""

from __future__ import annotations

import copy
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu
from transformers import AutoConfig, AutoModel
from transformers.models.qwen3 import modeling_qwen3

from tests.rankers.fast.test_encoder import as_on_a_gpu, scores
from unrank.rankers.base import DualEncoder, Ranker
from unrank.rankers.fast import decoder_parts, packing
from unrank.rankers.fast import encoder as fast_encoder
from unrank.rankers.fast.packing import FAMILIES, Family, can_pack, packing_family, run_packed
from unrank.rankers.tokenisation import EncoderInputs

CPU = torch.device("cpu")
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
DISTILBERT = {"dim": 32, "n_layers": 3, "n_heads": 2, "hidden_dim": 64}
GROUPED = {"num_key_value_heads": 1, "head_dim": 16}
MORE: dict[str, dict[str, Any]] = {
    "modernbert": {"local_attention": 8, "global_attn_every_n_layers": 3},
    "llama": GROUPED,
    "qwen3": GROUPED,
    "gemma2": GROUPED,
    "mistral": {**GROUPED, "sliding_window": 8},
    "gemma3_text": {**GROUPED, "sliding_window": 8, "sliding_window_pattern": 3},
}
"""Windows that are shorter than a text, and heads that share keys."""
LENGTHS = np.array([3, 20, 1, 33])
TRIED = ["albert", "ernie", "nomic_bert", "roberta-prelayernorm", "llama", "qwen3", "mistral", "gemma3_text"]
"""Families that are not listed, and that the trial on two texts finds."""


def make_model(family: str) -> Any:
    """An encoder whose states differ from text to text; modernbert's texts are longer than its window."""
    sizes = {**(DISTILBERT if family == "distilbert" else SIZES), **MORE.get(family, {})}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        config = AutoConfig.for_model(family, vocab_size=99, max_position_embeddings=72, pad_token_id=0, **sizes)
        model = AutoModel.from_config(config).eval()
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.add_(0.2 * torch.randn_like(weight))
    return model


def some_texts() -> EncoderInputs:
    ids = np.random.default_rng(0).integers(5, 99, LENGTHS.sum()).astype(np.int32)
    return EncoderInputs(ids, LENGTHS, 64, 0)


def states(output: Any) -> Tensor:
    """The states of tokens, without padding. [tokens, size]"""
    mask = np.arange(output.last_hidden_state.shape[1]) < LENGTHS[:, None]
    given: Tensor = output.last_hidden_state[torch.from_numpy(mask)]
    return given


@pytest.mark.parametrize("own_layers", [False, True], ids=["the library's layers", "our layers"])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_states_and_gradients_are_the_padded_ones(family: str, own_layers: bool) -> None:
    model, texts = make_model(family), some_texts()
    listed = FAMILIES[family]
    if own_layers and listed.names is None:
        pytest.skip("has no layers of ours")
    packed = listed if own_layers else Family(listed.positions_after_padding)
    given: list[tuple[Tensor, list[Tensor]]] = []
    for output in (model(**texts.padded(CPU)), run_packed(model, texts, packed, packing._Probe())):
        found = states(output)
        weights = [weight for name, weight in model.named_parameters() if "pooler" not in name]
        loss = (found * torch.randn(found.shape, generator=torch.Generator().manual_seed(1))).sum()
        given.append((found.detach(), list(torch.autograd.grad(loss, weights))))
    (expected, expected_gradients), (ours, our_gradients) = given
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-5)
    for mine, theirs in zip(our_gradients, expected_gradients, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()) + 1e-5)


@pytest.mark.parametrize("family", TRIED)
def test_a_family_that_is_not_listed_is_tried(family: str) -> None:
    model, texts = make_model(family), some_texts()
    found = packing_family(model, CPU)
    assert isinstance(found, Family) and found.names is None
    with torch.no_grad():
        expected, given = model(**texts.padded(CPU)), run_packed(model, texts, found, packing._Probe())
    np.testing.assert_allclose(states(given), states(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "why"),
    [
        ("mpnet", "mpnet does not use the attention functions of transformers"),
        ("deberta-v2", "deberta-v2 does not use the attention functions of transformers"),
        ("gemma2", "gemma2 cannot run packed: its attention has a cap, which no kernel here knows"),
    ],
)
def test_a_family_that_cannot_be_packed_says_why(family: str, why: str) -> None:
    assert can_pack(make_model(family), CPU) == why


def test_a_decoder_is_not_packed() -> None:
    model = make_model("bert")
    model.config.is_decoder = True
    assert can_pack(model, CPU) == "a decoder's tokens do not attend to the tokens after them"


def test_heads_that_a_gpu_cannot_take_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    model = make_model("bert")
    model.config.num_attention_heads = 8
    assert "not 4" in str(can_pack(model, torch.device("cuda")))
    assert can_pack(model, CPU) is None


def test_a_gpu_below_sm80_and_another_transformers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("bert")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "Tesla T4")
    assert can_pack(model, torch.device("cuda")) == "Tesla T4 is older than sm80 and has no bfloat16 attention"
    monkeypatch.setattr("unrank.rankers.fast.packing.transformers.__version__", "6.0.1")
    assert "transformers 6.0.1 is not version 5" in str(can_pack(model, CPU))


@pytest.mark.parametrize("kind", ["cross-encoder", "bi-encoder", "colbert", "parade"])
@pytest.mark.parametrize("unknown", ["GPU", "transformers"])
def test_where_something_is_unknown_the_library_computes_padded(
    kind: str, unknown: str, rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = copy.deepcopy(rankers[kind])
    ranker.fast = False
    expected = scores(ranker)
    ranker.fast = True
    for encoder in ranker.fast_encoders:
        encoder._packing.clear()  # another test may have asked
    as_on_a_gpu(monkeypatch, torch.float32)
    monkeypatch.setattr(fast_encoder, "run_packed", None)
    if unknown == "GPU":
        monkeypatch.setattr(fast_encoder, "is_old", lambda device: True)
        monkeypatch.setattr(packing, "is_old", lambda device: True)
        monkeypatch.setattr("torch.cuda.get_device_name", lambda device: "an old one")
    else:
        monkeypatch.setattr("unrank.rankers.fast.packing.transformers.__version__", "6.0.1")
    assert torch.equal(scores(ranker), expected)


@pytest.mark.parametrize("kind", ["cross-encoder", "bi-encoder", "colbert", "parade"])
def test_off_means_that_the_library_is_left_alone(kind: str, rankers: dict[str, Ranker]) -> None:
    ranker = copy.deepcopy(rankers[kind])
    expected = scores(ranker).detach()
    ranker.fast = False
    if isinstance(ranker, DualEncoder):
        ranker.freeze_documents()
    copied = copy.deepcopy(ranker)
    assert not copied.fast
    assert not any("forward" in vars(module) for module in copied.modules())
    np.testing.assert_allclose(scores(copied).detach(), expected, rtol=1e-5, atol=1e-5)
    copied.fast = True
    assert copied.fast and any("forward" in vars(module) for module in copied.modules())
    np.testing.assert_allclose(scores(copied).detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_a_norm_of_a_decoder_is_torchs_where_that_is_the_same(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(family)
    found = decoder_parts.faster_parts(model)
    norms = {module: forward for module, forward in found.items() if type(module).__name__.endswith("RMSNorm")}
    assert bool(norms) == (family == "llama")  # gemma adds one to the scale
    for norm, forward in norms.items():
        norm.weight.data.uniform_(0.5, 2)
        states = torch.randn(3, 5, 32)
        np.testing.assert_allclose(forward(states).detach(), norm(states).detach(), rtol=1e-5, atol=1e-6)
        shown = torch.nn.functional.rms_norm(states, norm.weight.shape, norm.weight, norm.variance_epsilon)
        np.testing.assert_allclose(shown.detach(), norm(states).detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("family", "is_gated", "halves"), [
    ("llama", True, True),
    ("qwen3", True, True),
    ("gemma3_text", False, True),  # its activation is another
    ("cohere", True, False),  # it turns neighbours, not halves
    ("bert", False, None),
])  # fmt: skip
def test_parts_of_a_decoder_are_replaced_where_that_is_the_same(
    family: str, is_gated: bool, halves: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(family)
    networks = [module for module in decoder_parts.faster_parts(model) if hasattr(module, "gate_proj")]
    assert len(networks) == (3 if is_gated else 0)
    library = sys.modules[type(model).__module__]
    turn = getattr(library, decoder_parts.ROTATION, None)
    assert (None if turn is None else decoder_parts.turns_halves(turn)) == halves
    monkeypatch.setattr(decoder_parts, "has_kernels", lambda device: True)
    with decoder_parts.faster_rotation(model):
        assert (getattr(library, decoder_parts.ROTATION, None) is not turn) == bool(halves)


def test_kernels_take_the_place_of_a_decoders_parts_in_packed_passes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels themselves are tried on a GPU."""
    model, texts, called = make_model("qwen3"), some_texts(), list[str]()

    def gated(gate: Tensor, up: Tensor) -> Tensor:
        called.append("gated")
        return silu(gate) * up

    def rotated(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        called.append("rotated")
        first, second = states.chunk(2, -1)
        return states * cosine.unsqueeze(1) + torch.cat([-second, first], -1) * sine.unsqueeze(1)

    kernels = SimpleNamespace(gated=gated, rotated=rotated)
    monkeypatch.setitem(sys.modules, "unrank.rankers.fast.decoder_kernels", kernels)
    monkeypatch.setattr(decoder_parts, "has_kernels", lambda device: True)
    library = modeling_qwen3.apply_rotary_pos_emb
    with torch.no_grad():
        expected = states(model(**texts.padded(CPU)))
        for module, forward in decoder_parts.faster_parts(model).items():
            module.forward = forward
        given = states(run_packed(model, texts, Family(), packing._Probe()))
    np.testing.assert_allclose(given, expected, rtol=0, atol=1e-5)
    assert called.count("gated") == 3 and called.count("rotated") == 6
    with decoder_parts.faster_rotation(model), decoder_parts.faster_rotation(model):
        replaced: Any = modeling_qwen3.apply_rotary_pos_emb
        assert replaced.func is decoder_parts._rotated and replaced.args == (library,)
    assert modeling_qwen3.apply_rotary_pos_emb is library


def test_the_last_token_of_each_packed_text_is_its_own() -> None:
    model, texts = make_model("qwen3"), some_texts()
    with torch.no_grad():
        whole = model(**texts.padded(CPU)).last_hidden_state
        given = run_packed(model, texts, Family(), packing._Probe(), last_only=True).last_hidden_state
    expected = whole[torch.arange(len(LENGTHS)), torch.from_numpy(LENGTHS) - 1]
    np.testing.assert_allclose(given[:, 0], expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(fast_encoder.last_states(whole, LENGTHS), expected, rtol=0, atol=0)
