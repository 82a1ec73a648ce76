"""A table in pieces holds nothing but its own pieces, and deletes nothing but them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from unrank.engine.pieces import Made, Pieces
from unrank.engine.runtime import Silence
from unrank.errors import BadFile, UnrankError


@dataclass(frozen=True)
class Numbers:
    """Two numbers in each of three pieces, which depend on a factor."""

    factor: int = 1
    name: str = "numbers"
    meanwhile: Callable[[], object] = lambda: None
    pieces: int = 3

    def manifest(self) -> dict[str, object]:
        return {"factor": self.factor}

    def make(self, piece: int) -> pa.RecordBatch:
        self.meanwhile()
        return pa.record_batch({"value": pa.array([2 * piece * self.factor, (2 * piece + 1) * self.factor])})


def made(out: Path, shard: int = 1, of: int = 1, **how: object) -> Made:
    return Pieces(out, Numbers(**how)).run(shard, of, Silence())  # type: ignore[arg-type]


def values(out: Path, **how: object) -> list[int]:
    found: list[int] = Pieces(out, Numbers(**how)).read()["value"].to_pylist()  # type: ignore[arg-type]
    return found


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_files_of_others_stay(tmp_path: Path) -> None:
    precious = ["pieces/thesis.txt", "pieces/00000000.arrow", ".numbers.arrow.mine", ".others.arrow.0123456789ab"]
    precious += ["pieces-numbers/thesis.txt", "pieces-numbers/.thesis.arrow.0123456789ab"]
    for name in precious:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("precious")
    for _ in range(2):
        made(tmp_path)
        assert all((tmp_path / name).read_text() == "precious" for name in precious)
    ours = {"numbers.arrow", "numbers.json"}
    assert names(tmp_path) == {*precious, *ours, "pieces", "pieces-numbers"}


def test_what_killed_workers_left_is_swept_up_once_the_table_is_whole(tmp_path: Path) -> None:
    made(tmp_path, 1, 2)
    left = [".numbers.arrow.0123456789ab", "pieces-numbers/.00000001.arrow.0123456789ab"]
    for name in left:
        (tmp_path / name).touch()
    made(tmp_path, 1, 2)
    assert names(tmp_path) > set(left), "another worker may be writing them"
    made(tmp_path, 2, 2)
    assert names(tmp_path) == {"numbers.arrow", "numbers.json"}
    (tmp_path / left[0]).touch()
    assert made(tmp_path) == Made(3, 0, 0)
    assert names(tmp_path) == {"numbers.arrow", "numbers.json"}


def test_two_tables_share_a_folder(tmp_path: Path) -> None:
    made(tmp_path, 1, 2)
    made(tmp_path, 1, 2, name="sums", factor=5)
    assert made(tmp_path, 2, 2) == Made(3, 1, 0)
    assert made(tmp_path, 2, 2, name="sums", factor=5) == Made(3, 1, 0)
    assert values(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert values(tmp_path, name="sums", factor=5) == [0, 5, 10, 15, 20, 25]


@pytest.mark.parametrize("how", [{"factor": 2}, {"name": "others"}])
def test_pieces_of_another_table_are_refused(tmp_path: Path, how: dict[str, object]) -> None:
    """Even if they were copied to the place of ours. Whether they are found first or last, they stay."""
    made(tmp_path / "other", 2, 2, **how)
    theirs = next((tmp_path / "other").glob("pieces-*/00000001.arrow")).read_bytes()
    made(tmp_path / "out", 1, 2)
    piece = tmp_path / "out" / "pieces-numbers" / "00000001.arrow"
    piece.write_bytes(theirs)
    for shard in (1, 2):
        with pytest.raises(BadFile, match=r"00000001\.arrow: not made as numbers\.json says; move it elsewhere"):
            made(tmp_path / "out", shard, 2)
    assert piece.read_bytes() == theirs and not (tmp_path / "out" / "numbers.arrow").exists()
    piece.unlink()
    made(tmp_path / "out", 2, 2)
    piece.parent.mkdir()
    piece.write_bytes(theirs)
    assert made(tmp_path / "out") == Made(3, 0, 0)
    assert piece.read_bytes() == theirs


@pytest.mark.parametrize("damage", ["half", "empty", "folder"])
def test_a_damaged_piece_is_refused(tmp_path: Path, damage: str) -> None:
    made(tmp_path, 2, 2)
    piece = tmp_path / "pieces-numbers" / "00000001.arrow"
    whole = piece.read_bytes()
    piece.unlink()
    piece.mkdir() if damage == "folder" else piece.write_bytes(whole[: len(whole) // 2 if damage == "half" else 0])
    with pytest.raises(BadFile, match=r"00000001\.arrow: cannot be read: .*delete it and run this again"):
        made(tmp_path)
    piece.rmdir() if damage == "folder" else piece.unlink()
    made(tmp_path)
    assert values(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_any_damage_of_a_table_is_refused_or_harmless(tmp_path: Path) -> None:
    made(tmp_path)
    file = tmp_path / "numbers.arrow"
    whole, refused = file.read_bytes(), 0
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        try:
            assert made(tmp_path) == Made(3, 0, 0)
        except BadFile:
            refused += 1
    assert refused > len(whole) // 10


@pytest.mark.parametrize("shards", [1, 2])
def test_a_table_without_its_manifest_is_refused(tmp_path: Path, shards: int) -> None:
    made(tmp_path, 1, shards)
    (tmp_path / "numbers.json").rename(tmp_path / "kept")
    before = names(tmp_path)
    for factor in (1, 2):
        with pytest.raises(UnrankError, match=r"holds numbers without the numbers\.json that says .*: put it back, or"):
            made(tmp_path, factor=factor)
    assert names(tmp_path) == before
    (tmp_path / "kept").rename(tmp_path / "numbers.json")
    made(tmp_path)
    assert values(tmp_path) == [0, 1, 2, 3, 4, 5]


def test_a_table_with_the_manifest_of_another_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "other", factor=2)
    made(tmp_path / "out")
    (tmp_path / "other" / "numbers.json").replace(tmp_path / "out" / "numbers.json")
    with pytest.raises(BadFile, match=r"numbers\.arrow: not made as numbers\.json says; move it elsewhere"):
        made(tmp_path / "out", factor=2)
    (tmp_path / "out" / "numbers.json").write_text("[]")
    with pytest.raises(BadFile, match=r"numbers\.json: damaged: not a JSON object; choose another folder"):
        made(tmp_path / "out")


def test_workers_of_one_shard_may_meet(tmp_path: Path) -> None:
    """A worker whose pieces another made and joined meanwhile ends as if it had found them."""
    met: list[Made] = []
    assert made(tmp_path, meanwhile=lambda: met.append(made(tmp_path))) == Made(3, 0, 0)
    assert met == [Made(3, 3, 0)], "nothing is made for a table that is whole"
    assert values(tmp_path) == [0, 1, 2, 3, 4, 5]
    assert names(tmp_path) == {"numbers.arrow", "numbers.json"}
