"""Steps are judged in order, and a step that is missing is waited for a little.

A summary that arrives ahead of a gap is held back until the gap is closed, or until `PATIENCE` others are held already:
then the missing steps are given up, and what comes of them later is stored and flagged late. Most that are missing are
lost, and waiting for those delays every alert, so nothing is held back

- where no step is missing: the step before was judged, or as many steps lie between as always have (`stride`), or the
  trainer itself has counted as many summaries as lost since;
- where more than `WINDOW` are missing, which no network has swapped;
- at the beginning of an attempt, where nothing says what came before;
- where a value is not finite, which is told in its own step.

So the order of arrival is of no consequence where no summary comes after more than `PATIENCE` later ones of its
attempt, the first two of an attempt come first, and every value is finite.
"""

from __future__ import annotations

from trimtab.agent.detectors.nonfinite import unusable
from trimtab.agent.run_state import Order, RunState
from trimtab.hooks.records import StepSummary

PATIENCE = 2
"""Summaries that are held back at most."""
WINDOW = 32
"""Missing summaries that could still come, at most."""


Waiting = tuple[StepSummary, ...]
"""Summaries that are not judged yet, in the order of steps."""


def joined(waiting: Waiting, summary: StepSummary) -> Waiting:
    """With one more."""
    return tuple(sorted((*waiting, summary), key=lambda each: (each.attempt, each.step)))


def next_due(state: RunState, waiting: Waiting) -> StepSummary | None:
    """The summary that is to be judged now; None where it is waited for an earlier one, or there is none."""
    if not waiting:
        return None
    first, gives_up = waiting[0], len(waiting) > PATIENCE
    if _follows(state, first) or gives_up:
        return first
    return first if any(each.attempt > state.attempt or unusable(each) for each in waiting) else None


def order_after(state: RunState, summary: StepSummary, waiting: Waiting) -> Order:
    """What is known of steps that are missing once a summary is judged and the others wait."""
    stride, gap = state.order.stride, summary.step - state.last_step
    if state.last_step < 0 or summary.attempt > state.attempt:
        stride = None
    else:
        stride = gap if stride is None else min(gap, stride)
    return Order(held=waiting, stride=stride, dropped=summary.dropped_total)


def _follows(state: RunState, summary: StepSummary) -> bool:
    """Nothing is missing before a summary that could still come."""
    order, gap = state.order, summary.step - state.last_step
    if state.last_step < 0 or order.stride is None or gap <= order.stride:
        return True
    lost = summary.dropped_total - order.dropped
    return gap <= order.stride * (1 + lost) or gap > order.stride * (1 + WINDOW)
