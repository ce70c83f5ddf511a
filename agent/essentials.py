"""What must outlive a version of the program: the few facts of a state that every later version can read.

A state is folded again from the ledger when its schema has changed. Where the early part of a ledger is gone, these
facts stand in for it: no generation is issued twice, what people decided holds, and what is in effect stays so. What
the agent had learnt (baselines, incidents, its ladder) it learns again from the part that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from trimtab.agent.canary import Values
from trimtab.agent.run_state import Ladder, RunState
from trimtab.agent.state import Mode, Silence
from trimtab.hooks.controls import ControlValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Essentials:
    """Facts of a state; each has a default or is in every stored one, so that fields may come and never go."""

    mode: Mode
    attempt: int
    last_step: int
    tick: int
    generation: int
    commanded: int
    person_overrides: dict[str, ControlValue]
    other_overrides: dict[str, ControlValue]
    """Wanted without a person having asked: the agent's remedies, and what was found at the trainer."""
    killed: bool
    locked: str
    behind: bool
    next_proposal: int
    silences: tuple[Silence, ...] = ()
    reason: str = ""
    issuer: str = ""
    history: dict[str, Values] = field(default_factory=dict)
    """What harm is seen by: without it a change that a person makes next could not be judged, and would be undone."""

    @classmethod
    def of(cls, state: RunState) -> Self:
        """The facts of a state."""
        return cls(
            mode=state.mode,
            attempt=state.attempt,
            last_step=state.last_step,
            tick=state.tick,
            generation=state.generation,
            commanded=state.commanded,
            person_overrides=state.person_overrides,
            other_overrides={k: v for k, v in state.overrides.items() if k not in state.person_overrides},
            killed=state.killed,
            locked=state.ladder.locked,
            behind=state.behind,
            next_proposal=state.next_proposal,
            silences=state.silences,
            reason=state.reason,
            issuer=state.issuer,
            history=state.history,
        )

    def state(self, job: str) -> RunState:
        """A state to go on from, with nothing learnt."""
        return RunState(
            job=job,
            mode=self.mode,
            attempt=self.attempt,
            last_step=self.last_step,
            tick=self.tick,
            generation=self.generation,
            commanded=self.commanded,
            person_overrides=self.person_overrides,
            adopted=self.other_overrides,
            killed=self.killed,
            ladder=Ladder(locked=self.locked),
            behind=self.behind,
            next_proposal=self.next_proposal,
            silences=self.silences,
            reason=self.reason,
            issuer=self.issuer,
            history=self.history,
        )
