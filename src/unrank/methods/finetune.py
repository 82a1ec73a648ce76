"""Finetune: go on training on the kept pairs. Forgetting is left to chance. The paper's CF.

Reference: Warnecke et al., Machine Unlearning of Features and Labels (2023), and many before: catastrophic forgetting.
Differs: in nothing. A ranker that has learned its data has little left to learn, so it forgets little.
"""

from __future__ import annotations

from dataclasses import dataclass

from unrank.methods.ranking import Learning


@dataclass(frozen=True)
class Finetune(Learning):
    """Goes on training on the kept pairs."""

    name = "finetune"
