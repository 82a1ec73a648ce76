"""What a bench shows: every method that was run, the paper's numbers, what is best, and what is more than chance."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from tests.report.made import SETS, write_bench, write_cell
from unrank.errors import UnrankError, count
from unrank.record import Said
from unrank.report.agreement_tables import agreement_table, kept_table
from unrank.report.bench_cells import cells_section, cells_table
from unrank.report.bench_figures import mean_radars, radars_of, rank_changes, set_bars, times
from unrank.report.bench_folder import read_bench
from unrank.report.bench_page import headline
from unrank.report.bench_tables import (
    GAP,
    control_table,
    detail_tables,
    making_tables,
    removed_table,
)
from unrank.report.cell import Bench
from unrank.report.compare import noise
from unrank.report.control import control_words, where
from unrank.report.paper import the_paper
from unrank.report.paper_tables import DISTANCE, ablation_table, paper_details, paper_table
from unrank.report.primary import TWICE, Primary, margin_table, pairs_table, primary_table, said_by
from unrank.report.table import to_csv, to_markdown
from unrank.report.write import read_page, write_figures, write_tables


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return read_bench(write_bench(tmp_path_factory.mktemp("bench") / "bench"))


def test_a_new_method_appears_everywhere_by_itself(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "sleight-of-hand"])
    page, tables = read_page(folder)
    assert all("sleight-of-hand" in to_markdown(table) for table in tables if not table.name.startswith("paper"))
    named = [drawing for drawing in page.drawings if "sleight-of-hand" in drawing.description]
    kinds = {drawing.name.split("-")[0] for drawing in named}
    assert kinds == {"distance", "tradeoff", "time", "radar", "curves", "rank"}


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
        value = json.loads((cell / "cell.json").read_text())
        ranks = json.loads((cell / "ranks.json").read_text())
        ranks["forget"]["before"] = [1] * 40 if value["seed"] else [2] * 40
        (cell / "ranks.json").write_text(json.dumps(ranks))
        if value["seed"] and value["method"] != "retrain":
            shutil.rmtree(cell)
    bench = read_bench(folder)
    assert [cell.seed for cell in bench.originals(bench.settings[0])] == [0, 1]
    assert len(bench.originals()) == 2 * len(bench.settings)
    row = next(row for table in detail_tables(bench) for row in table.rows if row[2].text == "original")
    assert (row[3].text, row[5].number) == ("2", 0.75)


def test_the_best_is_marked_and_retrain_is_no_rival(bench: Bench) -> None:
    table = primary_table(Primary(bench))
    head = table.head.index("distance to retrain")
    for removal in ("documents", "queries"):
        rows = {row[0].text: row for row in table.rows if row[1].text == removal}
        assert [*rows] == [TWICE, "nothing (the original)", "cocol", "finetune", "ssd"]
        rivals = {name: rows[name][head].number or 1.0 for name in ("cocol", "finetune", "ssd")}
        assert [name for name, row in rows.items() if row[head].best] == [min(rivals, key=lambda name: rivals[name])]
    control = control_table(bench)
    assert control is not None
    rows = {row[0].text: row for row in control.rows}
    assert [*rows] == ["nothing (the original)", "cocol", "finetune"], "retrain and ssd have no target"
    assert [name for name, row in rows.items() if row[control.head.index(GAP)].best] == ["cocol"]


def test_a_difference_is_marked_where_the_paired_interval_leaves_out_zero(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").iterdir():
        method = json.loads((path / "cell.json").read_text())["method"]
        worse = [2] * 30 + [1] * 10 if method == "cocol" else [1] * 40
        mixed = [1, 2] * 20 if method == "cocol" else [2, 1] * 20
        ranks = {name: {"before": [1] * 40, "after": worse if name == "test" else mixed} for name in SETS}
        (path / "ranks.json").write_text(json.dumps(ranks | {"entangled": None}))
    made = read_bench(folder)
    marks = [row["differs from retrain"] for row in csv.DictReader(io.StringIO(to_csv(detail_tables(made)[0])))]
    assert marks == ["", "", "T"]


def test_what_comes_back_stands_beside_what_comes_back_to_retrain(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "ssd"], ["one"], ["bi-encoder"], [0.25], [0])
    back = {"retrain": 0.01, "cocol": 0.05, "ssd": None}
    for path in (folder / "cells").iterdir():
        made = json.loads((path / "unrank.json").read_text())
        if (by := back[made["method"]]) is not None:
            forgot = made["after"]["forget"]["mrr"]
            made["recovery"] = {"before": forgot, "after": forgot + by}
        (path / "unrank.json").write_text(json.dumps(made))
    bench = read_bench(folder)
    primary, detail = primary_table(Primary(bench)), detail_tables(bench)[0]
    found = {row[0].text: row[primary.head.index("comes back")].text for row in primary.rows}
    assert found == {"retrain": "+0.010", "nothing (the original)": "", "cocol": "+0.050", "ssd": ""}
    assert all(len(row) == len(detail.head) for row in detail.rows)
    assert all(len(row) == len(primary.head) for row in primary.rows)


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
                near = abs(ours.number - theirs.number)
                assert ours.in_noise == (rival and near < floor[name]) or near == pytest.approx(floor[name], abs=1e-9)
    lonely = read_bench(write_bench(tmp_path / "one", ["retrain", "cocol"], seeds=[0]))
    assert not any(value.in_noise for table in detail_tables(lonely) for row in table.rows for value in row)


def test_the_papers_numbers_stand_beside_ours(bench: Bench) -> None:
    cell = next(
        c for c in bench.of("cocol") if str(c.setting) == "trec-car-little, bi-encoder, 25% of pairs by documents"
    )
    printed = the_paper().printed(cell)
    assert printed is not None
    table = paper_details(bench)
    assert table is not None
    wanted = ["trec-car-little", "bi-encoder", "documents", "25%", "cocol"]
    (row,) = [row for row in table.rows if [value.text for value in row[:5]] == wanted]
    assert [value.number for value in row[10:14]] == [printed[name] for name in SETS]
    for ours, theirs, apart in zip(row[6:10], row[10:14], row[14:], strict=True):
        assert (ours.number or 0) - (theirs.number or 0) == pytest.approx(apart.number)
    assert {row[0].text for row in table.rows} == {"trec-car-little"}


def test_the_papers_measure_counts_to_its_depths(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["trec-car-x"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").iterdir():
        sides = {"before": [1] * 4, "after": [1, 10, 11, 101]}
        (path / "ranks.json").write_text(json.dumps(dict.fromkeys(SETS, sides) | {"forget_full": sides}))
    table = paper_details(read_bench(folder))
    assert table is not None
    kept, forget = (1 + 0.1) / 4, (1 + 0.1 + 1 / 11) / 4
    for row in table.rows:
        assert [value.number for value in row[6:10]] == pytest.approx([forget, kept, kept, kept])


def test_ours_and_the_papers_means_are_over_the_same_cells(bench: Bench) -> None:
    table, paper = paper_table(bench), the_paper()
    assert table is not None
    ours, theirs, apart = (dict(zip(table.head, row, strict=True)) for row in table.rows if row[0].text == "cocol")
    cells = [cell for cell in bench.of("cocol") if cell.setting.collection == "trec-car-little"]
    assert [row["whose"].text for row in (ours, theirs, apart)] == ["ours", "the paper's", "ours less the paper's"]
    assert ours["cells"].number == theirs["cells"].number == len(cells) == 16
    assert ours["T kept"].number == pytest.approx(fmean(cell.kept_of_retrain("test") or 0 for cell in cells))
    assert theirs["T kept"].number == pytest.approx(fmean(paper.kept(cell)["test"] for cell in cells))
    assert theirs[DISTANCE].number == pytest.approx(fmean(paper.distance(cell) or 0 for cell in cells))
    assert apart["T kept"].number == pytest.approx((ours["T kept"].number or 0) - (theirs["T kept"].number or 0))
    assert table.rows[0][0].text == "nothing (the original)"
    assert paper_table(Bench([cell for cell in bench.cells if cell.setting.collection == "other"])) is None


def test_the_ablation_says_where_it_departs_from_the_papers(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])
    assert ablation_table(read_bench(folder)) is None
    for path in (folder / "cells").iterdir():
        value, record = (json.loads((path / name).read_text()) for name in ("cell.json", "unrank.json"))
        if value["method"] == "finetune":
            named = {"method": "cocol", "label": "cocol,without_disjoint=true"}
            (path / "cell.json").write_text(json.dumps(value | named))
            record["after"]["disjoint"]["mrr"] = 0.4
            record["after"]["entangled"]["mrr"], record["after"]["test"]["mrr"] = 0.93, 0.6
            (path / "unrank.json").write_text(json.dumps(record))
    table = ablation_table(read_bench(folder))
    assert table is not None
    rows = [dict(zip(table.head, row, strict=True)) for row in table.rows]
    assert [row["left out"].text for row in rows] == ["disjoint", "disjoint"]
    assert all(row["the paper's finding"].text == "little changes" for row in rows)
    assert all("disjoint falls by 0.5" in row["ours"].text for row in rows)


def test_the_least_that_a_cell_kept_of_a_set_with_queries_enough(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.05, 0.15, 0.25], [0])
    after = {0.05: (0.30, 49), 0.15: (0.45, 50), 0.25: (0.54, 60)}
    for path in (folder / "cells").iterdir():
        value, record = (json.loads((path / name).read_text()) for name in ("cell.json", "unrank.json"))
        mrr, queries = after[value["share"]]
        record["after"]["test"] |= {"mrr": 0.6 if value["method"] == "retrain" else mrr, "queries": queries}
        (path / "unrank.json").write_text(json.dumps(record))
    table = kept_table(Primary(read_bench(folder)))
    (row,) = [dict(zip(table.head, row, strict=True)) for row in table.rows if row[0].text == "cocol"]
    assert row["T least"].text == "0.750"
    assert row["E least"].text == "", "40 queries are too few"


def test_methods_are_compared_where_all_were_run(tmp_path: Path) -> None:
    """In two settings neggrad was not run: no mean over them is shown beside its own."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one", "two"], ["bi-encoder"], [0.25], [0])
    assert primary_table(Primary(read_bench(folder))).comparable is None
    for number, removal in enumerate(("documents", "queries")):
        key = ("one", "bi-encoder", removal, 0.25, "neggrad", 0)
        write_cell(folder / "cells" / f"more{number}", key, random.Random(1))
    bench = read_bench(folder)
    table = primary_table(Primary(bench))
    assert {row[table.head.index("cells")].text for row in table.rows} == {"1"} and table.comparable is None
    cocol = fmean(cell.record.after["test"].mrr for cell in bench.of("cocol", bench.settings[0]))
    (radar,) = mean_radars(bench)
    assert f"test, documents {cocol:.3f}" in radar.description.partition("cocol")[2].partition("neggrad")[0]
    first = [rank == 1 for cell in bench.common.of("cocol") for rank in cell.ranks["forget"].after]
    assert f"cocol: 1 {fmean(first):.1%}" in rank_changes(bench).description


def test_rows_over_other_cells_come_last_and_say_so(tmp_path: Path) -> None:
    """Three methods share eight cells; one was run in a single cell."""
    methods = ["retrain", "cocol", "finetune", "neggrad"]
    folder = write_bench(tmp_path / "bench", methods, ["one"], ["bi-encoder", "parade"], [0.25], [0, 1])
    key = ("one", "bi-encoder", "documents", 0.25, "ssd", 0)
    write_cell(folder / "cells" / "more", key, random.Random(1))
    table = primary_table(Primary(read_bench(folder)))
    assert (table.comparable, [row[0].text for row in table.rows][-1], len(table.rows)) == (10, "ssd", 11)
    assert "Over other cells" in to_markdown(table)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [row["comparable"] for row in rows] == ["yes"] * 10 + ["no"]


def test_draws_are_averaged_and_widen_the_interval(tmp_path: Path) -> None:
    """Two draws of other queries: cocol is as retrain in one, and far from it in the other."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    for path in (folder / "cells").iterdir():
        value = json.loads((path / "cell.json").read_text())
        draw, size = value["seed"], 30 + 10 * value["seed"]
        after = [1] * size if value["method"] == "retrain" or not draw else [5] * size
        ranks = {name: {"before": [1] * size, "after": after} for name in SETS}
        (path / "ranks.json").write_text(json.dumps(ranks))
        (path / "cell.json").write_text(json.dumps(value | {"seed": 0, "removal_seed": draw}))
    bench = read_bench(folder)
    assert {cell.draw for cell in bench.cells} == {0, 1} and len(bench.settings) == 2
    table = primary_table(Primary(bench))
    (row, *_) = [dict(zip(table.head, row, strict=True)) for row in table.rows if row[0].text == "cocol"]
    distance = row["distance to retrain"]
    assert (row["cells"].text, row["forget queries"].text) == ("2", "70")
    ends = [distance.low, distance.number, distance.high]
    assert ends == pytest.approx([0.0, 0.4, 0.8]), "both draws, or one of them twice"


def test_the_primary_method_is_compared_with_every_other_by_holm(bench: Bench) -> None:
    found = Primary(bench)
    alone = pairs_table(found, Said(), None)
    table = pairs_table(found, Said("cocol"), Said("cocol"))
    assert alone is not None and table is not None
    assert [row[0].text for row in alone.rows] == ["cocol", "finetune", "ssd"]
    assert "No primary method was said beforehand" in alone.note
    pairs = [(row[0].text, row[1].text) for row in table.rows[3:]]
    assert pairs == [("cocol", "finetune"), ("cocol", "ssd")] and "said before the runs." in table.note
    for row in table.rows:
        difference, chance, nearer = row[3], row[4].number or 0, row[5].text
        assert 0.002 <= chance <= 1
        sure = chance <= 0.05
        assert nearer == (row[0 if (difference.number or 0) < 0 else 1].text if sure else "not shown")
        if sure:
            assert (difference.low or 0) * (difference.high or 0) > 0, "the interval leaves out 0"
    assert "Primary: cocol" not in (pairs_table(found, Said("neggrad"), None) or table).note


def test_retention_is_tested_against_the_margin(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").iterdir():
        method = json.loads((path / "cell.json").read_text())["method"]
        after = [2] * 20 + [1] * 380 if method == "cocol" else [1] * 400
        ranks = {name: {"before": [1] * 400, "after": after} for name in SETS}
        (path / "ranks.json").write_text(json.dumps(ranks))
    found = Primary(read_bench(folder))
    for margin, verdict in ((0.1, "not inferior"), (0.025, "undecided"), (0.005, "inferior")):
        table = margin_table(found, Said(margin=margin), Said(margin=margin))
        rows = {row[0].text: row for row in table.rows}
        assert rows["cocol"][-1].text == verdict
        assert rows["nothing (the original)"][-1].text == rows["finetune"][-1].text == "not inferior"
        assert rows["cocol"][2].number == pytest.approx(-0.025) and f"Margin: {margin:g}" in table.note


def test_what_was_said_beforehand_is_read_from_the_cells(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    assert said_by(read_bench(folder)) == (Said(), None)
    for path in (folder / "cells").glob("*/cell.json"):
        said = {"primary": "cocol", "margin": 0.02}
        path.write_text(json.dumps(json.loads(path.read_text()) | {"said": said}))
    bench = read_bench(folder)
    before = Said("cocol", 0.02)
    assert said_by(bench) == (before, before)
    assert said_by(bench, Said("finetune")) == (Said("finetune"), before)
    assert said_by(bench, Said(margin=0.1)) == (Said("cocol", 0.1), before), "the primary method stays"


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
            path.write_text(json.dumps(value | {"method": "cocol", "label": "cocol", "target": "destination-3"}))
    bench = read_bench(folder)
    assert bench.series == ["retrain", "cocol → destination-2", "cocol → destination-3"]
    rows = {row[2].text: row[9].text for row in detail_tables(bench)[0].rows}
    assert rows["cocol → destination-3"] == "", "it does not aim at T(retrain)"
    assert rows["cocol → destination-2"] != ""
    control = control_table(bench)
    assert control is not None
    tables = [control, *detail_tables(bench)]
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
    assert page.verdict == "No method is compared with retrain: no retrained ranker was run."
    assert "An MRR over imported lists is not a rank in production" in str(page.sections[0].content)
    shown = {row[0].text: dict(zip(tables[0].head, row, strict=True)) for row in tables[0].rows}["cocol"]
    assert shown["T kept"].text != shown["distance to retrain"].text == ""
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
    said = control_words(read_bench(folder))
    assert said.startswith("cocol did best: at δ or below, within the tolerance, in 2 of 2 cells, 0.")
    assert "neggrad (at δ or below, within the tolerance, in 2 of 2 cells, 0.000 away on average, 3" in said
    alone = read_bench(write_bench(tmp_path / "ssd", ["retrain", "ssd"], ["one"], ["bi-encoder"], [0.25], [0]))
    assert control_words(alone) == "No method with a target was run." and control_table(alone) is None


def test_of_two_that_did_alike_the_faster_did_best(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").glob("*/unrank.json"):
        record = json.loads(path.read_text())
        if record["method"] != "retrain":
            for name in SETS:
                record["after"][name]["mrr"] = record["target"] if name == "forget" else record["before"][name]["mrr"]
            record["seconds"] = {"cocol": 9.0, "finetune": 8.0}[record["method"]]
            path.write_text(json.dumps(record))
    assert control_words(read_bench(folder)).startswith("finetune did best: ")


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
    text = control_words(read_bench(folder))
    assert said in text and ("the others" in text) is bool(said)
    assert f"in {max(len(kept), 2 - len(kept))} of {count(max(len(kept), 2 - len(kept)), 'cell')}" in text


def test_cells_that_would_be_taken_for_one_are_refused(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    for path in (folder / "cells").glob("*/cell.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 0}))
    with pytest.raises(UnrankError, match=r"cells 000\d and 000\d are both \w+ on one, bi-encoder"):
        read_bench(folder)


@pytest.mark.parametrize("key", ["fingerprint", "base_sha256", "training", "reserve"])
def test_cells_that_differ_in_more_than_their_seed_are_not_averaged(tmp_path: Path, key: str) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    for path in (folder / "cells").glob("*/cell.json"):
        value = json.loads(path.read_text())
        if value["seed"]:
            path.write_text(json.dumps(value | {key: "another"}))
    with pytest.raises(UnrankError, match=rf"are both on one, bi-encoder.* but differ in {key}: report them apart"):
        read_bench(folder)


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
    bench = read_bench(folder)
    said, control = control_words(bench), control_table(bench)
    assert said.startswith("No method brought F to δ or below, within the tolerance.") and "did best" not in said
    assert "cocol (at δ or below, within the tolerance, in 0 of 2 cells, 0." in said
    assert control is not None
    assert [row[3].text for row in control.rows] == ["", *["none reached its target"] * 2]
    assert not any(value.best for table in (control, *detail_tables(bench)) for row in table.rows for value in row)


def test_one_method_is_not_called_the_best_of_one(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    change_records(folder, lambda record: record.update(reached=False) if record["reached"] else None)
    assert control_words(read_bench(folder)).startswith("cocol: at δ or below, within the tolerance, in 0 of 2 cells")


@pytest.mark.parametrize("method", ["finetune", "ssd"])
def test_a_method_that_changed_nothing_is_not_marked_best(tmp_path: Path, method: str) -> None:
    """It keeps everything and takes no time; with a target (already met) or without one."""
    methods = ["retrain", "cocol", "neggrad", method]
    folder = write_bench(tmp_path / "bench", methods, ["one"], ["bi-encoder"], [0.25], [0])

    def change(record: dict[str, Any]) -> None:
        if record["method"] == method:
            record |= {"after": record["before"], "seconds": 0.1}

    change_records(folder, change)
    bench = read_bench(folder)
    for table in detail_tables(bench):
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
            path.write_text(json.dumps(value | {"method": "cocol", "label": "cocol", "target": "destination-3"}))
            record["after"] = record["before"] | {"forget": record["after"]["forget"] | {"mrr": record["target"]}}
            path.with_name("unrank.json").write_text(json.dumps(record))
    said = control_words(read_bench(folder))
    assert "To destination-2: cocol did best: at δ or below, within the tolerance, in 2 of 2 cells" in said
    assert "To destination-3: cocol: at δ or below, within the tolerance, in 2 of 2 cells, 0.000 away" in said


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
        assert [row[table.head.index("cells")].text for row in table.rows] == ["2", "2", "2", "1"]
        assert not any(value.best for row in table.rows for value in row)
    assert "cocol, 2 seeds: forget" in set_bars(bench, setting).description
    assert "neggrad, 1 seed: forget" in set_bars(bench, setting).description
    assert "cocol: forget" in set_bars(equal, setting).description
    clock, same = times(bench), times(equal)
    assert clock is not None and same is not None
    assert "cocol, 4 cells " in clock.description and "neggrad, 2 cells " in clock.description
    assert "cocol 0." in same.description
    table = primary_table(Primary(bench))
    cells = {row[0].text: row[table.head.index("cells")].text for row in table.rows}
    assert cells == {TWICE: "2", "nothing (the original)": "1", "cocol": "1", "neggrad": "1"}
    first = [cell.record.after["test"].mrr for cell in bench.of("cocol", setting) if cell.seed == 0]
    assert f"test, {setting.removal} {first[0]:.3f}" in radars_of(bench)[0].description.partition("cocol")[2]
    assert "within the tolerance, in 2 of 2 cells" in control_words(bench)


def test_what_is_kept_has_a_row_for_doing_nothing(bench: Bench) -> None:
    """Shares of the original's and of retrain's, each with a paired interval around it."""
    table = kept_table(Primary(bench))
    rows = {row[0].text: dict(zip(table.head, row, strict=True)) for row in table.rows}
    assert [*rows] == ["retrain", "nothing (the original)", "cocol", "finetune", "ssd"]
    nothing, retrained = rows["nothing (the original)"], rows["retrain"]
    theirs = [
        fmean(fmean(cell.ranks["test"].reciprocal) for cell in bench.of("retrain", setting))
        for setting in bench.settings
    ]
    assert nothing["T of original's"].number == retrained["T of retrain's"].number == 1
    assert nothing["T of retrain's"].number == pytest.approx(fmean(1 / mrr for mrr in theirs))
    assert retrained["T of original's"].number == pytest.approx(fmean(theirs))
    assert nothing["T of original's"].text == "1.000 ± 0.000"
    for row in rows.values():
        for value in (row[f"{letter} of {of}"] for letter in "EDT" for of in ("original's", "retrain's")):
            assert (value.low or 0) - 5e-4 <= (value.number or 0) <= (value.high or 0) + 5e-4


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
    without = agreement_table(Primary(read_bench(folder)))
    for path in (folder / "cells").iterdir():  # all lists alike, but those of the second seed
        second = json.loads((path / "cell.json").read_text())["seed"] == 1
        side = {"pair_scores": [0.5] * 5, "lists": [[1, 0] if second else [0, 1]] * 4}
        (path / "forget.json").write_text(json.dumps({"before": side, "after": side}))
    found = Primary(read_bench(folder))
    table, primary = agreement_table(found), primary_table(found)
    assert table is not None and without is not None
    near = {row[0].text: dict(zip(primary.head, row, strict=True)) for row in primary.rows}
    assert [*near] == [TWICE, "nothing (the original)", "cocol"]
    noise, nothing, cocol = near.values()
    assert noise["distance to retrain"].number == 0.25  # (.5 + .5) / 4
    assert cocol["distance to retrain"].number == fmean([0.25, (0.5 + 0 + 0 + 0.5) / 4]), "of both seeds of retrain"
    assert nothing["distance to retrain"].number == fmean([fmean([0, 0.5, 0.75, 0]), fmean([0, 0, 0.75, 0.5])])
    assert (cocol["/ noise"].text, nothing["/ noise"].text) == ("1.00", "1.25")
    rows = {row[0].text: dict(zip(table.head, row, strict=True)) for row in table.rows}
    noise, nothing, cocol = rows.values()
    assert nothing["correlation"].text == "", "the original finds everything, so nothing varies"
    related = [np.corrcoef([0.5, 1, 0.25, 1], [1 / rank for rank in after["retrain", seed]])[0, 1] for seed in (0, 1)]
    assert cocol["correlation"].number == pytest.approx(fmean(related))
    assert cocol["overlap of lists"].number == pytest.approx(fmean([1.0, 0.9]))  # .1·0 + .9
    head = without.head.index("overlap of lists")
    assert {row[head].text for row in without.rows} == {""}, "cells of earlier versions keep no lists"


@pytest.mark.parametrize("value", [[], {"before": {}}, {"before": {}, "after": {"pair_scores": [], "lists": [[0]]}}])
def test_damaged_lists_are_named(tmp_path: Path, value: Any) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain"], ["one"], ["bi-encoder"], [0.25], [0])
    (folder / "cells" / "0000" / "forget.json").write_text(json.dumps(value))
    with pytest.raises(UnrankError, match=r"damaged cell: .*forget"):
        read_bench(folder)


def change_ranks(folder: Path, change: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Path:
    """Change the ranks of every cell of a bench; `change` is given the method too."""
    for path in (folder / "cells").glob("*/ranks.json"):
        method = json.loads(path.with_name("cell.json").read_text())["method"]
        path.write_text(json.dumps(change(method, json.loads(path.read_text()))))
    return folder


def test_a_set_that_is_not_there_was_not_kept(tmp_path: Path) -> None:
    """No entangled pair and no test query: the original kept neither, and verdicts name the set that is there."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    change_ranks(folder, lambda _, ranks: ranks | {"entangled": None, "test": None})

    def without(record: dict[str, Any]) -> None:
        for side in ("before", "after"):
            record[side] |= {"entangled": None, "test": None}

    change_records(folder, without)
    found = Primary(read_bench(folder))
    margin, kept, cells = margin_table(found, Said(margin=0.9), None), kept_table(found), cells_table(found)
    assert {row[-1].text for row in margin.rows} == {"not inferior on D"}
    rows = {row[0].text: dict(zip(kept.head, row, strict=True)) for row in kept.rows}
    nothing = rows["nothing (the original)"]
    assert [nothing[f"{letter} of original's"].text for letter in "EDT"] == ["", "1.000 ± 0.000", ""]
    assert [nothing[f"{letter} least"].text for letter in "EDT"] == ["", "", ""], "no set has 50 queries"
    row = dict(zip(cells.head, next(row for row in cells.rows if row[0].text.startswith("nothing")), strict=True))
    assert [row[f"{letter} kept"].text for letter in "EDT"] == ["", "1.000", ""]
    assert [card.label for card in headline(found)[2] if card.label.startswith("Kept")] == ["Kept of D"]


@pytest.mark.parametrize(("queries", "few"), [(9, True), (10, False)])
def test_few_queries_give_no_verdict(tmp_path: Path, queries: int, few: bool) -> None:
    """Two seeds have the same queries, so that they make no more of them."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    after = {"retrain": [4] * queries, "cocol": [3] * queries}
    change_ranks(folder, lambda method, _: {name: {"before": [1] * queries, "after": after[method]} for name in SETS})
    for path in (folder / "cells").glob("*/cell.json"):
        if json.loads(path.read_text())["removal"] == "queries":
            shutil.rmtree(path.parent)
    bench = read_bench(folder)
    tests = pairs_table(Primary(bench), Said(), None)
    assert tests is not None
    chance, nearer = tests.rows[0][4:]
    assert (chance.text == "", nearer.text) == (few, "too few queries" if few else "cocol")
    cocol = next(row for row in margin_table(Primary(bench), Said(), None).rows if row[0].text == "cocol")
    assert cocol[-1].text == ("undecided" if few else "inferior")
    marks = {value.differs for row in detail_tables(bench)[0].rows if row[2].text == "cocol" for value in row[5:9]}
    assert marks == {not few}


def test_draws_and_shares_may_have_the_same_queries(tmp_path: Path) -> None:
    """Nine queries of two shares and of two kinds of removal are nine for certain, not 36."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25, 0.5], [0])
    after = {"retrain": [4] * 9, "cocol": [3] * 9}
    change_ranks(folder, lambda method, _: {name: {"before": [1] * 9, "after": after[method]} for name in SETS})
    tests = pairs_table(Primary(read_bench(folder)), Said(), None)
    assert tests is not None and {row[-1].text for row in tests.rows} == {"too few queries"}


@pytest.mark.parametrize(
    "named",
    [
        {"label": "nothing (the original)"},
        {"label": "cocol"},
        dict.fromkeys(("method", "label"), "nothing (the original)"),
    ],
    ids=["doing nothing", "another method", "a method of that name"],
)
def test_a_label_of_another_row_is_refused(tmp_path: Path, named: dict[str, str]) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "ssd"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").glob("*/cell.json"):
        if (value := json.loads(path.read_text()))["method"] == "ssd":
            path.write_text(json.dumps(value | named))
    with pytest.raises(UnrankError, match="its label does not begin with the name of its method"):
        read_bench(folder)


def test_two_cells_that_tables_call_the_same_are_refused(tmp_path: Path) -> None:
    """With one destination tables name none, so a cell without a target reads as one with it."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "ssd"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").glob("*/cell.json"):
        if (value := json.loads(path.read_text()))["method"] == "ssd":
            path.write_text(json.dumps(value | {"method": "cocol", "label": "cocol"}))
    with pytest.raises(UnrankError, match="are both cocol on"):
        read_bench(folder)


def test_a_primary_method_is_found_when_tables_name_its_destination(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])
    for path in (folder / "cells").glob("*/cell.json"):
        value = json.loads(path.read_text()) | {"said": {"primary": "cocol", "margin": None}}
        path.write_text(json.dumps(value | ({"target": "destination-3"} if value["method"] == "finetune" else {})))
    bench = read_bench(folder)
    table = pairs_table(Primary(bench), *said_by(bench))
    assert table is not None and "Primary: cocol → destination-2, said before the runs." in table.note
    margin = margin_table(Primary(bench), *said_by(bench))
    assert "(the default; it was not said before these runs)" in margin.note


def test_what_was_at_its_target_before_the_run_is_counted_apart(tmp_path: Path) -> None:
    """Finetune found the forget MRR below the target, and did nothing."""
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])

    def nothing_to_do(record: dict[str, Any]) -> None:
        if record["method"] == "finetune":
            record["before"]["forget"]["mrr"] = record["after"]["forget"]["mrr"] = 0.55
            record["epochs"] = 0

    change_records(folder, nothing_to_do)
    bench = read_bench(folder)
    said, control = control_words(bench), control_table(bench)
    assert said.startswith("cocol did best: at δ or below, within the tolerance, in 2 of 2 cells, ")
    assert "finetune (at δ or below, within the tolerance, in 2 of 2 cells (2 of them before the run), " in said
    assert control is not None
    assert {row[0].text: row[3].text for row in control.rows[1:]} == {"cocol": "2 of 2", "finetune": "0 of 2, 2 before"}
    opened = str(cells_section(bench, cells_table(Primary(bench))).content)
    assert "destination-2, at it or below, within the tolerance, also before the run" in opened
    alone = read_bench(
        change_records(folder, lambda record: record.update(reached=False) if record["target"] else None)
    )
    assert "before the run" not in control_words(alone).partition("Best:")[0]


@pytest.mark.parametrize(("seconds", "said"), [(9.0, "cocol and finetune did best alike: cocol at"), (8.0, "finetune")])
def test_all_that_did_best_alike_are_named(tmp_path: Path, seconds: float, said: str) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])

    def alike(record: dict[str, Any]) -> None:
        if record["method"] != "retrain":
            record["after"] = record["before"] | {"forget": record["before"]["forget"] | {"mrr": record["target"]}}
            record["seconds"] = {"cocol": 9.0, "finetune": seconds}[record["method"]]

    words = control_words(read_bench(change_records(folder, alike)))
    assert words.startswith(said)
    assert "of two alike, the faster" in words
    for path in (folder / "cells").glob("*/cell.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"jobs": 2}))
    assert control_words(read_bench(folder)).startswith("cocol and finetune did best alike: "), "no time is known"


def test_all_that_are_nearest_are_named(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol", "finetune"], ["one"], ["bi-encoder"], [0.25], [0])
    after = {"retrain": [4] * 40, "cocol": [3] * 40, "finetune": [3] * 40}
    change_ranks(folder, lambda method, _: {name: {"before": [1] * 40, "after": after[method]} for name in SETS})
    verdict, _, _ = headline(Primary(read_bench(folder)))
    assert verdict.startswith(
        "cocol and finetune are nearest: 0.083 from retrain query by query; doing nothing is 0.750"
    )


def test_a_margin_that_is_given_after_the_runs_is_no_default(bench: Bench) -> None:
    found = Primary(bench)
    for margin, before, words in (
        (0.2, None, "(said after the runs)"),
        (0.2, Said("cocol"), "(said after the runs)"),
        (0.2, Said("cocol", 0.2), "(said before the runs)"),
        (0.01, None, "(said after the runs)"),
        (None, Said("cocol"), "(the default; it was not said before these runs)"),
    ):
        assert words in margin_table(found, Said(margin=margin), before).note


def test_draws_that_differ_are_not_shown_as_one(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0, 1])
    for path in (folder / "cells").iterdir():
        value, record = (json.loads((path / name).read_text()) for name in ("cell.json", "unrank.json"))
        draw = value["seed"]
        record["removed"]["documents"]["count"], record["after"]["forget"]["queries"] = 120 + draw, 40 + draw
        (path / "cell.json").write_text(json.dumps(value | {"seed": 0, "removal_seed": draw}))
        (path / "unrank.json").write_text(json.dumps(record))
    bench = read_bench(folder)
    table = removed_table(bench)
    row = next(row for row in table.rows if row[1].text == "25% by documents")
    assert [value.text for value in row[2:]] == ["120 to 121", "40 to 41", "40", "40", "40"]
    assert table.note == "Where draws differ, the least and the most."
    assert where(bench) == "over 4 combinations of setting, seed and draw, all in which every method was run"


def test_ranks_before_and_after_are_of_the_same_queries(tmp_path: Path) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain", "cocol"], ["one"], ["bi-encoder"], [0.25], [0])
    path = folder / "cells" / "0000" / "ranks.json"
    ranks = json.loads(path.read_text())
    path.write_text(json.dumps(ranks | {"disjoint": ranks["disjoint"] | {"before": []}}))
    with pytest.raises(UnrankError, match=r"cells/0000: damaged cell: ranks.json holds ranks before and after of diff"):
        read_bench(folder)


@pytest.mark.parametrize(("file", "key"), [("cell.json", "seed"), ("unrank.json", "seed")])
def test_a_number_that_no_table_can_show_is_refused(tmp_path: Path, file: str, key: str) -> None:
    folder = write_bench(tmp_path / "bench", ["retrain"], ["one"], ["bi-encoder"], [0.25], [0])
    path = folder / "cells" / "0000" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: 10**400}))
    with pytest.raises(UnrankError, match=rf"0000/{file}: damaged: a number in it has hundreds of digits; restore"):
        read_bench(folder)
