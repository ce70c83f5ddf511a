"""What an incident most likely means, what to do about it, and what that costs: one table, by detector and rule.

It is advice to a person. What the agent itself may do is `trimtab.agent.policy`'s business, and nothing here changes a
control: not the entropy coefficient, not the learning rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trimtab.agent.detector import Role
from trimtab.agent.detectors import DETECTORS
from trimtab.agent.state import Incident, State, Verdict
from trimtab.agent.values import replace
from trimtab.hooks.controls import Controls


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """On one kind of incident."""

    cause: str
    """Most likely."""
    proposed: str
    cost: str


NO_REMEDY = "; no remedy is applied"
"""What every proposal about a fault of the pipeline ends with."""
_STOP = "training stands still until it is done"
_PRECISION = Advice(
    cause="low-precision rollouts: the sampler's numbers differ from the trainer's, and the clip feels it",
    proposed="score centering on recomputed ratios; a higher precision where that does not help",
    cost="one forward pass a rollout",
)

ADVICE: dict[str, Advice] = {
    "nonfinite": Advice(
        cause="an overflow, or broken weights, in the tensor that is named first; the others follow from it",
        proposed="go back to the last checkpoint that was finite, and leave the clip bounds as they are" + NO_REMEDY,
        cost="the steps since that checkpoint",
    ),
    "nonfinite.sampler": Advice(
        cause="the sampler's engine is broken: a failed transfer of weights, or quantised weights without their scales",
        proposed="stop that sampler, restart it, and load its weights again" + NO_REMEDY,
        cost="one restart of the engine; rollouts since the last transfer of weights are lost",
    ),
    "nonfinite.entropy": Advice(
        cause="a padded vocabulary: 0 times -inf",
        proposed="leave out tokens of probability 0 where the entropy is computed",
        cost="nothing; until then the entropy is not judged",
    ),
    "tokens": Advice(
        cause="masks, log-probs or answers are missing upstream: nothing is trained",
        proposed="look at what the sampler returned, log-probs first, and at how masks are made of it" + NO_REMEDY,
        cost=_STOP,
    ),
    "vanished": Advice(
        cause="loggers leave out what is not finite, and what was not computed; the log does not say which",
        proposed="look at the trainer's own output for that step, or attach in the process, where every value counts"
        + NO_REMEDY,
        cost="nothing",
    ),
    "pipeline.scales": Advice(
        cause="wrong weights in the sampler: quantised weights loaded without, or with other, scales",
        proposed="check how quantised weights are loaded, then load them again" + NO_REMEDY,
        cost="one restart of the engine; importance weights instead would set almost every token to zero",
    ),
    "pipeline.offset": Advice(
        cause="the two sides report probabilities of different distributions: top-p or top-k in the sampler's only, "
        "or another temperature",
        proposed="let the sampler report log-probs of the full distribution at its temperature, and the trainer use "
        "the same temperature" + NO_REMEDY,
        cost="nothing",
    ),
    "pipeline.first_token": Advice(
        cause="the first token of every response is sampled from, or matched with, something else: a prompt cut "
        "differently, or a stale first step of an engine",
        proposed="compare the prompt's tokens on both sides; leave the first token out of the mask until then"
        + NO_REMEDY,
        cost="one token a response",
    ),
    "pipeline.misaligned": Advice(
        cause="log-probs of one side are matched with tokens of the other: shifted by one, or of another response",
        proposed="match tokens by index, and check one response by hand" + NO_REMEDY,
        cost=_STOP,
    ),
    "pipeline.padding": Advice(
        cause="padding lies inside the loss mask: no end-of-sequence token was found",
        proposed="end the mask at the end of the response" + NO_REMEDY,
        cost="nothing; until then padding is trained on",
    ),
    "pipeline.overflow": Advice(
        cause="a token that the sampler gave next to no probability: far too stale, or not its own",
        proposed="mask in log space before any exponential (where before exp), and drop tokens that stale" + NO_REMEDY,
        cost="the tokens that are dropped",
    ),
    "pipeline.latent": Advice(
        cause="a token that was masked for being far too stale, or a gap in the response, whose ratio is infinite",
        proposed="mask in log space before any exponential (where before exp): 0 * inf is NaN",
        cost="nothing",
    ),
    "pipeline.clamped": Advice(
        cause="the policy has drifted far from the one that sampled: log-ratios lie beyond +-20",
        proposed="fresher rollouts, or a smaller step" + NO_REMEDY,
        cost="rollouts wait for the trainer",
    ),
    "pipeline.deflation": Advice(
        cause="a sequence's importance weight is a product: small differences of its tokens add up with its length",
        proposed="importance weights of tokens, or the geometric mean of a sequence's" + NO_REMEDY,
        cost="a bias that grows with the distance of the two policies instead of a variance that grows with length",
    ),
    "mismatch": _PRECISION,
    "clipping": _PRECISION,
    "overreach": Advice(
        cause="bounds too loose, or steps too large, for so many passes: the updates leave the policy that sampled",
        proposed="clip bounds of 0.2 below and 0.28 above; smaller steps, or fewer passes, where that is not enough",
        cost="nothing",
    ),
    "asymmetry": replace(
        _PRECISION,
        cause="low-precision rollouts: punished tokens fall below the clip bound, and their penalty is lost",
    ),
    "retained": Advice(
        cause="the importance mask drops most of the batch: products over whole sequences leave its band by length",
        proposed="truncation of tokens, or the geometric mean of a sequence's ratios; not a wider band",
        cost="a bias from tokens that are kept",
    ),
    "invariant": Advice(
        cause="sampler and trainer do not compute the same any more, though the job declares that they do",
        proposed="compare with the last revision that was exact: kernels, batch invariance, number formats",
        cost="nothing",
    ),
    "learning": Advice(
        cause="every group has one reward for all its responses: advantages compare inside a group, so differences "
        "between groups teach nothing",
        proposed="questions of another difficulty, larger groups, or sampling until groups differ",
        cost="more rollouts a step",
    ),
    "resume": Advice(
        cause="the run went on from something else than it stopped with: optimizer state, sampler weights, or data",
        proposed="load the sampler's weights again, and compare what the checkpoint holds with what was loaded",
        cost="the steps since the resume",
    ),
    "limits": Advice(
        cause="the two sides are so far apart that a few tokens would carry any correction of the rest",
        proposed="fresher rollouts or a higher precision of the sampler, before any importance weight",
        cost="slower rollouts",
    ),
    "jump": Advice(
        cause="something changed from one step to the next: weights, a switch of formats, or one broken batch",
        proposed="look at what was done in that step; go back to the checkpoint before it if the value stays",
        cost="the steps since that checkpoint",
    ),
    "slope": Advice(
        cause="a drift that has not done harm yet",
        proposed="act before the limit is reached: fresher rollouts, or a higher precision",
        cost="slower rollouts",
    ),
    "drift": Advice(
        cause="the run has left what it was like at first, slowly",
        proposed="compare with the last healthy checkpoint; nothing is done by itself",
        cost="nothing",
    ),
    "shift": Advice(
        cause="punished and rewarded tokens move apart: low precision, or rollouts that are too old",
        proposed="watch the asymmetry and the reward; calibrated clipping if the penalties are lost",
        cost="BF16 forward passes at two versions of the weights",
    ),
    "entropy_trend": Advice(
        cause="the policy loses its variety, or dissolves, and earns nothing by it",
        proposed="advice only: a wider upper clip bound or an entropy bonus against a fall, a smaller step against "
        "a rise",
        cost="slower learning",
    ),
    "entropy": Advice(
        cause="the policy loses its variety, or dissolves, faster than it learns",
        proposed="advice only: a wider upper clip bound or an entropy bonus against a collapse, a smaller step or a KL "
        "penalty against an explosion",
        cost="slower learning",
    ),
    "garbage": Advice(
        cause="the policy has left the language of the task",
        proposed="go back to a healthy checkpoint, with the remedy for the cause on",
        cost="the steps since that checkpoint",
    ),
    "reward": Advice(
        cause="unknown: no earlier sign is firing",
        proposed="look at the signs below it first; go back to a healthy checkpoint if it goes on",
        cost="the steps since that checkpoint",
    ),
}
OTHERWISE = Advice(cause="unknown", proposed="look at the evidence; nothing is done by itself", cost="nothing")


def advised(incident: Incident, verdicts: Mapping[str, Verdict], applied: Controls | None) -> Incident:
    """The incident with what it likely means; `verdicts` are the step's, by detector, `applied` its controls, None
    where they are not known."""
    name = incident.detector
    advice = ADVICE.get(f"{name}.{incident.rule}") or ADVICE.get(name, OTHERWISE)
    role, cause = DETECTORS[name].ROLE, advice.cause
    if role is Role.SIGNATURE and applied is not None and applied.sampler_format == applied.train_format == "bf16":
        cause = "no number format, since both sides compute in BF16: staleness, or kernels that differ"
    if role is Role.HARM and incident.cause is None:
        cause += _unseen(verdicts)
    if incident.cause is not None:
        cause = f"{incident.cause}, which explains it"
    return replace(incident, likely_cause=cause, proposed=advice.proposed, cost=advice.cost)


def _unseen(verdicts: Mapping[str, Verdict]) -> str:
    """Signs that would have led, and that the run does not report."""
    missing = [
        name
        for name, verdict in verdicts.items()
        if verdict.state is State.NOT_OBSERVED and DETECTORS[name].ROLE is Role.SIGNATURE
    ]
    return f"; missing, since not captured: {', '.join(missing)}" if missing else ""
