"""Every address of the desk, the right that it needs, and the function that answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from unrank.serve import certificates, endings, history, intake, requests, runs, service
from unrank.serve.messages import Answer, Call
from unrank.serve.office import Office
from unrank.serve.people import Right


@dataclass(frozen=True)
class Route:
    """An address, and what is done there."""

    method: Literal["GET", "POST"]
    path: str
    right: Right
    answer: Callable[[Office, Call], Answer]
    upload: bool = False
    """Whether its form may hold files."""


ROUTES = (
    Route("GET", "/", Right.read, requests.list_requests),
    Route("GET", "/requests/new", Right.add, intake.new_request),
    Route("POST", "/requests/find", Right.add, intake.find),
    Route("POST", "/requests/touched", Right.add, intake.show_touched),
    Route("POST", "/requests", Right.add, intake.add),
    Route("GET", "/requests/{number}", Right.read, requests.show_request),
    Route("GET", "/requests/{number}/remains", Right.close, endings.show_remains),
    Route("POST", "/requests/{number}/close", Right.close, endings.close),
    Route("POST", "/requests/{number}/end", Right.close, endings.end),
    Route("POST", "/requests/{number}/tick", Right.close, endings.tick_off),
    Route("POST", "/requests/{number}/certificate", Right.close, certificates.write),
    Route("GET", "/plan", Right.read, runs.plan_page),
    Route("POST", "/plan", Right.run, runs.make_plan),
    Route("GET", "/jobs/{number}", Right.read, runs.show_job),
    Route("GET", "/jobs/{number}/events", Right.read, runs.job_events),
    Route("GET", "/runs", Right.read, runs.list_runs),
    Route("POST", "/runs", Right.run, runs.start_run),
    Route("GET", "/runs/{number}", Right.read, runs.show_run),
    Route("POST", "/runs/{number}/undo", Right.run, runs.undo),
    Route("GET", "/service", Right.read, service.show_service),
    Route("POST", "/service", Right.run, service.add),
    Route("POST", "/service/{name}/deploy", Right.run, service.say_since),
    Route("POST", "/service/{name}/remove", Right.run, service.remove),
    Route("GET", "/certificates", Right.read, certificates.list_certificates),
    Route("GET", "/certificates/{name}", Right.read, certificates.show_certificate),
    Route("GET", "/certificates/{name}/page", Right.read, certificates.read_page),
    Route("GET", "/certificates/{name}/download", Right.read, certificates.download),
    Route("POST", "/certificates/{name}/revoke", Right.close, certificates.revoke_certificate),
    Route("GET", "/verify", Right.verify, certificates.verify_page),
    Route("POST", "/verify", Right.verify, certificates.verify, upload=True),
    Route("GET", "/history", Right.read, history.show_history),
)
