"""Asynchronous rollouts: the sampler runs ahead of the trainer, by a bounded number of versions.

A thread samples batch after batch into a queue, one batch for each step to come, and starts the batch of step s only
once it has weights of version s - max_staleness or newer; the bound is the configured one, or the control of that name
where it is less. So a token's staleness is at most that when its step trains on it, whatever the speeds of the two, and
the trainer waits only where the sampler is slower.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trimtab.hooks.controls import Controls
from trimtab.trainer.experience import Collector, Experience
from trimtab.trainer.rollouts.published import Published
from trimtab.trainer.rollouts.sampler import Sampler, Update
from trimtab.trainer.rollouts.supply import Draws, update_for


@dataclass(frozen=True, slots=True)
class _Batch:
    experience: Experience
    draws: dict[str, Any]
    """The generators behind it."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """What the trainer last published."""

    update: Update
    controls: Controls


class Ahead:
    """Samples in a thread of its own.

    Args:
        collector: draws prompts and grades responses.
        sampler: the collector's; the thread's alone while it runs.
        max_staleness: most versions between a token's weights and the step that trains on it.
        in_flight: take over weights between the tokens of a batch, and not only between batches.
        steps: of the run: nothing is sampled beyond the last.
        seed: of the randomness.
    """

    def __init__(
        self, collector: Collector, sampler: Sampler, *, max_staleness: int, in_flight: bool, steps: int, seed: int
    ) -> None:
        self.idle = 0.0
        """Seconds that the sampler has waited for weights new enough."""
        self._collector = collector
        self._sampler = sampler
        self._max_staleness = max_staleness
        self._in_flight = in_flight
        self._steps = steps
        self._draws = Draws(seed)
        self._consumed = self._draws.state()
        self._changed = threading.Condition()
        """Guards everything below."""
        self._offer: _Offer | None = None
        self._batches: deque[_Batch] = deque()
        self._error: BaseException | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def next(self, step: int, published: Published, controls: Controls) -> Experience:
        """Take the batch of `step`, waiting for it if need be; the first call starts the thread, and so does one under
        a tighter `Controls.max_staleness`, since what was sampled until then may be too old."""
        if self._offer is not None and controls.max_staleness < self._offer.controls.max_staleness:
            self.stop()
        with self._changed:
            self._offer = _Offer(update_for(published.newest, published, controls), controls)
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(step,), name="trimtab-rollouts", daemon=True)
            self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self._error)
            if not self._batches:
                assert self._error is not None
                raise self._error
            batch = self._batches.popleft()
        self._consumed = batch.draws
        return batch.experience

    def state(self) -> dict[str, Any]:
        """The generators as they were behind the last batch that a step took."""
        return self._consumed

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint's `state`, with a new thread."""
        self.stop()
        self._consumed = state

    def stop(self) -> None:
        """Break off the batch that is being sampled at its next token, and throw away what no step has taken."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._thread, self._error, self._stopping = None, None, False
        self._batches.clear()

    def _run(self, first: int) -> None:
        try:
            self._draws.restore(self._consumed)
            held: Update | None = None
            for step in range(first, self._steps):
                offer = self._wait_for(step)
                if offer is None:
                    return
                if held is None or held.key != offer.update.key:
                    self._sampler.sync(offer.update)
                    held = offer.update
                held = self._sample(offer, held)
        except _Stopped:
            return
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _wait_for(self, step: int) -> _Offer | None:
        """What to sample the batch of `step` with; None when there is to be none."""
        started = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._fresh_enough(step))
            self.idle += time.perf_counter() - started
            return None if self._stopping else self._offer

    def _fresh_enough(self, step: int) -> bool:
        offer = self._offer
        if offer is None:
            return False
        return step - offer.update.version <= min(self._max_staleness, offer.controls.max_staleness)

    def _sample(self, offer: _Offer, held: Update) -> Update:
        """Sample a batch and put it in the queue; the update that the sampler holds afterwards."""
        arrivals, draws = _BetweenTokens(held, self._asked), self._draws
        experience = self._collector.collect(offer.controls, draws.prompts, draws.tokens, arrivals)
        with self._changed:
            self._batches.append(_Batch(experience, draws.state()))
            self._changed.notify_all()
        return arrivals.held

    def _asked(self) -> _Offer | None:
        """What may be taken over in the middle of a batch."""
        if self._stopping:
            raise _Stopped
        return self._offer if self._in_flight else None


class _Stopped(Exception):  # noqa: N818
    """The batch is wanted no more."""


class _BetweenTokens:
    """Says between tokens whether newer weights are there; formats change between batches only, so that a batch is of
    one engine."""

    def __init__(self, held: Update, asked: Callable[[], _Offer | None]) -> None:
        self.held = held
        self._asked = asked

    def __call__(self) -> Update | None:
        offer = self._asked()
        if offer is None or offer.update.version <= self.held.version:
            return None
        held, new = self.held, offer.update
        self.held = replace(new, number_format=held.number_format, kv_format=held.kv_format)
        return self.held
