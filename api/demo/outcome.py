"""What each run came to, read from its own files and from the agent's record of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from trimtab.agent.state import EventKind, State
from trimtab.api.client import Client
from trimtab.api.demo.plan import PlannedRun
from trimtab.storage.values import StoredEvent
from trimtab.trainer.run import RESULT, STEPS

FINAL_STEPS = 20
"""`*_final` figures are means over the last so many steps."""
SMOOTHING = 5
RECOVERED = 0.8
HELD_STEPS = 10
"""A run has recovered when its smoothed reward is at this share of the BF16 reference's, at the same step, for so many
steps in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlChange:
    """One control that changed between two steps."""

    step: int
    """First step with the new value."""
    control: str
    before: Any
    after: Any
    by: str
    """`run` for its own schedule, else who asked for it."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """One run in figures; the fields of `summary.json`."""

    scenario: str
    name: str
    title: str
    seed: int
    job: str
    reward_final: float
    """Under the run's own sampler."""
    reward_eval_bf16: float | None
    """Of the trained policy, sampled in BF16."""
    entropy_final: float
    garbage_final: float
    mismatch_final: float
    first_alert_step: int | None
    alert: str
    """What the first alert said."""
    first_action_step: int | None
    steps_to_recover: int | None
    """Steps from the first action to recovery; None without an action or a recovery."""
    controls_timeline: tuple[ControlChange, ...]
    rewards: tuple[float, ...]
    """Reward of every step."""


def outcomes(runs: Sequence[PlannedRun], client: Client) -> list[RunOutcome]:
    """The outcome of every run, in order."""
    steps = {run.job: [json.loads(line) for line in (run.folder / STEPS).read_text().splitlines()] for run in runs}
    references = {
        (run.scenario, run.seed): _smooth([step["reward_mean"] for step in steps[run.job]])
        for run in runs
        if run.run.name == "bf16"
    }
    return [_outcome(run, steps[run.job], references.get((run.scenario, run.seed), []), client) for run in runs]


def _outcome(
    run: PlannedRun, steps: Sequence[dict[str, Any]], reference: Sequence[float], client: Client
) -> RunOutcome:
    events = list(client.events(run.job))
    alert = next((event for event in events if _alerts(event)), None)
    action = next((event for event in events if event.kind == EventKind.CONTROLS_CHANGED), None)
    rewards = tuple(step["reward_mean"] for step in steps)
    result = json.loads((run.folder / RESULT).read_text())
    return RunOutcome(
        scenario=run.scenario,
        name=run.run.name,
        title=run.run.title,
        seed=run.seed,
        job=run.job,
        reward_final=_final(steps, "reward_mean"),
        reward_eval_bf16=result["reward_eval_bf16"],
        entropy_final=_final(steps, "entropy"),
        garbage_final=_final(steps, "garbage_fraction"),
        mismatch_final=_final(steps, "mismatch_std"),
        first_alert_step=None if alert is None else alert.step,
        alert="" if alert is None else alert.message,
        first_action_step=None if action is None else action.step,
        steps_to_recover=None if action is None else _recovery(_smooth(rewards), reference, action.step),
        controls_timeline=tuple(_changes(steps, {e.detail.get("generation"): e for e in events if _decides(e)})),
        rewards=rewards,
    )


def _alerts(event: StoredEvent) -> bool:
    return event.kind == EventKind.VERDICT_CHANGED and event.detail["after"] in (State.WARN, State.CRITICAL)


def _decides(event: StoredEvent) -> bool:
    return event.kind == EventKind.CONTROLS_CHANGED


def _final(steps: Sequence[dict[str, Any]], field: str) -> float:
    last = steps[-FINAL_STEPS:]
    return float(sum(step[field] for step in last) / len(last))


def _smooth(values: Sequence[float]) -> list[float]:
    """Mean of each value and the ones before it, `SMOOTHING` in all."""
    return [sum(values[max(0, i - SMOOTHING + 1) : i + 1]) / min(i + 1, SMOOTHING) for i in range(len(values))]


def _recovery(rewards: Sequence[float], reference: Sequence[float], action_step: int) -> int | None:
    held = 0
    for step in range(action_step, min(len(rewards), len(reference))):
        held = held + 1 if rewards[step] >= RECOVERED * reference[step] else 0
        if held == HELD_STEPS:
            return step - HELD_STEPS + 1 - action_step
    return None


def _changes(steps: Sequence[dict[str, Any]], decisions: dict[object, StoredEvent]) -> Iterable[ControlChange]:
    for before, after in pairwise(steps):
        decided = decisions.get(after["generation"]) if after["generation"] != before["generation"] else None
        for control, value in after["controls"].items():
            # A checkpoint that is kept changes nothing in the run.
            if value != before["controls"][control] and control != "pin":
                yield ControlChange(
                    step=after["step"],
                    control=control,
                    before=before["controls"][control],
                    after=value,
                    by="run" if decided is None else str(decided.detail.get("issuer", "agent")),
                    reason="the run's own schedule" if decided is None else decided.message,
                )
