"""A typed client of the service, for the command line, the demo and scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from trimtab.agent.state import Incident, Mode, Proposal, Silence
from trimtab.api.controls_view import ControlsView
from trimtab.api.errors import UserError
from trimtab.api.health_view import HealthView, JobView
from trimtab.api.problem import Problem, Problems
from trimtab.api.routes.common import OPERATOR
from trimtab.api.routes.events import EventPage
from trimtab.api.routes.incidents import Incidents
from trimtab.api.routes.jobs import Jobs
from trimtab.api.routes.mode import ModeView
from trimtab.api.routes.proposals import Proposals
from trimtab.api.routes.signals import Signals
from trimtab.api.routes.silences import Silences
from trimtab.api.routes.summaries import PATH, IngestAnswer
from trimtab.api.server import DEFAULT_PORT
from trimtab.hooks.controls import ControlValue
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import SUMMARY
from trimtab.storage.values import StoredEvent

DEFAULT_URL = f"http://127.0.0.1:{DEFAULT_PORT}"
TIMEOUT_S = 10.0
PAGE = 1000

Answer = TypeVar("Answer", bound=BaseModel)


class ClientError(UserError):
    """The service cannot be reached, or refuses; the message says what to do."""

    def __init__(self, message: str, status: int | None = None, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of the refusal; None when nothing answered."""
        self.problems = tuple(problems)


class Client:
    """One service. Use it as a context manager, or close it.

    >>> with Client(url) as client:                                             # doctest: +SKIP
    ...     client.patch_controls("run-1", {"centering": True}, reason="try it")
    """

    def __init__(self, url: str = DEFAULT_URL) -> None:
        """Raises `ClientError` where `url` is none."""
        self.url = url.rstrip("/")
        try:
            self._http = httpx.Client(base_url=self.url, timeout=TIMEOUT_S, trust_env=False)
        except httpx.InvalidURL as error:
            raise ClientError(f"url: {url!r} is no address ({error}); give one such as {DEFAULT_URL}") from error

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def jobs(self) -> list[JobView]:
        """Every job, newest first."""
        return self._ask(Jobs, "GET", "/v1/jobs").jobs

    def job(self, job: str) -> JobView:
        """One line about a job."""
        return self._ask(JobView, "GET", f"/v1/jobs/{job}")

    def register(self, job: str, *, config: Mapping[str, Any] | None = None, mode: Mode | str | None = None) -> JobView:
        """Make sure that a job exists, with these settings (nested, as JSON) and in this mode."""
        return self._ask(JobView, "PUT", f"/v1/jobs/{job}", {"config": config, "mode": mode})

    def ingest(self, summary: StepSummary) -> IngestAnswer:
        """Report one step."""
        return self._ask(IngestAnswer, "POST", PATH, SUMMARY.encode(summary))

    def health(self, job: str) -> HealthView:
        """Verdicts, open incidents, proposals and controls of a job."""
        return self._ask(HealthView, "GET", f"/v1/jobs/{job}/health")

    def incidents(self, job: str) -> list[Incident]:
        """Incidents of a job, newest first, resolved ones included."""
        return self._ask(Incidents, "GET", f"/v1/jobs/{job}/incidents").incidents

    def events(self, job: str, *, after: int = 0) -> Iterator[StoredEvent]:
        """The audit trail of a job with numbers larger than `after`, page by page."""
        cursor: int | None = after
        while cursor is not None:
            path = f"/v1/jobs/{job}/events"
            page = self._ask(EventPage, "GET", path, params={"after": cursor, "limit": PAGE})
            yield from page.events
            cursor = page.next

    def signals(
        self, job: str, names: Sequence[str] | None = None, *, attempt: int | None = None, points: int = 500
    ) -> Signals:
        """Signals of one attempt over its steps; all of them, of the newest attempt, unless said otherwise."""
        params: dict[str, Any] = {"points": points}
        if names is not None:
            params["name"] = list(names)
        if attempt is not None:
            params["attempt"] = attempt
        return self._ask(Signals, "GET", f"/v1/jobs/{job}/signals", params=params)

    def controls(self, job: str) -> ControlsView:
        """What is wanted of a job, and what is in effect."""
        return self._ask(ControlsView, "GET", f"/v1/jobs/{job}/controls")

    def patch_controls(
        self,
        job: str,
        overrides: Mapping[str, ControlValue | None],
        *,
        reason: str,
        base_generation: int | None = None,
        issuer: str = OPERATOR,
    ) -> ControlsView:
        """Set overrides; None lifts one."""
        body = {"overrides": dict(overrides), "reason": reason, "base_generation": base_generation, "issuer": issuer}
        return self._ask(ControlsView, "PATCH", f"/v1/jobs/{job}/controls", body)

    def set_mode(self, job: str, mode: Mode | str, *, reason: str, issuer: str = OPERATOR) -> Mode:
        """Let the agent go further, or less far."""
        body = {"mode": mode, "reason": reason, "issuer": issuer}
        return self._ask(ModeView, "PUT", f"/v1/jobs/{job}/mode", body).mode

    def kill(self, job: str, *, reason: str, issuer: str = OPERATOR) -> ControlsView:
        """Lift every override, whoever set it, and take the agent's hands off."""
        return self._ask(ControlsView, "POST", f"/v1/jobs/{job}/kill", {"reason": reason, "issuer": issuer})

    def silence(
        self, job: str, detector: str, *, reason: str, steps: int | None = None, issuer: str = OPERATOR
    ) -> list[Silence]:
        """Do not be told of a detector's incidents, for `steps` steps or until it is cancelled; all that hold then."""
        body = {"steps": steps, "reason": reason, "issuer": issuer}
        return self._ask(Silences, "PUT", f"/v1/jobs/{job}/silences/{detector}", body).silences

    def unsilence(self, job: str, detector: str, *, reason: str, issuer: str = OPERATOR) -> list[Silence]:
        """Be told again; all silences that hold then."""
        body = {"reason": reason, "issuer": issuer}
        return self._ask(Silences, "DELETE", f"/v1/jobs/{job}/silences/{detector}", body).silences

    def proposals(self, job: str) -> list[Proposal]:
        """Changes that wait for an answer, or stand as advice."""
        return self._ask(Proposals, "GET", f"/v1/jobs/{job}/proposals").proposals

    def approve(self, job: str, proposal: int, *, reason: str, issuer: str = OPERATOR) -> ControlsView:
        """Let a proposal be done."""
        body = {"reason": reason, "issuer": issuer}
        return self._ask(ControlsView, "POST", f"/v1/jobs/{job}/proposals/{proposal}/approve", body)

    def reject(self, job: str, proposal: int, *, reason: str, issuer: str = OPERATOR) -> ControlsView:
        """Turn a proposal down."""
        body = {"reason": reason, "issuer": issuer}
        return self._ask(ControlsView, "POST", f"/v1/jobs/{job}/proposals/{proposal}/reject", body)

    def _ask(
        self,
        kind: type[Answer],
        method: str,
        path: str,
        body: Mapping[str, Any] | str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Send one request and read its answer.

        Raises:
            ClientError: nothing answers, the service refuses, or what answers is no trimtab service.
        """
        if isinstance(body, str):
            sent: dict[str, Any] = {"content": body, "headers": {"content-type": "application/json"}}
        else:
            sent = {} if body is None else {"json": body}
        try:
            response = self._http.request(method, path, params=params, **sent)
        except httpx.HTTPError as error:
            raise ClientError(f"url: nothing answers at {self.url} ({error}); start it with `trimtab serve`") from error
        try:
            if response.is_success:
                return kind.model_validate_json(response.content)
            problems = Problems.model_validate_json(response.content).errors
        except ValidationError as error:
            raise ClientError(f"url: what answers at {self.url} is not a trimtab service of this version") from error
        told = "; ".join(f"{one.field}: {one.message}" if one.field else one.message for one in problems)
        raise ClientError(told, response.status_code, problems)
