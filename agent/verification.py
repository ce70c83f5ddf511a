"""Does the newest remedy help?

A remedy is verified once it has been in effect for `verify` steps; if what asked for it alarms still, the next one is
tried. But a remedy can silence the signature and leave the harm: under centering and recomputed ratios the clip no
longer shows the mismatch, which stays at 0.3 to 0.5 nats for good while the reward rises. So harm is judged by itself.
Steps are counted while a detector of role HARM is firing and alarms, the cause is still there, and the mean reward is
below 85 % of its peak (`detectors.reward.decline`). A gain of reward starts the count anew (`detectors.reward.margin`
above the lowest mean since the last gain); `verify` steps without one say that the remedy does not help, and the harm
then asks for the next.

The cause of a remedy against a signature is the spread of the mismatch, gone below `relax_std`; of one against harm,
that the samples are off-policy at all.
"""

from __future__ import annotations

from math import isfinite

from trimtab.agent.config import AgentConfig
from trimtab.agent.detector import Role
from trimtab.agent.incidents import alarming, fingerprint, played_by
from trimtab.agent.reading import Reading, share_of
from trimtab.agent.run_state import Ladder, RunState
from trimtab.agent.state import Incident, State
from trimtab.agent.values import replace
from trimtab.agent.wrong import off_policy


def verified(config: AgentConfig, state: RunState) -> bool:
    """The newest remedy has been in effect long enough to know that it does not do."""
    if not state.ladder.rungs:
        return True
    since = state.ladder.rungs[-1].applied_tick
    return since is not None and state.tick - since >= config.policy.verify


def cause_lasts(config: AgentConfig, state: RunState, reading: Reading) -> bool:
    """What the newest remedy is there for is still so, or cannot be told."""
    rungs = state.ladder.rungs
    signatures = {fingerprint(state.job, name) for name in played_by(Role.SIGNATURE)}
    if rungs and rungs[-1].incident not in signatures and off_policy(reading):
        return True
    spread = reading.mean("mismatch_std")
    return spread is None or not spread < config.policy.relax_std


def watched(config: AgentConfig, state: RunState, reading: Reading) -> RunState:
    """The state with one more step of harm under the newest remedy, or with none."""
    ladder = state.ladder
    in_effect = bool(ladder.rungs) and ladder.rungs[-1].applied_tick is not None
    settings = config.detectors.reward
    reward, peak = reading.mean("reward_mean"), reading.peak("reward_mean")
    well = reward is not None and peak is not None and reward >= share_of(peak, settings.decline)
    if not in_effect or not off_policy(reading) or well or _harm(state) is None:
        return replace(state, ladder=replace(ladder, harmed=0, trough=None))
    return replace(state, ladder=_counted(ladder, reward, settings.margin))


def _counted(ladder: Ladder, reward: float | None, margin: float) -> Ladder:
    if reward is None or not isfinite(reward):
        return replace(ladder, harmed=ladder.harmed + 1)
    if ladder.trough is not None and reward > ladder.trough + margin:
        return replace(ladder, harmed=0, trough=reward)
    trough = reward if ladder.trough is None else min(reward, ladder.trough)
    return replace(ladder, harmed=ladder.harmed + 1, trough=trough)


def unhelped(config: AgentConfig, state: RunState) -> Incident | None:
    """The harm that the newest remedy has not ended in time, in words that say so."""
    harm, ladder = _harm(state), state.ladder
    if harm is None or ladder.harmed == 0 or ladder.harmed < config.policy.verify:
        return None
    message = f"{ladder.rungs[-1].remedy} is in effect, and in {ladder.harmed} steps the run got no better"
    return replace(harm, message=f"{message}: {harm.message}")


def collapsed(state: RunState) -> bool:
    """The reward has collapsed, and not only declined."""
    verdict = state.verdicts.get("reward")
    return verdict is not None and verdict.state is State.CRITICAL


def _harm(state: RunState) -> Incident | None:
    return next(iter(alarming(state.incidents, Role.HARM)), None)
