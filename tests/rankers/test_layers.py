"""Moving only the last layers of an encoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rankers.conftest import ENCODER_KINDS
from unrank.errors import UnrankError
from unrank.rankers import create_ranker
from unrank.rankers.base import train_last_layers


@pytest.mark.parametrize("kind", ENCODER_KINDS)
def test_only_the_last_layer_and_what_follows_it_moves(kind: str, encoder: Path) -> None:
    ranker = create_ranker(kind, str(encoder), 0)
    train_last_layers(ranker, 1)
    moving = {name for name, weight in ranker.named_parameters() if weight.requires_grad}
    assert any("layer.1." in name for name in moving)
    assert not any("layer.0." in name or "embedding" in name for name in moving)


def test_no_more_layers_than_there_are(encoder: Path) -> None:
    with pytest.raises(UnrankError, match="the encoder has 2 layers, so 3 of them cannot be trained"):
        train_last_layers(create_ranker("bi-encoder", str(encoder), 0), 3)
