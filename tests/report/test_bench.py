"""What a bench shows: every method that was run, the paper's numbers, what is best, and what is more than chance."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from tests.report.made import SETS, write_bench, write_cell
from unrank.errors import UnrankError, count
from unrank.report.agreement_tables import agreement_table, kept_table
from unrank.report.bench_figures import mean_radars, radars_of, rank_changes, set_bars, times
from unrank.report.bench_folder import read_bench
from unrank.report.bench_tables import (
    DISTANCE,
    GAP,
    RECOVERED_OVER,
    detail_tables,
    making_tables,
    paper_table,
    shared_table,
    summary_table,
)
from unrank.report.cell import Bench
from unrank.report.compare import differs, noise
from unrank.report.paper import the_paper
from unrank.report.table import to_csv, to_markdown
from unrank.report.write import read_page, write_figures, write_tables


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return read_bench(write_bench(tmp_path_factory.mktemp("bench") / "bench"))


def test_a_new_method_appears_everywhere_by_itself(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "sleight-of-hand"])
    page, tables = read_page(folder)
    assert all("sleight-of-hand" in to_markdown(table) for table in tables if table.name != "paper")
    named = [drawing for drawing in page.drawings if "sleight-of-hand" in drawing.description]
    kinds = {drawing.name.split("-")[0] for drawing in named}
    assert kinds == {"tradeoff", "time", "radar", "curves", "rank"}


def test_a_cell_is_measured_by_the_retrained_ranker_of_its_own_setting_and_seed(bench: Bench) -> None:
    for cell in bench.cells:
        twin = next(c for c in bench.cells if c.is_retrained and c.setting == cell.setting and c.seed == cell.seed)
        assert cell.retrained is twin.record
        assert cell.kept("test") == cell.record.after["test"].mrr / cell.record.before["test"].mrr
        assert cell.kept_of_retrain("test") == cell.record.after["test"].mrr / twin.record.after["test"].mrr
        assert cell.time == cell.record.seconds / twin.record.seconds


def test_the_original_is_a_mean_over_seeds_however_much_was_done_to_each(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["other"], ["bi-encoder"], [0.25])
    for cell in sorted((folder / "cells").iterdir()):
        value, made = (json.loads((cell / name).read_text()) for name in ("cell.json", "unrank.json"))
        made["before"]["forget"]["mrr"] = 0.9 if value["seed"] else 0.8
        (cell / "unrank.json").write_text(json.dumps(made))
        if value["seed"] and value["method"] != "retrain":
            shutil.rmtree(cell)
    bench = read_bench(folder)
    assert [cell.seed for cell in bench.originals(bench.settings[0])] == [0, 1]
    assert len(bench.originals()) == 2 * len(bench.settings)
    row = next(row for table in detail_tables(bench) for row in table.rows if row[2].text == "original")
    assert (row[3].text, row[5].text) == ("2", "0.850")


def test_the_best_is_marked_and_retrain_is_no_rival(bench: Bench) -> None:
    table = summary_table(bench)
    assert [row[0].text for row in table.rows] == ["retrain", "cocol", "finetune", "ssd"]
    assert not any(value.best for value in table.rows[0])
    best = {table.head[column] for row in table.rows[1:] for column, value in enumerate(row) if value.best}
    assert best == {GAP, DISTANCE, "E kept", "D kept", "T kept", "time / retrain"}
    distances = {row[0].text: row[4].number for row in table.rows if row[0].text != "retrain"}
    assert [row[0].text for row in table.rows if row[4].best] == [min(distances, key=lambda name: distances[name] or 1)]


def test_a_difference_is_marked_where_the_paired_interval_leaves_out_zero(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").iterdir():
        method = json.loads((path / "cell.json").read_text())["method"]
        worse = [2] * 30 + [1] * 10 if method == "cocol" else [1] * 40
        mixed = [1, 2] * 20 if method == "cocol" else [2, 1] * 20
        ranks = {name: {"before": [1] * 40, "after": worse if name == "test" else mixed} for name in SETS}
        (path / "ranks.json").write_text(json.dumps(ranks | {"entangled": None}))
    made = read_bench(folder)
    (cell, *_) = made.of("cocol")
    assert differs([cell], "test")
    assert not differs([cell], "forget")
    assert not differs([cell], "entangled")
    assert not differs(made.of("retrain"), "test")
    marks = [row["differs from retrain"] for row in csv.DictReader(io.StringIO(to_csv(detail_tables(made)[0])))]
    assert marks == ["", "", "T"]


def test_what_comes_back_is_compared_with_what_comes_back_to_retrain(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "ssd"], ["one"], ["bi-encoder"], [0.25], [0])
    back = {"retrain": 0.7, "cocol": 0.65, "ssd": None}
    for path in (folder / "cells").iterdir():
        made = json.loads((path / "unrank.json").read_text())
        if (after := back[made["method"]]) is not None:
            made["recovery"] = {"before": 0.6, "after": after}
        (path / "unrank.json").write_text(json.dumps(made))
    bench = read_bench(folder)
    summary, detail = summary_table(bench), detail_tables(bench)[0]
    over = {row[0].text: row[summary.head.index(RECOVERED_OVER)].text for row in summary.rows}
    assert over == {"retrain": "+0.000", "cocol": "-0.050", "ssd": ""}
    shown = {row[2].text: row[detail.head.index("recovered")].text for row in detail.rows}
    assert shown == {"original": "", "retrain": "0.700", "cocol": "0.650", "ssd": ""}
    assert all(len(row) == len(detail.head) for row in detail.rows)


def test_a_rank_of_nothing_counts_nothing(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").iterdir():
        ranks = {name: {"before": [1, 1, 1], "after": [1, 4, 0]} for name in SETS}
        (path / "ranks.json").write_text(json.dumps(ranks))
    assert np.array_equal(read_bench(folder).cells[0].ranks["forget"].reciprocal, [1.0, 0.25, 0.0])


def test_the_noise_is_what_two_seeds_of_retrain_differ_by(bench: Bench, tmp_path: Path) -> None:
    settings = bench.settings
    apart = [
        abs(a.record.after["test"].mrr - b.record.after["test"].mrr)
        for a, b in (bench.of("retrain", s) for s in settings)
    ]
    assert noise(bench)["test"] == pytest.approx(sum(apart) / len(apart))
    assert f"test {noise(bench)['test']:.3f}" in detail_tables(bench)[0].note
    lonely = read_bench(write_bench(tmp_path / "one", ["retrain", "cocol"], seeds=[0]))
    assert noise(lonely) == {}
    assert "not known" in detail_tables(lonely)[0].note


def test_a_difference_within_the_noise_of_retraining_is_marked(bench: Bench, tmp_path: Path) -> None:
    floor = noise(bench)
    for table in detail_tables(bench):
        for ranker, share, method, _, _, *mrrs in (row[:9] for row in table.rows):
            retrained = next(
                r[5:9] for r in table.rows if [v.text for v in r[:3]] == [ranker.text, share.text, "retrain"]
            )
            for name, ours, theirs in zip(SETS, mrrs, retrained, strict=True):
                assert ours.number is not None and theirs.number is not None
                rival = method.text not in ("original", "retrain")
                assert ours.in_noise == (rival and abs(ours.number - theirs.number) < floor[name])
    rows = {row[0].text: row for row in summary_table(bench).rows}
    for row, name in ((row, name) for row in rows if row != "retrain" for name in SETS[1:]):
        lost: dict[object, list[float]] = defaultdict(list)
        for cell in bench.of(row):
            lost[cell.setting].append(cell.record.after[name].mrr - cell.record.before[name].mrr)
        apart = fmean(abs(fmean(seeds)) for seeds in lost.values())
        assert rows[row][3 + 2 * SETS.index(name)].in_noise == (apart < floor[name])
    lonely = read_bench(write_bench(tmp_path / "one", ["retrain", "cocol"], seeds=[0]))
    tables = [summary_table(lonely), *detail_tables(lonely)]
    assert not any(value.in_noise for table in tables for row in table.rows for value in row)


def test_the_papers_numbers_stand_beside_ours(bench: Bench) -> None:
    cell = next(
        c for c in bench.of("cocol") if str(c.setting) == "trec-car-little, bi-encoder, 25% of pairs by documents"
    )
    printed = the_paper().printed(cell)
    assert printed is not None
    table = next(table for table in detail_tables(bench) if table.name == "trec-car-little-documents")
    row = next(r for r in table.rows if [v.text for v in r[:3]] == ["bi-encoder", "25%", "cocol"])
    assert [value.number for value in row[-4:]] == [printed[name] for name in SETS]
    other = next(table for table in detail_tables(bench) if table.name == "other-documents")
    assert all(value.text == "" for row in other.rows for value in row[-4:])


def test_ours_and_the_papers_means_are_over_the_same_cells(bench: Bench) -> None:
    table, paper = paper_table(bench), the_paper()
    assert table is not None
    ours, theirs = (dict(zip(table.head, row, strict=True)) for row in table.rows if row[0].text == "cocol")
    cells = [cell for cell in bench.of("cocol") if cell.setting.collection == "trec-car-little"]
    assert ours["whose"].text == "ours"
    assert theirs["whose"].text == "the paper's"
    assert ours["cells"].number == theirs["cells"].number == len(cells) == 16
    assert ours["T kept"].number == fmean(cell.kept_of_retrain("test") or 0 for cell in cells)
    printed = [paper.kept(cell)["test"] for cell in cells]
    assert (theirs["T kept"].number, theirs["T least"].number) == (fmean(printed), min(printed))
    assert theirs[DISTANCE].number == fmean(paper.distance(cell) or 0 for cell in cells)
    assert paper_table(Bench([cell for cell in bench.cells if cell.setting.collection == "other"])) is None


def test_the_least_that_a_cell_kept_of_a_set_with_queries_enough(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.05, 0.15, 0.25], [0])
    after = {0.05: (0.30, 49), 0.15: (0.45, 50), 0.25: (0.54, 60)}
    for path in (folder / "cells").iterdir():
        value, record = (json.loads((path / name).read_text()) for name in ("cell.json", "unrank.json"))
        mrr, queries = after[value["share"]]
        record["after"]["test"] |= {"mrr": 0.6 if value["method"] == "retrain" else mrr, "queries": queries}
        (path / "unrank.json").write_text(json.dumps(record))
    table = summary_table(read_bench(folder))
    (row,) = [dict(zip(table.head, row, strict=True)) for row in table.rows if row[0].text == "cocol"]
    assert (row["T kept"].text, row["T least"].text) == ("0.717", "0.750")
    assert row["E least"].text == "", "40 queries are too few"


def test_methods_are_compared_where_all_were_run(tmp_path: Path) -> None:
    """In two settings neggrad was not run: no mean over them is shown beside its own."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one", "two"], ["bi-encoder"], [0.25], [0])
    assert shared_table(read_bench(folder)) is None
    for number, removal in enumerate(("documents", "queries")):
        key = ("one", "bi-encoder", removal, 0.25, "neggrad", 0)
        write_cell(folder / "cells" / f"more{number}", key, random.Random(1))
    bench = read_bench(folder)
    table = shared_table(bench)
    assert table is not None
    assert "the 2 of 4 combinations of setting and seed in which all were run" in table.caption
    assert {row[1].text for row in table.rows} == {"2"}
    assert any(value.best for row in table.rows for value in row)
    assert not any(value.best for row in summary_table(bench).rows for value in row)
    cocol = fmean(cell.record.after["test"].mrr for cell in bench.of("cocol", bench.settings[0]))
    (radar,) = mean_radars(bench)
    assert f"test, documents {cocol:.3f}" in radar.description.partition("cocol")[2].partition("neggrad")[0]
    first = [rank == 1 for cell in bench.common.of("cocol") for rank in cell.ranks["forget"].after]
    assert f"cocol: 1 {fmean(first):.1%}" in rank_changes(bench).description


def test_a_radar_has_no_corner_for_what_nobody_was_asked_for(bench: Bench) -> None:
    (both, *_) = mean_radars(bench)
    (one, *_) = mean_radars(Bench([cell for cell in bench.cells if cell.setting.removal == "documents"]))
    assert "test, queries" in both.description
    assert "queries" not in one.description
    assert "none" not in one.description


def test_what_a_killed_run_left_half_written_is_no_cell(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    half = folder / "cells" / ".0000.partial-x"
    half.mkdir()
    (half / "cell.json").write_text((folder / "cells" / "0000" / "cell.json").read_text())
    assert len(read_bench(folder).cells) == 4


def test_the_papers_radar_stands_beside_ours(tmp_path: Path) -> None:
    page, _ = read_page(write_bench(tmp_path / "bench", seeds=[0]))
    names = [drawing.name for drawing in page.drawings]
    assert names.index("paper-radar-25") == names.index("radar-25") + 1
    page, _ = read_page(write_bench(tmp_path / "own", collections=["own"], seeds=[0]))
    assert not [drawing.name for drawing in page.drawings if "paper" in drawing.name]


def test_the_papers_data_are_whole() -> None:
    paper = the_paper()
    assert len(paper.rows) == 336
    cocol = [mrrs for (_, method), mrrs in paper.rows.items() if method == "cocol"]
    retrained = [paper.rows[setting, "retrain"] for setting, method in paper.rows if method == "cocol"]
    pairs = list(zip(cocol, retrained, strict=True))
    assert len(pairs) == 48
    assert sum(abs(ours["forget"] - theirs["test"]) for ours, theirs in pairs) / 48 == pytest.approx(0.009, abs=0.001)
    for name, share in (("entangled", 0.975), ("disjoint", 0.979), ("test", 0.970)):
        assert sum(ours[name] / theirs[name] for ours, theirs in pairs) / 48 == pytest.approx(share, abs=0.001)


def test_the_paper_stands_beside_its_own_method_and_destination_alone(bench: Bench) -> None:
    (cell, *_) = [c for c in bench.of("cocol") if c.setting.collection == "trec-car-little"]
    paper = the_paper()
    assert paper.printed(cell) == paper.printed(replace(cell, label="cocol:paper")) is not None
    assert paper.printed(replace(cell, target="destination-3")) is None
    assert paper.printed(replace(cell, label="cocol,held=4")) is None


def test_several_destinations_are_several_rows(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").glob("*/cell.json"):
        value = json.loads(path.read_text())
        if value["method"] == "finetune":
            path.write_text(json.dumps(value | {"label": "cocol", "target": "destination-3"}))
    bench = read_bench(folder)
    assert bench.series == ["retrain", "cocol → destination-2", "cocol → destination-3"]
    rows = {row[0].text: row for row in summary_table(bench).rows}
    assert rows["cocol → destination-3"][4].text == "", "it does not aim at T(retrain)"
    assert rows["cocol → destination-2"][4].text != ""
    tables = [summary_table(bench), *detail_tables(bench)]
    assert not any(value.best for table in tables for row in table.rows for value in row), "they are no rivals"
    (cell,) = bench.of("cocol → destination-3", bench.settings[0])
    assert cell.missed == cell.record.gap != cell.distance
    assert f"forget, documents {1 - (cell.record.gap or 0):.3f}" in mean_radars(bench)[0].description
    assert "2 methods" in read_page(folder)[0].kind


@pytest.mark.slow
def test_every_figure_and_table_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Also where two collections differ in nothing but what a file's name cannot hold."""
    alike = ["one/two", "one-two", "One two"]
    page, tables = read_page(write_bench(tmp_path / "bench", ["retrain", "cocol"], alike, ["bi-encoder"], [0.25], [0]))
    names = [drawing.name for drawing in page.drawings]
    assert len(names) == len(set(names))
    write_figures(page.drawings[:1], tmp_path / "figures")
    write_tables(tables, tmp_path / "tables")
    assert len(list((tmp_path / "tables").iterdir())) == 3 * len(tables)


def test_a_cell_without_a_retrained_ranker_is_still_shown(tmp_path: Path) -> None:
    page, tables = read_page(write_bench(tmp_path / "bench", ["cocol"], ["one"], ["bi-encoder"], [0.25], [0]))
    assert page.verdict.startswith("cocol: target reached in 2 of 2 cells, 0.")
    assert "best" not in page.verdict + page.lead, "it was compared with no other method"
    shown = dict(zip(tables[0].head, tables[0].rows[0], strict=True))
    assert shown["T kept"].text != shown[DISTANCE].text == ""
    assert "and so only in |F\u00a0−\u00a0δ| and in what is kept: 2 cells." in tables[0].note
    assert "agreement" not in {table.name for table in tables}, "there is nothing to agree with"


@pytest.mark.parametrize("crowded", ["retrain", "cocol"])
def test_what_shared_the_machine_has_no_time(tmp_path: Path, crowded: str) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    assert all(cell.time is not None for cell in read_bench(folder).of("cocol"))
    for path in (folder / "cells").glob("*/cell.json"):
        value = json.loads(path.read_text())
        path.write_text(json.dumps(value | {"jobs": 2 if value["method"] == crowded else 1}))
    assert all(cell.time is None for cell in read_bench(folder).of("cocol"))
    page, _ = read_page(folder)
    assert "of what retraining takes" not in str(page)
    cells = making_tables(read_bench(folder))[-1]
    assert {row[2].text for row in cells.rows if row[4].text == ""} == {crowded}


def test_who_hits_the_target_and_wrecks_the_rest_did_not_do_best(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "neggrad"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").glob("*/unrank.json"):
        record = json.loads(path.read_text())
        if record["method"] == "neggrad":
            for name, value in {"forget": record["target"], "entangled": 0.3, "disjoint": 0.3, "test": 0.3}.items():
                record["after"][name]["mrr"] = value
            path.write_text(json.dumps(record))
    page, _ = read_page(folder)
    assert page.verdict.startswith("cocol did best: target reached in 2 of 2 cells, 0.")
    assert "neggrad (reached in 2 of 2 cells, 0.000 away on average, 3" in page.lead
    alone, _ = read_page(write_bench(tmp_path / "ssd", ["retrain", "ssd"], ["one"], ["bi-encoder"], [0.25], [0]))
    assert alone.verdict == "No method with a target was run."


def test_of_two_that_did_alike_the_faster_did_best(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").glob("*/unrank.json"):
        record = json.loads(path.read_text())
        if record["method"] != "retrain":
            for name in SETS:
                record["after"][name]["mrr"] = record["target"] if name == "forget" else record["before"][name]["mrr"]
            record["seconds"] = {"cocol": 9.0, "finetune": 8.0}[record["method"]]
            path.write_text(json.dumps(record))
    page, _ = read_page(folder)
    assert page.verdict.startswith("finetune did best: ")


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (
            {"documents", "queries"},
            "In the 2 cells of each that all methods with this target have in common, the others",
        ),
        ({"documents"}, "In the 1 cell of each that all methods with this target have in common, the others"),
        (set[str](), ""),
    ],
)
def test_methods_are_ranked_where_they_can_be_compared(tmp_path: Path, kept: set[str], said: str) -> None:
    """NegGrad is run in some of the settings of the others; its figure and cocol's are over those."""
    methods = ["retrain", "cocol", "neggrad"]
    folder = write_bench(tmp_path / "bench", methods, ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").glob("*/cell.json"):
        cell = json.loads(path.read_text())
        if cell["method"] == "neggrad" and cell["removal"] not in kept:
            shutil.rmtree(path.parent)
    page, _ = read_page(folder)
    assert page.lead.startswith(said) and bool(page.lead) is bool(said)
    assert f"in {max(len(kept), 2 - len(kept))} of {count(max(len(kept), 2 - len(kept)), 'cell')}" in page.verdict


def test_cells_that_would_be_taken_for_one_are_refused(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    for path in (folder / "cells").glob("*/cell.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 0}))
    with pytest.raises(UnrankError, match=r"cells 000\d and 000\d are both \w+ on one, bi-encoder"):
        read_bench(folder)


@pytest.mark.parametrize("key", ["fingerprint", "base_sha256", "training", "removal_seed", "reserve"])
def test_cells_that_differ_in_more_than_their_seed_are_not_averaged(tmp_path: Path, key: str) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    for path in (folder / "cells").glob("*/cell.json"):
        value = json.loads(path.read_text())
        if value["seed"]:
            path.write_text(json.dumps(value | {key: "another"}))
    with pytest.raises(UnrankError, match=rf"are both on one, bi-encoder.* but differ in {key}: report them apart"):
        read_bench(folder)


def test_to_measure_a_query_again_makes_no_difference_more_certain(bench: Bench) -> None:
    """The same ranks under three seeds tell no more than under one."""
    cells = [cell for cell in bench.of("cocol") if cell.seed == 0]
    for cell, name in ((cell, name) for cell in cells for name in SETS):
        assert differs([cell] * 3, name) == differs([cell], name)


def test_a_gain_does_not_make_up_for_a_loss(tmp_path: Path) -> None:
    """One ranker loses .3 of T where the other gains .3: that is no noise. And who was hardly run is no rival."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], shares=[0.25])
    for path in (folder / "cells").glob("*/unrank.json"):
        record = json.loads(path.read_text())
        if record["method"] == "cocol":
            record["after"]["test"]["mrr"] = 0.9 if record["ranker"] == "bi-encoder" else 0.3
            path.write_text(json.dumps(record))
    (row,) = [row for row in summary_table(read_bench(folder)).rows if row[0].text == "cocol"]
    assert not row[9].in_noise
    write_cell(folder / "cells" / "alone", ("one", "bi-encoder", "documents", 0.25, "neggrad", 0), random.Random(1))
    rows = {row[0].text: row for row in summary_table(read_bench(folder)).rows}
    assert not any(value.best for value in rows["neggrad"])
    assert not any(value.best for value in rows["cocol"]), "one alone is not the best"


def test_the_papers_collections_are_known_by_their_names(bench: Bench) -> None:
    cell = next(c for c in bench.of("cocol") if c.setting.collection == "trec-car-little" and c.setting.share == 0.25)

    def printed(name: str) -> object:
        return the_paper().printed(replace(cell, setting=replace(cell.setting, collection=name)))

    assert printed("car/v1.5/train/fold0") == printed("trec-car-test200") is not None
    assert printed("msmarco-passage/train/judged") == printed("msmarco-passage-mini") is not None
    assert printed("msmarco-document-v2") is printed("carbon") is None


def test_cells_of_other_queries_are_not_compared(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    first = folder / "cells" / "0000" / "ranks.json"
    first.write_text(json.dumps({"forget": {"before": [1], "after": [1]}}))
    with pytest.raises(UnrankError, match="measured on different queries"):
        read_bench(folder)


def change_records(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Change the record of every cell of a bench."""
    for path in (folder / "cells").glob("*/unrank.json"):
        record = json.loads(path.read_text())
        change(record)
        path.write_text(json.dumps(record))
    return folder


def test_no_method_did_best_if_none_reached_its_target(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])
    change_records(folder, lambda record: record.update(reached=False) if record["reached"] else None)
    page, tables = read_page(folder)
    assert page.verdict == "No method reached its target."
    assert "cocol (reached in 0 of 2 cells, 0." in page.lead
    assert "did best" not in page.verdict + page.lead and page.cards == []
    assert not any(value.best for table in tables for row in table.rows for value in row)


def test_one_method_is_not_called_the_best_of_one(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    change_records(folder, lambda record: record.update(reached=False) if record["reached"] else None)
    assert read_page(folder)[0].verdict.startswith("cocol: target reached in 0 of 2 cells")


@pytest.mark.parametrize("method", ["finetune", "ssd"])
def test_a_method_that_changed_nothing_is_not_marked_best(tmp_path: Path, method: str) -> None:
    """It keeps everything and takes no time; with a target (already met) or without one."""
    methods = ["retrain", "cocol", "neggrad", method]
    folder = write_bench(tmp_path / "bench", methods, ["one"], ["bi-encoder"], [0.25], [0])

    def change(record: dict[str, Any]) -> None:
        if record["method"] == method:
            record |= {"after": record["before"], "seconds": 0.1}

    change_records(folder, change)
    for table in (table for table in read_page(folder)[1] if table.name not in ("kept", "agreement")):
        rows = {next(value.text for value in row if value.text in (*methods, "original")): row for row in table.rows}
        assert not any(value.best for value in rows[method])
        assert any(value.best for value in rows["cocol"])


def test_destinations_are_not_ranked_with_each_other(tmp_path: Path) -> None:
    """To destination-3 cocol misses by less than any method to destination-2; that makes it no better."""
    methods = ["retrain", "cocol", "neggrad", "finetune"]
    folder = write_bench(tmp_path / "bench", methods, ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").glob("*/cell.json"):
        value, record = json.loads(path.read_text()), json.loads(path.with_name("unrank.json").read_text())
        if value["method"] == "finetune":
            path.write_text(json.dumps(value | {"label": "cocol", "target": "destination-3"}))
            record["after"] = record["before"] | {"forget": record["after"]["forget"] | {"mrr": record["target"]}}
            path.with_name("unrank.json").write_text(json.dumps(record))
    page, _ = read_page(folder)
    assert page.verdict == "2 destinations, each compared by itself."
    assert "To destination-2: cocol did best: target reached in 2 of 2 cells" in page.lead
    assert "To destination-3: cocol: target reached in 2 of 2 cells, 0.000 away" in page.lead
    assert [(card.label, card.figure) for card in page.cards] == [
        ("destination-2", "cocol"),
        ("destination-3", "cocol"),
    ]


def test_unequal_numbers_of_seeds_are_named_and_not_compared(tmp_path: Path) -> None:
    """Cocol has two seeds and neggrad one: every mean over seeds says of how many, and none is marked best."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "neggrad"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    equal = read_bench(folder)
    for path in (folder / "cells").glob("*/cell.json"):
        value = json.loads(path.read_text())
        if value["method"] == "neggrad" and value["seed"]:
            shutil.rmtree(path.parent)
    bench, setting = read_bench(folder), equal.settings[0]
    for table in detail_tables(bench):
        assert [row[table.head.index("seeds")].text for row in table.rows] == ["2", "2", "2", "1"]
        assert not any(value.best for row in table.rows for value in row)
    assert "cocol, 2 seeds: forget" in set_bars(bench, setting).description
    assert "neggrad, 1 seed: forget" in set_bars(bench, setting).description
    assert "cocol: forget" in set_bars(equal, setting).description
    clock, same = times(bench), times(equal)
    assert clock is not None and same is not None
    assert "cocol, 4 cells " in clock.description and "neggrad, 2 cells " in clock.description
    assert "cocol 0." in same.description
    common = shared_table(bench)
    assert common is not None and {row[1].text for row in common.rows} == {"2"}
    first = [cell.record.after["test"].mrr for cell in bench.of("cocol", setting) if cell.seed == 0]
    assert f"test, {setting.removal} {first[0]:.3f}" in radars_of(bench)[0].description.partition("cocol")[2]
    assert "reached in 2 of 2 cells" in read_page(folder)[0].verdict


def test_what_is_kept_has_a_row_for_doing_nothing(bench: Bench) -> None:
    """Shares of the original's and of retrain's, each with a paired interval around it."""
    table = kept_table(bench)
    rows = {row[0].text: dict(zip(table.head, row, strict=True)) for row in table.rows}
    assert [*rows] == ["nothing (the original)", "retrain", "cocol", "finetune", "ssd"]
    nothing, retrained = rows["nothing (the original)"], rows["retrain"]
    originals = [c for c in bench.cells if c.is_retrained]
    theirs = [fmean(c.ranks["test"].reciprocal) for c in originals]
    assert nothing["T of original's"].number == retrained["T of retrain's"].number == 1
    assert nothing["T of retrain's"].number == pytest.approx(fmean(1 / mrr for mrr in theirs))
    assert retrained["T of original's"].number == pytest.approx(fmean(theirs))
    assert nothing["T of original's, 95 %"].text == "1.000 to 1.000"
    for row in rows.values():
        for letter in "EDT":
            for of in ("original's", "retrain's"):
                low, high = map(float, row[f"{letter} of {of}, 95 %"].text.split(" to "))
                assert low - 5e-4 <= (row[f"{letter} of {of}"].number or 0) <= high + 5e-4


def test_agreement_with_retrain_stands_beside_the_noise_and_doing_nothing(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    after = {("retrain", 0): [1, 2, 4, 1], ("retrain", 1): [1, 1, 4, 2], ("cocol", 0): [2, 1, 4, 1]}
    for path in (folder / "cells").iterdir():
        value = json.loads((path / "cell.json").read_text())
        key = (value["method"], value["seed"])
        if key not in after or value["removal"] != "queries":
            shutil.rmtree(path)
            continue
        ranks = {name: {"before": [1, 1, 1, 1], "after": after[key]} for name in SETS}
        (path / "ranks.json").write_text(json.dumps(ranks))
    without = agreement_table(read_bench(folder))
    for path in (folder / "cells").iterdir():  # all lists alike, but those of the second seed
        second = json.loads((path / "cell.json").read_text())["seed"] == 1
        side = {"pair_scores": [0.5] * 5, "lists": [[1, 0] if second else [0, 1]] * 4}
        (path / "forget.json").write_text(json.dumps({"before": side, "after": side}))
    table = agreement_table(read_bench(folder))
    assert table is not None and without is not None
    rows = {row[0].text: dict(zip(table.head, row, strict=True)) for row in table.rows}
    assert [*rows] == ["retrain, two seeds", "nothing (the original)", "cocol"]
    noise, nothing, cocol = rows.values()
    assert (noise["distance"].number, cocol["distance"].number) == (0.25, 0.25)  # (.5 + .5) / 4 and (.5 + .5) / 4
    assert nothing["distance"].number == pytest.approx(fmean([0, 0.5, 0.75, 0])), "of the seed that cocol was run with"
    assert (cocol["/ noise"].text, nothing["/ noise"].text) == ("1.00", "1.25")
    assert nothing["correlation"].text == "", "the original finds everything, so nothing varies"
    assert cocol["correlation"].number == pytest.approx(np.corrcoef([0.5, 1, 0.25, 1], [1, 0.5, 0.25, 1])[0, 1])
    assert (cocol["overlap of lists"].text, noise["overlap of lists"].text) == ("1.000", "0.900")  # .1·0 + .9
    head = without.head.index("overlap of lists")
    assert {row[head].text for row in without.rows} == {""}, "cells of earlier versions keep no lists"


@pytest.mark.parametrize("value", [[], {"before": {}}, {"before": {}, "after": {"pair_scores": [], "lists": [[0]]}}])
def test_damaged_lists_are_named(tmp_path: Path, value: Any) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain"], ["one"], ["bi-encoder"], [0.25], [0])
    (folder / "cells" / "0000" / "forget.json").write_text(json.dumps(value))
    with pytest.raises(UnrankError, match=r"damaged cell: .*forget"):
        read_bench(folder)
