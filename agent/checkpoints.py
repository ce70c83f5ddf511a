"""Which of the trainer's checkpoints were taken while the run was healthy, and which of them to keep.

A checkpoint is judged once, in the first summary that names it. It is healthy where no incident of harm or of broken
inputs is open, and the mean reward is at least 90 % of its highest so far in the attempt: the signature of a mismatch
may be there already, since what it does to the policy takes time. One that is not called `ATTEMPT:STEP` can be gone
back to by hand only, and is passed over. The best is the one with the highest mean reward, the newest of equals.

While something is wrong the best is pinned: trainers keep a few checkpoints only, and by the time a run is given up
they would all be of a broken policy (kyutai-labs/pocket-tts#262).
"""

from __future__ import annotations

from trimtab.agent.changes import AGENT, event, stated
from trimtab.agent.config import AgentConfig
from trimtab.agent.detector import Role
from trimtab.agent.incidents import fingerprint, is_open, played_by
from trimtab.agent.reading import Reading, share_of
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event, EventKind
from trimtab.agent.values import replace
from trimtab.hooks.controls import CHECKPOINT

SHARE = 0.9
"""Share of the highest mean reward that a healthy checkpoint has."""
KEPT = 64
"""Checkpoints that are remembered."""


def recorded(state: RunState, reading: Reading) -> RunState:
    """With the checkpoints that the trainer names for the first time, and without those that it has no more."""
    if state.reported is None:
        return state
    present = tuple(name for name in state.reported.capabilities.checkpoints if CHECKPOINT.fullmatch(name))[-KEPT:]
    healthy = {name: reward for name, reward in state.checkpoints.items() if name in present}
    new = [name for name in present if name not in state.judged_checkpoints]
    if new and _is_healthy(state, reading):
        healthy |= dict.fromkeys(new, reading.mean("reward_mean"))
    if (present, healthy) == (state.judged_checkpoints, state.checkpoints):
        return state
    return replace(state, checkpoints=healthy, judged_checkpoints=present)


def best(state: RunState) -> str:
    """The best healthy checkpoint, as `ATTEMPT:STEP`; empty where there is none."""

    def rank(name: str) -> tuple[float, int, int]:
        attempt, _, step = name.partition(":")
        reward = state.checkpoints[name]
        return (-float("inf") if reward is None else reward, int(attempt), int(step))

    return max(state.checkpoints, key=rank, default="")


def pinned(config: AgentConfig, state: RunState) -> tuple[RunState, tuple[Event, ...]]:
    """With the best checkpoint pinned while an incident is open, and none when none is."""
    reported = state.reported
    if reported is None or state.ladder.locked or "pin" in config.policy.limits.untouched:
        return state, ()
    wrong = any(is_open(incident) for incident in state.incidents.values())
    name = state.pin or best(state)
    wanted = name if wrong and name in reported.capabilities.checkpoints else ""
    possible = not wanted or reported.capabilities.refusal("pin", wanted) is None
    if wanted == state.pin or not possible or "pin" in state.person_overrides:
        return state, ()
    message = f"checkpoint {wanted} is to be kept" if wanted else f"checkpoint {state.pin} need not be kept any more"
    state = stated(state, replace(state, pin=wanted), issuer=AGENT, reason=message)
    return state, (event(state, EventKind.CHECKPOINT_PINNED, message, checkpoint=wanted, generation=state.generation),)


def _is_healthy(state: RunState, reading: Reading) -> bool:
    roles = (*played_by(Role.HARM), *played_by(Role.INPUT))
    if any(is_open(state.incidents.get(fingerprint(state.job, name))) for name in roles):
        return False
    reward, peak = reading.mean("reward_mean"), reading.peak("reward_mean")
    return reward is None or peak is None or reward >= share_of(peak, SHARE)
