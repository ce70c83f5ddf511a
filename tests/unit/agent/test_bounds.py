"""Bounds that hold for any input at all: what is done, what is wanted, and what a state survives."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
from agent_runs import CAPABLE, step_summary
from agent_verdicts import reloaded, text
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig, with_settings
from trimtab.agent.run_state import RunState
from trimtab.agent.state import EventKind, Mode, OperatorAction, OperatorVerb
from trimtab.hooks.controls import Controls

TIGHT = with_settings(
    AgentConfig(mode=Mode.AUTO),
    {
        "policy.settle": 2,
        "policy.canary": 10,
        "policy.cooldown": 3,
        "policy.verify": 2,
        "policy.relax_after": 3,
        "policy.budget": 4,
        "incidents.keep_firing_for": 2,
        "window": 2,
    },
)
RNG = np.random.default_rng(0)
BATCHES = {
    (std, clip): (RNG.normal(0, std, 300), np.where(np.arange(300) < clip * 300, 0.5, 0.0))
    for std in (0.01, 0.5)
    for clip in (0.0, 0.1)
}


@st.composite
def steps(draw: st.DrawFn) -> dict[str, Any]:
    batch = BATCHES[draw(st.sampled_from(sorted(BATCHES)))]
    return {
        "update": batch,
        "mismatch": (batch[0], batch[0]),
        "scalars": {
            "reward_mean": draw(st.sampled_from([0.0, 0.5, 1.0, math.nan])),
            "grad_norm": draw(st.sampled_from([0.1, math.inf])) if draw(st.integers(0, 9)) == 0 else 0.1,
        },
        "entropy": draw(st.sampled_from([0.01, 0.3, 2.0])),
        "tokens": draw(st.sampled_from([600, 600, 600, 0])),
        "obedient": draw(st.booleans()),
        "refuses": draw(st.integers(0, 9)) == 0,
        "attempt_up": draw(st.integers(0, 19)) == 0,
        "patch": draw(st.sampled_from([None] * 8 + [{"clip_high": 0.3}, {"clip_mode": "nominal"}])),
        "verb": draw(st.sampled_from([None] * 16 + [OperatorVerb.KILL, OperatorVerb.SET_MODE])),
    }


def person(verb: OperatorVerb, **fields: Any) -> OperatorAction:
    mode = {"mode": Mode.AUTO} if verb is OperatorVerb.SET_MODE else {}
    return OperatorAction(job="run", verb=verb, issuer="ada", reason="r", **mode, **fields)


@settings(max_examples=60, deadline=None)
@given(series=st.lists(steps(), min_size=1, max_size=40))
def test_actions_stay_within_their_bounds_for_any_input(series: list[dict[str, Any]]) -> None:
    state = RunState.initial("run", Mode.AUTO)
    own = Controls(ratio_reference="sampler")
    attempt, generation = 1, 0
    overrides: dict[str, Any] = {}
    acted: list[int] = []
    patched: dict[str, Any] = {}
    for step, given_ in enumerate(series):
        fields = dict(given_)
        obedient, refuses = fields.pop("obedient"), fields.pop("refuses")
        patch, verb = fields.pop("patch"), fields.pop("verb")
        attempt += fields.pop("attempt_up")
        before = state.generation
        if verb is not None:
            state = advance(TIGHT, state, person(verb)).state
        if verb is OperatorVerb.KILL:
            patched = {}
        if patch is not None and not state.killed:
            patched |= patch
            state = advance(TIGHT, state, person(OperatorVerb.PATCH_CONTROLS, overrides=patch)).state
        assert state.generation >= before
        refusals = ("centering: not now",) if refuses else ()
        if refuses:
            overrides.pop("centering", None)
        summary = step_summary(
            step,
            attempt=attempt,
            applied=own.overlaid(overrides),
            generation=generation,
            overrides=dict(overrides),
            capabilities=CAPABLE,
            refusals=refusals,
            **fields,
        )
        before = state.generation
        outcome = advance(TIGHT, state, summary)
        state = outcome.state
        assert state.generation >= before
        made = [e for e in outcome.events if e.kind is EventKind.CONTROLS_CHANGED and "proposal" in e.detail]
        assert len(made) <= 1
        acted += [state.tick] * len(made)
        if made:
            assert state.steps > TIGHT.policy.settle
        if any(e.kind is EventKind.ROLLED_BACK for e in outcome.events):
            assert state.person_overrides.items() <= patched.items() or state.person_overrides.keys() <= patched.keys()
            patched = dict(state.person_overrides)
        if state.killed:
            assert (state.overrides, state.mode, made) == ({}, Mode.OBSERVE, [])
        # What a person set is theirs, and is what is wanted.
        assert state.person_overrides == patched
        assert state.overrides.items() >= patched.items()
        own.overlaid(state.overrides)
        # The command is due exactly while the trainer reports something else, but for what it refuses.
        wanted = {name: value for name, value in state.overrides.items() if not (refuses and name == "centering")}
        differs = generation != state.generation or overrides != wanted
        assert (outcome.command is not None) == (state.generation > 0 and differs)
        if obedient and outcome.command is not None:
            generation, overrides = outcome.command.generation, dict(outcome.command.overrides)
        assert text(reloaded(state)) == text(state)
        assert len(state.ladder.actions) <= TIGHT.policy.budget
    assert all(later - earlier >= TIGHT.policy.cooldown for earlier, later in pairwise(acted))
