"""Gaps and CoCoL's losses, checked by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.table import Listed, collection_of, forgetting, random_table, task_of
from unrank.engine.losses import list_divergence, margin_loss, mean_where, paper_gap, range_gap
from unrank.engine.samples import Phase, Samples, Scored
from unrank.engine.teacher import TeacherScores
from unrank.errors import UnknownName
from unrank.methods.cocol import Cocol

NAN, INF = math.nan, math.inf

# Two scores, the sign of their gap by the range, and by the paper's quotient. In Δ(x) the teacher's score stands
# above and the student's below; in Δmin(x) the student's above and the lowest of the query's list below.
SIGNS = [
    (-2.0, -1.0, -1, 1),
    (-1.0, -2.0, 1, -1),
    (-1.0, -1.0, 0, 0),
    (-1.0, 0.0, -1, 1),
    (-2.0, 1.0, -1, 1),
    (-1.0, 2.0, -1, -1),
    (-1.0, 1.0, -1, -INF),
    (0.0, -1.0, 1, -1),
    (0.0, 0.0, 0, NAN),
    (0.0, 1.0, -1, -1),
    (1.0, -2.0, 1, -1),
    (2.0, -1.0, 1, 1),
    (1.0, -1.0, 1, INF),
    (1.0, 0.0, 1, 1),
    (1.0, 1.0, 0, 0),
    (1.0, 2.0, -1, -1),
    (2.0, 1.0, 1, 1),
]


def sign(gap: Tensor) -> float:
    value = gap.item()
    return value if math.isinf(value) or math.isnan(value) else float(np.sign(value))


@pytest.mark.parametrize(("above", "below", "by_range", "by_paper"), SIGNS)
def test_the_signs_of_the_gaps(above: float, below: float, by_range: float, by_paper: float) -> None:
    first, second = torch.tensor(above), torch.tensor(below)
    for span in (1e-3, 4.0):
        assert sign(range_gap(first, second, torch.tensor(span))) == by_range
    assert sign(paper_gap(first, second)) == pytest.approx(by_paper, nan_ok=True)


def test_the_range_always_has_the_sign_of_the_difference() -> None:
    for above, below, by_range, _ in SIGNS:
        assert by_range == np.sign(above - below)


ROLES = ("forget", "partner", "negative", "kept_1", "kept_1_negative")


def phases(**settings: str) -> list[Phase]:
    collection = collection_of([Listed([0], [1, 2]), Listed([0], [2]), Listed([2], [1])], 3)
    task = task_of(collection, forgetting(collection, queries=[0]), random_table(collection, 0))
    return list(Cocol(**settings).plan(task))  # type: ignore[arg-type]


def scored(
    score: list[list[float]], teacher: list[list[float]], low: list[list[float]], span: float = 1.0
) -> tuple[Scored, Tensor]:
    """All roles present; the scores also apart, to look at their gradient."""
    leaf = torch.tensor(score, requires_grad=True)
    present = torch.ones(leaf.shape, dtype=torch.bool)
    whole = leaf, present, torch.tensor(teacher), torch.tensor(low), torch.full(leaf.shape, span)
    return Scored(ROLES[: leaf.shape[1]], *whole), leaf


@pytest.mark.parametrize(("above", "below", "by_range", "by_paper"), SIGNS)
def test_the_signs_in_the_losses(above: float, below: float, by_range: float, by_paper: float) -> None:
    """x' rests at 1, so that a forget step is on ReLU(Δmin(x)) alone; so does x−, which leaves |Δ(x+)|."""
    for scale, expected in (("range", by_range), ("paper", by_paper)):
        forget, hold = phases(scale=scale, anchors="paper")
        fall, _ = scored([[above, 1.0]], [[1.0, 1.0]], [[below, 1.0]])
        assert sign(forget.loss(fall)) == pytest.approx(expected if not expected < 0 else 0, nan_ok=True)
        drift, _ = scored([[below, 1.0]], [[above, 1.0]], [[1.0, 1.0]])
        assert sign(hold.loss(drift)) == pytest.approx(abs(expected), nan_ok=True)


def test_the_printed_formula_on_positive_scores() -> None:
    """ReLU(Δmin(x)) + |Δ(x')|, a mean over x for each term."""
    batch, _ = scored([[3.0, 1.0], [1.0, 4.0]], [[9.0, 3.0], [9.0, 4.0]], [[1.0, 1.0], [3.0, 1.0]])
    forget, _ = phases(scale="paper", anchors="paper")
    # x: (3 − 1) / (3 + 1) = 1/2 and ReLU((1 − 3) / (1 + 3)) = 0; x': |3 − 1| / 4 = 1/2 and 0.
    assert forget.loss(batch).item() == pytest.approx(0.25 + 0.25)


def test_the_printed_formula_of_the_second_phase() -> None:
    """|Δ(x+)| + |Δ(x−)|."""
    batch, _ = scored([[3.0, 1.0], [6.0, 3.0]], [[5.0, 3.0], [2.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]])
    _, hold = phases(scale="paper", anchors="paper")
    # x+: 2/8 and |−4|/8; x−: 2/4 and |−2|/4.
    assert hold.loss(batch).item() == pytest.approx((1 / 4 + 1 / 2) / 2 + (1 / 2 + 1 / 2) / 2)


def test_the_same_by_range() -> None:
    batch, _ = scored([[3.0, 1.0], [1.0, 4.0]], [[9.0, 3.0], [9.0, 4.0]], [[1.0, 1.0], [3.0, 1.0]], span=8.0)
    forget, hold = phases(anchors="paper")
    assert forget.loss(batch).item() == pytest.approx((2 / 8 + 0) / 2 + (2 / 8 + 0) / 2)
    assert hold.loss(batch).item() == pytest.approx((6 / 8 + 8 / 8) / 2 + (2 / 8 + 0) / 2)


def test_wide_anchors_add_a_mean_a_role() -> None:
    batch, _ = scored([[-3.0, -2.0, 0.0, 1.0, 2.0]], [[5.0, -1.0, 2.0, 1.0, -2.0]], [[-5.0] * 5], span=10.0)
    forget = phases(anchors="wide", phases="joint")
    assert len(forget) == 1
    assert forget[0].loss(batch).item() == pytest.approx(0.2 + 0.1 + 0.2 + 0.0 + 0.4)


@pytest.mark.parametrize("scale", ["range", "paper"])
def test_a_role_that_is_absent_has_neither_value_nor_gradient(scale: str) -> None:
    """Two forget pairs of which the second has no partner, no negative and no other kept pair."""
    present = np.array([[True] * 5, [True, False, False, False, False]])
    pairs = np.zeros((2, 5, 2), np.int64)
    teacher = TeacherScores(*(np.where(present, value, 1).astype(np.float32) for value in (3.0, 1.0, 4.0)))
    samples = Samples(ROLES, pairs, present, teacher)
    forget = phases(scale=scale)[0]
    scores = torch.tensor([3.0, 2.0, 2.0, 3.0, 1.0, 5.0], requires_grad=True)
    loss = forget.loss(Scored.of(samples, scores))
    loss.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    whole = Samples(ROLES, pairs[:1], present[:1], TeacherScores(*(values[:1] for values in teacher)))
    alone = torch.tensor([3.0, 2.0, 2.0, 3.0, 1.0], requires_grad=True)
    forget.loss(Scored.of(whole, alone)).backward()  # type: ignore[no-untyped-call]
    assert alone.grad is not None
    assert scores.grad[1:5].tolist() == alone.grad[1:].tolist()  # anchors: a mean over those that are there
    assert scores.grad[0].item() == pytest.approx(alone.grad[0].item() / 2)  # x: a mean over both


@pytest.mark.parametrize("scale", ["range", "paper"])
def test_where_no_sample_has_the_role_it_adds_nothing(scale: str) -> None:
    present = np.array([[True, False], [True, False]])
    teacher = TeacherScores(*(np.ones((2, 2), np.float32) for _ in range(3)))
    scores = torch.tensor([3.0, 1.0], requires_grad=True)
    batch = Scored.of(Samples(ROLES[:2], np.zeros((2, 2, 2), np.int64), present, teacher), scores)
    loss = phases(scale=scale, anchors="paper")[0].loss(batch)
    assert loss.item() == pytest.approx({"range": 2 / 2, "paper": 0.5 / 2}[scale])
    loss.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert scores.grad[0].item() > 0


@pytest.mark.parametrize("scale", ["range", "paper"])
def test_zeros_where_a_role_is_absent_divide_nothing(scale: str) -> None:
    batch, scores = scored([[2.0, 0.0], [4.0, 1.0]], [[5.0, 0.0], [5.0, 3.0]], [[1.0, 0.0], [1.0, 1.0]])
    batch = replace(batch, present=torch.tensor([[True, False], [True, True]]))
    for phase in phases(scale=scale, anchors="paper"):
        scores.grad = None
        phase.loss(batch).backward()  # type: ignore[no-untyped-call]
        assert scores.grad is not None
        assert torch.isfinite(scores.grad).all()
        assert scores.grad[0, 1].item() == 0.0
        assert scores.grad[0, 0].item() != 0.0


def test_what_a_term_does_not_use_cannot_spoil_its_gradient() -> None:
    """The paper's quotient divides by zero in roles of which a term takes nothing."""
    batch, scores = scored([[2.0, -1.0]], [[-2.0, 3.0]], [[1.0, 1.0]])
    # Δmin(x) = 1/3, Δ(x') = 4/2; neither Δ(x) = −4/0 nor Δmin(x') = −2/0 is asked for.
    loss = phases(scale="paper", anchors="paper")[0].loss(batch)
    assert loss.item() == pytest.approx(1 / 3 + 2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()


def test_a_forget_pair_at_the_lowest_is_left_alone() -> None:
    batch, scores = scored([[1.0, 5.0], [0.5, 5.0]], [[9.0, 5.0], [9.0, 5.0]], [[1.0, 1.0], [1.0, 1.0]], span=8.0)
    phases(anchors="paper")[0].loss(batch).backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_means_over_what_is_present() -> None:
    values = torch.tensor([1.0, 3.0, 100.0], requires_grad=True)
    mean = mean_where(values, torch.tensor([True, True, False]))
    assert mean.item() == 2.0
    mean.backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, 0.5, 0.0]
    assert mean_where(torch.tensor([NAN, INF]), torch.tensor([False, False])).item() == 0.0


def test_the_margin() -> None:
    assert margin_loss(torch.tensor(0.0), torch.tensor(0.0)).item() == 1.0
    assert margin_loss(torch.tensor(-1.0), torch.tensor(2.0), margin=0.5).item() == 3.5


def test_scores_are_spread_over_the_roles_that_are_present() -> None:
    present = np.array([[True, False, True], [False, True, False]])
    samples = Samples(("a", "b", "c"), np.zeros((2, 3, 2), np.int64), present)
    spread = Scored.of(samples, torch.tensor([1.0, 2.0, 3.0]))
    assert spread.score.tolist() == [[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]
    assert spread.present.tolist() == present.tolist()
    assert spread.teacher.tolist() == spread.list_min.tolist() == [[0.0] * 3] * 2
    assert (spread["c"].score.tolist(), spread["c"].present.tolist()) == ([2.0, 0.0], [True, False])


def test_height_and_drift_of_a_role() -> None:
    batch, _ = scored([[3.0, 1.0], [1.0, 4.0]], [[9.0, 3.0], [9.0, 4.0]], [[1.0, 1.0], [3.0, 1.0]], span=8.0)
    assert batch["forget"].height.tolist() == [2 / 8, -2 / 8]
    assert batch["partner"].drift.tolist() == [-2 / 8, 0]
    assert batch.height[:, 1].tolist() == [0, 3 / 8]
    with pytest.raises(UnknownName, match="unknown role of these samples 'partners': did you mean 'partner'"):
        batch["partners"]


def test_a_divergence_by_hand() -> None:
    """Teacher 3/4 and 1/4, student 1/2 and 1/2: 3/4 log 3/2 + 1/4 log 1/2."""
    teacher, student = torch.tensor([[math.log(3.0), 0.0]]), torch.tensor([[7.0, 7.0]])
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert list_divergence(teacher, student, torch.ones(1, 2, dtype=torch.bool)).tolist() == pytest.approx([expected])


def test_a_divergence_knows_neither_shifts_nor_what_is_not_there() -> None:
    generator = torch.Generator().manual_seed(0)
    teacher, student = torch.randn(2, 5, 4, generator=generator)
    whole = torch.ones(5, 4, dtype=torch.bool)
    expected = list_divergence(teacher, student, whole)
    assert (expected > 0).all()
    assert torch.allclose(list_divergence(teacher + 3, student - 7, whole), expected, atol=1e-6)
    noisy, quiet = (
        torch.cat([one, torch.full((5, 2), noise)], 1) for one, noise in ((teacher, 50.0), (student, -50.0))
    )
    present = torch.cat([whole, torch.zeros(5, 2, dtype=torch.bool)], 1)
    assert torch.allclose(list_divergence(noisy, quiet, present), expected, atol=1e-6)
    assert torch.allclose(list_divergence(teacher, teacher, whole), torch.zeros(5), atol=1e-6)


def test_the_gradient_of_a_divergence_is_finite_and_none_where_nothing_is() -> None:
    """A list of the positive alone, a list with a gap, a whole one, and scores far apart."""
    present = torch.tensor([[True, False, False], [True, False, True], [True, True, True], [True, True, True]])
    teacher = torch.tensor([[1.0, 9.0, 9.0], [1.0, 9.0, 0.0], [2.0, 1.0, 0.0], [500.0, -500.0, 0.0]])
    student = torch.tensor(
        [[2.0, 8.0, 8.0], [0.0, 8.0, 1.0], [0.0, 1.0, 2.0], [-500.0, 500.0, 0.0]], requires_grad=True
    )
    divergence = list_divergence(teacher, student, present)
    divergence.sum().backward()  # type: ignore[no-untyped-call]
    assert divergence[0] == 0
    assert torch.isfinite(divergence).all()
    assert student.grad is not None
    assert torch.isfinite(student.grad).all()
    assert (student.grad[~present] == 0).all()
    assert (student.grad[0] == 0).all()
    wanted = torch.softmax(student.detach(), 1) - torch.softmax(teacher, 1)
    assert torch.allclose(student.grad[2], wanted[2], atol=1e-6)
