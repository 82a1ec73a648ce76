"""The page of a run or a bench as it stands: a part of a page that a server can send again, and a whole page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from unrank.record import SETS, Check
from unrank.report.page import Child, Markup, document_html, element, paragraph, script_file
from unrank.report.watch import OVER, BenchView, ListView, RunView, View
from unrank.report.wording import duration

LIVE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src '{script}'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
"""As for the pages of reports; the script may also ask the server that the page came from."""
NO_SCRIPT = Markup("")
WIDTH, HEIGHT, EDGE = 520, 190, 42
"""The size of a chart, and the room beside it for the numbers of its axes."""
NO_TEXT = "No text of the collection is on this page."

Series = Mapping[str, Sequence[tuple[float, float]]]


def watch_page(view: View, live: bool = False, refresh: int | None = None, texts: bool = True) -> str:
    """Return the whole page. A live one asks its server for news; another may load itself again after some seconds."""
    over = view.state in OVER
    body: list[Child] = [
        element("main", {"id": "watch", "aria-live": "off"}, watch_fragment(view)),
        element("p", {"id": "lost", "class": "note", "role": "status", "hidden": True}, "The server does not answer."),
        element("footer", {}, paragraph(_note(view, live and not over, texts))),
    ]
    title = f"{view.name}: {view.state}"
    if live:
        return document_html(title, body, script_file("watch.js"), LIVE_POLICY)
    return document_html(title, body, NO_SCRIPT, refresh=None if over else refresh)


def _note(view: View, moves: bool, texts: bool) -> str:
    """Return which texts are on the page; on one that moves, more may come."""
    if not texts:
        return NO_TEXT
    if shown := texts_on(view):
        return f"This page shows {shown}."
    return "This page may come to show texts that are to be forgotten." if moves else NO_TEXT


def texts_on(view: View) -> str:
    """Return which texts of the collection the lists of a view show, in words; nothing without lists."""
    runs = view.jobs if isinstance(view, BenchView) else (view,)
    parts = {each.part for run in runs for each in run.lists}
    return "texts that are to be forgotten" if "forget" in parts else "texts of the collection" if parts else ""


def watch_fragment(view: View) -> Markup:
    """Return the part of the page that changes."""
    parts = _bench(view) if isinstance(view, BenchView) else _run(view)
    return element("div", {"class": "watched"}, parts)


def _bench(view: BenchView) -> list[Child]:
    jobs = [
        element("details", {"open": True}, element("summary", {}, f"{job.name}: {job.title}"), _run_body(job))
        for job in view.jobs
    ]
    return [
        _heading("A bench", view.name, view.words),
        _cards(
            {
                "Cells done": (f"{view.done:,}", ""),
                "Jobs of this start": (f"{view.jobs_done:,} of {view.jobs_of:,}" if view.jobs_of else "–", ""),
                "Time left": (_time(view.seconds_left), "by the jobs that are done" if view.seconds_left else ""),
            }
        ),
        _part("Jobs at work or broken off", jobs) if jobs else None,
        _said(view.said),
    ]


def _run(view: RunView) -> list[Child]:
    return [_heading(view.title or "A run", view.name, view.words), *_run_body(view), _said(view.said)]


def _run_body(view: RunView) -> list[Child]:
    charts = [
        _chart("MRR", mrr_series(view), low=0.0, high=1.0),
        _chart("Distance to the places", distance_series(view)),
        _chart("Losses", loss_series(view.checks)),
    ]
    drawn = [chart for chart in charts if chart is not None]
    return [
        _progress(view),
        _cards(figures(view)),
        _part("As they move", [element("div", {"class": "pair"}, drawn)]) if drawn else None,
        _part("Lists of a few queries", [element("div", {"class": "pair"}, map(_list, view.lists))])
        if view.lists
        else None,
    ]


def figures(view: RunView) -> dict[str, tuple[str, str]]:
    """Return the figures of a run in words, each with a note."""
    now, before = view.now or {}, view.before or {}
    found: dict[str, tuple[str, str]] = {}
    for name in (*SETS, "learned"):
        if name in now:
            notes = [f"{before[name]:.3f} before"] if name in before else []
            if name == "forget" and view.target is not None:
                notes.append(f"{view.target:.3f} wanted")
            moved = view.state == "done" or any(getattr(check, name) is not None for check in view.checks)
            notes += [] if moved else ["not measured since"]
            label = "MRR, training queries" if name == "learned" else f"MRR, {name}"
            found[label] = (f"{now[name]:.3f}", "; ".join(notes))
    distances = [check.distance for check in view.checks if check.distance is not None]
    if distances or view.distance_before is not None:
        began = f"{view.distance_before:.3f} before" if view.distance_before is not None else ""
        last = distances[-1] if distances else view.distance_before
        found["Distance to the places"] = (f"{last:.3f}", began)
    found["Steps a second"] = (f"{view.steps_a_second:.1f}" if view.steps_a_second else "–", "")
    found["Time"] = (_time(view.elapsed), "of its own counted work" if view.state == "done" else "since it was started")
    if view.state == "running":
        about = "" if view.seconds_left is None else "at most, for its steps" if view.at_most else "for its steps"
        found["Time left"] = (_time(view.seconds_left), about or "not known before the first check")
    return found


def mrr_series(view: RunView) -> Series:
    """Return the MRR of each set at the checks that measured it, from before the run on."""
    before = view.before or {}
    found: dict[str, list[tuple[float, float]]] = {}
    for name in (*SETS, "learned"):
        points = [(check.epoch, value) for check in view.checks if (value := getattr(check, name)) is not None]
        start = [(0.0, before[name])] if name in before else []
        if points:
            found["training queries" if name == "learned" else name] = [*start, *points]
    if view.target is not None and "forget" in found:
        found["wanted"] = [(0.0, view.target), (max(found["forget"][-1][0], 1.0), view.target)]
    return found


def distance_series(view: RunView) -> Series:
    """Return the distance to the places at each check, from before the run on."""
    points = [(check.epoch, check.distance) for check in view.checks if check.distance is not None]
    start = [(0.0, view.distance_before)] if view.distance_before is not None else []
    return {"distance": [*start, *points]} if points else {}


def loss_series(checks: Sequence[Check]) -> Series:
    """Return the loss of each phase at each check."""
    phases = dict.fromkeys(phase for check in checks for phase in check.losses)
    return {
        phase: [(check.epoch, check.losses[phase]) for check in checks if phase in check.losses] for phase in phases
    }


def _heading(kind: str, name: str, words: str) -> Markup:
    return element("header", {}, element("p", {"class": "kind"}, kind), element("h1", {}, name), paragraph(words))


def _progress(view: RunView) -> Markup | None:
    if view.state != "running" or not view.what:
        return None
    bar = {"max": max(view.of, 1), "value": min(view.done, view.of)} if view.of else {}
    amount = f", {view.done:,} of {view.of:,}" if view.of else ""
    label = f"{view.what}{amount}"
    return element("p", {"class": "under-way"}, element("progress", {**bar, "aria-label": label}), f" {label}")


def _cards(shown: Mapping[str, tuple[str, str]]) -> Markup:
    cards = [
        element(
            "div",
            {"class": "card"},
            element("dt", {}, label),
            element("dd", {"class": "big"}, figure),
            element("dd", {"class": "note"}, note) if note else None,
        )
        for label, (figure, note) in shown.items()
    ]
    return element("dl", {"class": "cards"}, cards)


def _part(heading: str, content: Sequence[Child]) -> Markup:
    return element("section", {}, element("h2", {}, heading), content)


def _said(lines: Sequence[str]) -> Markup | None:
    if not lines:
        return None
    return _part("Its last lines", [element("ul", {"class": "said"}, [element("li", {}, line) for line in lines])])


def _list(view: ListView) -> Markup:
    moved = f"{_ranks(view.before)} before, {_ranks(view.now)} now" if view.now else f"{_ranks(view.before)} before"
    what = "what is to be forgotten" if view.part == "forget" else "what answers it"
    entries = [
        element("li", {"class": "marked" if each.marked else None, "value": each.rank}, each.text)
        for each in view.first
    ]
    return element(
        "div",
        {"class": "followed forget" if view.part == "forget" else "followed"},
        element("h3", {}, view.query),
        paragraph(f"{view.part or 'no set'}; {what}: rank {moved}, of {view.entries:,}"),
        element("ol", {}, entries),
    )


def _ranks(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks)) if ranks else "not known"


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


def _chart(title: str, series: Series, low: float | None = None, high: float | None = None) -> Markup | None:
    """Draw lines over the epochs; nothing if no line has two points."""
    if not any(len(points) > 1 for points in series.values()):
        return None
    values = [value for points in series.values() for _, value in points]
    bottom, top = (min(values) if low is None else low), (max(values) if high is None else high)
    bottom, top = (bottom, top) if top > bottom else (bottom - 0.5, top + 0.5)
    last = max(epoch for points in series.values() for epoch, _ in points) or 1.0

    def place(epoch: float, value: float) -> str:
        x = EDGE + (WIDTH - EDGE - 8) * epoch / last
        return f"{x:.1f},{8 + (HEIGHT - 30) * (top - value) / (top - bottom):.1f}"

    lines = [
        element("polyline", {"class": f"line s{number % 7}", "points": " ".join(place(*point) for point in points)})
        for number, points in enumerate(series.values())
    ]
    frame = element("path", {"class": "frame", "d": f"M{EDGE} 8V{HEIGHT - 22}H{WIDTH - 8}"})
    numbers = [
        _number(0, 14, f"{top:.3g}"),
        _number(0, HEIGHT - 22, f"{bottom:.3g}"),
        _number(EDGE, HEIGHT - 6, "0"),
        _number(WIDTH - 8, HEIGHT - 6, f"epoch {last:.3g}", "end"),
    ]
    label = f"{title}: " + "; ".join(f"{name} {points[-1][1]:.3g}" for name, points in series.items())
    legend = [
        element("span", {}, element("i", {"class": f"s{number % 7}"}), f"{name} {points[-1][1]:.3f}")
        for number, (name, points) in enumerate(series.items())
    ]
    box = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img", "aria-label": label}
    caption = element("figcaption", {"class": "legend"}, element("b", {}, title), legend)
    return element("figure", {}, element("svg", box, frame, lines, numbers), caption)


def _number(x: float, y: float, text: str, anchor: str = "start") -> Markup:
    return element("text", {"x": x, "y": y, "text-anchor": anchor}, text)
