"""The pages of plans and runs: what a run would do, how far it has come, and what came of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from time import monotonic

from unrank.desk.history_index import Json
from unrank.desk.remains import PastRun, past_runs
from unrank.desk.undo import undo_run
from unrank.errors import UnrankError, count
from unrank.report.page import Card, Child, Markup, element, paragraph
from unrank.report.wording import duration, numbered
from unrank.serve.jobs import Job, JobKind
from unrank.serve.layout import (
    View,
    bullets,
    button,
    cards,
    form,
    hidden,
    link,
    notice,
    section,
    shown,
    state_tag,
    table,
)
from unrank.serve.messages import Answer, Call, NotFound, see
from unrank.serve.office import Office, name_of
from unrank.serve.people import Right
from unrank.serve.sessions import Session

STATES = {"begun": "not ended", "passed": "ranker usable", "failed": "not usable", "abandoned": "abandoned"}
"""What the page says of a run, by its state in the ledger. A usable ranker may still miss a gate of one request."""
STOPPED = "It was stopped before its end: of rankers that are not shown here it has no result."
NO_OPTIONS = "Runs here have no options. Whoever starts the server gives them, such as --reference."
SHOWN = 20
"""The most requests of a list."""
EVERY = 0.5
"""Seconds between two looks at the progress of a job."""
STREAM = 300.0
"""Seconds after which a stream ends; the browser asks again."""
ALIVE = 15.0
"""Seconds after which a stream says that it is alive."""


def plan_page(office: Office, call: Call) -> Answer:
    office.clear_jobs()
    session, waiting = call.session, office.runnable()
    may_run = Right.run in session.person.rights
    jobs = office.jobs.all()
    running = next((job for job in jobs if job.is_running), None)
    last = next((job for job in jobs if job.kind is JobKind.plan and not job.is_running), None)
    fits = last is not None and list(last.requests) == waiting
    ask = form(
        session, "/plan", hidden("requests", name_of(waiting)), button("Make a plan", "plain" if fits else "main")
    )
    words = " ".join(office.place.run_words)
    asked = paragraph(*(["Every run here has the options ", element("code", {}, words)] if words else [NO_OPTIONS]))
    return shown(
        call,
        View(
            "Plan and run",
            f"{count(len(waiting), 'request')} to be run." if waiting else "No request is to be run.",
            [
                notice([f"A {running.kind} is at work: ", link(f"/jobs/{running.number}", "watch it")])
                if running
                else None,
                section(
                    "waiting",
                    "To be run",
                    bullets(link(f"/requests/{id}", f"Request {id}") for id in waiting[:SHOWN]) if waiting else None,
                    paragraph(f"{len(waiting) - SHOWN:,} more are not shown.") if len(waiting) > SHOWN else None,
                    asked,
                    paragraph(
                        "A plan says what a run would change and can show, and how long it takes. It does nothing."
                    )
                    if waiting
                    else paragraph("A new request comes first."),
                    ask if waiting and may_run and not running else None,
                ),
                *(_plan_sections(session, last, may_run and not running) if last and fits else ()),
                paragraph("The last plan was for other requests: make a new one.")
                if last and waiting and not fits
                else None,
            ],
            "/plan",
        ),
    )


def _plan_sections(session: Session, job: Job, may_run: bool) -> list[Child]:
    """Return the last plan; with a button to run it, for those who may."""
    made = f"by {job.by}, {job.begun.replace('T', ' ')[:19]} UTC"
    found = [plan for plan in job.results if plan.get("requests")]
    parts: list[Child] = [_one_plan(number, plan, made) for number, plan in enumerate(found)]
    if job.error or job.was_stopped:
        parts.append(section("failed", "The last plan", notice(job.error or STOPPED, "bad")))
    if found and may_run:
        go = form(session, "/runs", hidden("requests", name_of(job.requests)), button("Run it"))
        text = (
            "The run forgets all of these requests together, audits the new ranker, and judges each request by itself."
        )
        parts.append(section("run", "Run", paragraph(text), go))
    return parts


def _one_plan(number: int, plan: Json, made: str) -> Markup:
    name = plan.get("service_ranker") or "the ranker"
    audit, times = plan["audit_seconds"], plan["seconds"]
    head = [
        Card("Pairs to forget", f"{plan['pairs']['forget']:,}", f"{plan['pairs']['entangled']:,} kept beside them"),
        Card("Time of the run", _between(times["cocol"]), f"of which the audit {_between(audit)}"),
        Card("Kept queries affected", f"{plan['kept_queries_affected']:,}", "a forgotten document is in the list"),
        Card("Places that hold it", f"{len(plan['copies']):,}", "on this machine"),
    ]
    shown_of = plan["requests"][:SHOWN]
    rows: list[list[Child]] = [
        [link(f"/requests/{each['request']}", f"Request {each['request']}"), each["words"]] for each in shown_of
    ]
    power = [text for text in (*plan["audit"], plan["places"]) if text]
    copies = [[copy["kind"], element("code", {}, copy["path"]), copy["why"]] for copy in plan["copies"]]
    return section(
        f"plan-{number}",
        f"The last plan for {name}",
        element("p", {"class": "note"}, f"Made {made}."),
        cards(head),
        table("What the run can show", ["request", "what it can show"], rows),
        [element("h3", {}, "The power of the audit, and places"), bullets(power)] if power else None,
        element("h3", {}, "Places on this machine that hold it"),
        table("Places on this machine that hold it", ["kind", "place", "why"], copies, "No copies were found."),
    )


def _between(times: Sequence[float]) -> str:
    low, high = times
    return f"{duration(low)} to {duration(high)}" if duration(low) != duration(high) else f"about {duration(high)}"


def make_plan(office: Office, call: Call) -> Answer:
    return _start(office, call, JobKind.plan)


def start_run(office: Office, call: Call) -> Answer:
    return _start(office, call, JobKind.run, "--yes", "--progress", "{progress}", "--by", call.session.person.name)


def _start(office: Office, call: Call, kind: JobKind, *words: str) -> Answer:
    """Start a job for the requests that the page showed; refuse if others are waiting by now."""
    waiting = office.runnable()
    if not waiting:
        raise UnrankError("no request is to be run: somebody may have run them already")
    if call.form.one("requests") != name_of(waiting):
        raise UnrankError("the requests to be run have changed since this page was shown: look at the plan again")
    office.collections()  # a service must be there
    job = office.jobs.start(kind, office.run_command(*words), call.session.person.name, waiting)
    return see(f"/jobs/{job.number}")


def show_job(office: Office, call: Call) -> Answer:
    job = office.jobs.find(call.number)
    return shown(call, _running_view(job) if job.is_running else _ended_view(job))


def _running_view(job: Job) -> View:
    now = job.progress
    bar = element(
        "progress", {"id": "share", "max": 1, "value": now.share, "aria-label": "Share of the run that is done"}
    )
    return View(
        f"The {job.kind} of {job.by} is at work",
        f"{_requests(job)}. It goes on if this page is closed, and if the server is started again.",
        [
            section(
                "progress",
                "Progress",
                bar,
                element("p", {"id": "what", "role": "status"}, _what(job)),
                element("ul", {"id": "lines", "class": "note"}, [element("li", {}, line) for line in now.lines]),
                element(
                    "p", {"id": "watch", "class": "note", "data-events": f"/jobs/{job.number}/events"}, "Connecting …"
                ),
            )
        ],
        "/plan",
        refresh=True,
    )


def _requests(job: Job) -> str:
    return numbered(job.requests).capitalize()


def _what(job: Job) -> str:
    now = job.progress
    share = f", {min(1.0, now.advanced / now.steps):.0%} of this step" if now.steps else ""
    return f"{now.what}{share}"


def _ended_view(job: Job) -> View:
    if job.kind is JobKind.plan:
        return View(
            "The plan is made" if job.results else "There is no plan",
            _requests(job),
            [
                notice(job.error, "bad") if job.error and not job.results else None,
                paragraph(element("a", {"class": "button", "href": "/plan"}, "See the plan")),
            ],
            "/plan",
        )
    parts: list[Child] = []
    for result in job.results:
        name, run = result.get("service_ranker") or "the ranker", result.get("run")
        if run is None:
            parts.append(section(f"none-{name}", name, paragraph("Nothing was to be run in it.")))
        else:
            parts.append(
                section(f"run-{run}", name, _outcome(result), paragraph(link(f"/runs/{run}", f"See run {run}")))
            )
    if job.error:
        parts.append(section("error", "It stopped", notice(job.error, "bad")))
    elif job.was_stopped:
        text = f"{STOPPED} Run again: it goes on from its last checkpoint."
        parts.append(section("error", "It stopped", notice(text, "bad")))
    return View("The run has ended", _requests(job), [*parts, paragraph(link("/", "All requests"))], "/plan")


def _outcome(result: Json) -> Markup:
    rows: list[list[Child]] = [
        [link(f"/requests/{each['request']}", f"Request {each['request']}"), state_tag(each["state"]), each["words"]]
        for each in result["requests"]
    ]
    return table("Requests of this run", ["request", "state", "why"], rows, "It took no request.")


def job_events(office: Office, call: Call) -> Answer:
    job = office.jobs.find(call.number)
    headers = {"x-accel-buffering": "no"}
    return Answer(kind="text/event-stream", headers=headers, events=_events(job))


async def _events(job: Job) -> AsyncIterator[bytes]:
    """Yield the progress of a job when it has changed, and a word at its end."""
    until, said, last = monotonic() + STREAM, monotonic(), ""
    while monotonic() < until:
        if not job.is_running:
            yield b"event: end\ndata: {}\n\n"
            return
        now = job.progress
        value = json.dumps({"what": _what(job), "share": now.share, "lines": now.lines[-20:]})
        if value != last:
            last, said = value, monotonic()
            yield f"data: {value}\n\n".encode()
        elif monotonic() - said > ALIVE:
            said = monotonic()
            yield b": at work\n\n"
        await asyncio.sleep(EVERY)


def list_runs(office: Office, call: Call) -> Answer:
    with office.reading() as ledger:
        runs = ledger.ask("SELECT id, state, out, asked FROM run ORDER BY id DESC")
    rows: list[list[Child]] = [
        [
            link(f"/runs/{id}", f"Run {id}"),
            state_tag(STATES[state]),
            numbered(json.loads(asked).get("requests", [])),
            element("code", {}, str(out)),
        ]
        for id, state, out, asked in runs
    ]
    content = section(
        "runs", "All runs", table("Runs", ["run", "state", "requests", "new ranker"], rows, "There are none.")
    )
    return shown(call, View("Runs", "What was run, and what came of it.", [content], "/runs"))


def show_run(office: Office, call: Call) -> Answer:
    id = call.number
    with office.reading() as ledger:
        found = {run.id: run for run in past_runs(ledger)}.get(id)
        if found is None:
            raise NotFound(f"there is no run {id}")
        [[state]] = ledger.ask("SELECT state FROM run WHERE id = ?", [id])
    undo = form(call.session, f"/runs/{id}/undo", button("Undo this run", "plain"))
    text = (
        "While the old ranker is there and no request is closed: its requests are open again, certificates are revoked."
    )
    may_undo = state == "passed" and Right.run in call.session.person.rights
    return shown(
        call,
        View(
            f"Run {id}: {STATES[state]}",
            f"It took {numbered(found.asked.get('requests', []))}.",
            [*_run_sections(found), section("undo", "A step back", paragraph(text), undo) if may_undo else None],
            "/runs",
        ),
    )


def _run_sections(run: PastRun) -> list[Child]:
    result = run.result
    if not result:
        return [section("none", "No result", paragraph("It has not ended, or it was abandoned."))]
    judged = [{"request": int(id), **one} for id, one in result.get("requests", {}).items()]
    gates: list[list[Child]] = [
        [gate["name"], state_tag("passed" if gate["passed"] else "NOT passed"), gate["words"]]
        for gate in result.get("gates", [])
    ]
    audit = result.get("audit") or {}
    tests: list[list[Child]] = [
        [name.replace("_", " "), *_verdict(str(test.get("verdict")), str(test.get("words") or ""))]
        for name, test in audit.get("tests", {}).items()
    ]
    holders: list[list[Child]] = [
        [copy["kind"], element("code", {}, copy["path"]), copy["why"]] for copy in result.get("holders", [])
    ]
    verdict = f"The audit says: {audit.get('verdict')}." if audit else "No weight was changed, so there was no audit."
    return [
        section("requests", "Each request by itself", _outcome({"requests": judged})),
        section(
            "gates", "Gates", table("Gates", ["gate", "state", "why"], gates, "It changed no weight: no gate applies.")
        ),
        section(
            "audit", "Audit", paragraph(verdict), table("Tests", ["test", "verdict", "why"], tests, "No test was made.")
        ),
        section("holders", "Still to delete", table("Places", ["kind", "place", "why"], holders, "Nothing was found.")),
    ]


def _verdict(verdict: str, words: str) -> tuple[str, str]:
    """Return what a test says and why. One that could not be made has the verdict of those that only measure."""
    untested, colon, why = words.partition("not tested: ")
    return ("not tested", why) if colon and not untested else (verdict, words)


def undo(office: Office, call: Call) -> Answer:
    with office.writing(call.session.person.name) as (ledger, _):
        ledger.verify()
        undo_run(ledger, call.number)
    return see(f"/runs/{call.number}")
