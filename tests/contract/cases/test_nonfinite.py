"""D01 to D09: values that are not finite. The reports are other people's runs, restated."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from agent_runs import step_summary
from case_runs import NO_SAMPLER, QUIET, acted, fired, incident, normal, of, scalars, told
from token_batches import accumulated

from trimtab.agent.state import EventKind, State, Verdict
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.hooks.records import NonFinite, StepSummary, TokenBatch
from trimtab.hooks.sketch import BINS
from trimtab.trainer.objective import LossInputs, policy_loss

NAN = math.nan


def d01() -> None:
    """PrimeIntellect-ai/prime-rl#2972: one stale token with a log-ratio of 89, whose exponential is infinite."""
    train = np.array([[-1.0, -2.0, -0.9, -1.0]], dtype=np.float32)
    sampler = np.array([[-1.0, -91.0, -1.0, -1.0]], dtype=np.float32)
    tensors = {"train_logprobs": train, "rollout_logprobs": sampler, "advantages": np.ones(1, dtype=np.float32)}
    masked = accumulated(tensors | {"loss_mask": np.array([[1, 0, 1, 1]])})
    [live] = [part for part in masked.sketches["mismatch"].signs() if part.n]
    assert live.n == 3
    assert live.sum("log_ratio") / live.n == pytest.approx(0.1 / 3, rel=1e-5)
    assert all(math.isfinite(value) for value in live.sums)
    assert masked.sequences is not None
    assert (masked.sequences.latent, masked.nonfinite) == (1, {})
    state, events = told([replace(masked, attempt=1, step=i) for i in range(2)])
    assert fired(events) == [(1, "pipeline")]
    verdict = state.verdicts["pipeline"]
    assert (verdict.state, verdict.rule, verdict.evidence) == (State.WARN, "latent", {"masked_overflow": 1.0})
    assert verdict.message.startswith("latent overflow: 1 masked +inf")
    padded = accumulated(tensors | {"loss_mask": np.array([[1, 0, 0, 0]])})
    assert fired(told([replace(padded, attempt=1, step=i) for i in range(2)])[1]) == []

    logprobs = torch.from_numpy(train).requires_grad_()
    loss = policy_loss(
        LossInputs(
            train_logprobs=logprobs,
            old_logprobs=torch.from_numpy(train),
            rollout_logprobs=torch.from_numpy(sampler),
            advantages=torch.ones(1, 1),
            mask=torch.tensor([[1.0, 0.0, 1.0, 1.0]]),
        ),
        Controls(ratio_reference="sampler"),
        ClipBounds.nominal(Controls()),
    ).loss
    loss.backward()
    assert logprobs.grad is not None
    assert torch.isfinite(loss)
    assert torch.isfinite(logprobs.grad).all()
    assert logprobs.grad[0, 1] == 0

    unmasked = accumulated(tensors | {"loss_mask": np.ones((1, 4))})
    state, events = told([replace(unmasked, attempt=1)])
    assert fired(events) == [(0, "pipeline")]
    assert state.verdicts["pipeline"].state is State.CRITICAL
    assert (state.verdicts["pipeline"].rule, incident(state, "pipeline").evidence) == (
        "overflow",
        {"mismatch_overflow": 1.0, "clamped_fraction": 0.25, "clamped_limit": 0.001},
    )


def d02() -> None:
    """prime-rl PR#1329: log-ratios of +-700. The clamped share is told and no sum overflows; +700 is D01's token."""

    def drifted(*two: float) -> tuple[StepSummary, Verdict]:
        ratios = np.r_[np.zeros(498), two], np.zeros(500)
        summary = replace(normal(0), sketches=step_summary(0, update=ratios, mismatch=QUIET).sketches)
        return summary, told([summary])[0].verdicts["pipeline"]

    summary, verdict = drifted(-700.0, -700.0)
    tokens = summary.sketches["update"].negative
    assert (verdict.state, verdict.rule) == (State.WARN, "clamped")
    assert verdict.evidence == {"clamped_fraction": 0.002, "clamped_limit": 0.001}
    assert (tokens.bins[0], tokens.counts[0]) == (0, 2)
    assert tokens.sum("log_ratio") == -40.0

    for low, high in ((-700.0, 700.0), (700.0, 700.0)):
        summary, verdict = drifted(low, high)
        tokens, over = summary.sketches["update"].negative, 1 + (low > 0)
        assert (verdict.state, verdict.rule) == (State.CRITICAL, "overflow")
        assert verdict.evidence["update_overflow"] == over
        assert verdict.evidence["clamped_fraction"] == 0.002
        assert (tokens.bins[-1], tokens.counts[-1]) == (BINS - 1, over)
        assert (tokens.sum("log_ratio"), tokens.sum("log_ratio_sq")) == (20.0 + math.copysign(20.0, low), 800.0)
        assert all(math.isfinite(value) for value in tokens.sums)


def d04() -> None:
    """huggingface/trl#6166: the sampler returns NaN: a broken engine, which nothing may hide."""
    some = {
        "train_logprobs": np.array([[-0.1, -0.2, -0.3]], dtype=np.float32),
        "rollout_logprobs": np.array([[-0.1, np.nan, -0.3]], dtype=np.float32),
        "advantages": np.ones(1, dtype=np.float32),
        "loss_mask": np.ones((1, 3)),
    }
    summary = accumulated(some)
    assert summary.nonfinite["rollout_logprobs"].nan == 1
    assert sum(part.n for part in summary.sketches["mismatch"].signs()) == 2
    state, events = told([*(normal(i) for i in range(6)), replace(step_summary(6, update=QUIET), nonfinite=NO_SAMPLER)])
    assert fired(events) == [(6, "nonfinite")]
    assert "load its weights again" in incident(state, "nonfinite").proposed
    assert "no remedy is applied" in incident(state, "nonfinite").proposed
    assert not acted(events)


def d05() -> None:
    """verl-project/verl#721: at step 59 everything is NaN at once. One incident, in that step, named by its root."""
    broken = normal(
        59,
        scalars=scalars(loss=NAN, grad_norm=NAN),
        nonfinite={"old_logprobs": NonFinite(nan=900), "train_logprobs": NonFinite(nan=900)},
    )
    state, events = told([*(normal(i) for i in range(59)), broken])
    assert fired(events) == [(59, "nonfinite")]
    assert state.verdicts["nonfinite"].message.startswith("old_logprobs: 900 NaN")
    assert "last checkpoint that was finite" in incident(state, "nonfinite").proposed
    assert not acted(events)


def d06() -> None:
    """OpenRLHF/OpenRLHF#1120: loss NaN, then reward 0. The NaN explains the reward: one incident is told, not two."""
    rewards = [0.6] * 20 + [0.0] * 20
    records = [
        normal(i, scalars=scalars(reward_mean=reward, loss=NAN if i >= 20 else 0.01))
        for i, reward in enumerate(rewards)
    ]
    state, events = told(records)
    assert fired(events) == [(20, "nonfinite")]
    assert state.verdicts["reward"].state is State.CRITICAL
    assert incident(state, "reward").cause == "run/nonfinite"
    assert not acted(events)


def d07() -> None:
    """unslothai/unsloth#3006: loss 0.0 with gradient norm NaN, every step from 1. The finite loss must not hide it."""
    records = [normal(i, scalars=scalars(loss=0.0, grad_norm=NAN)) for i in range(1, 40)]
    state, events = told(records)
    assert fired(events) == [(1, "nonfinite")]
    assert state.verdicts["nonfinite"].message == "grad_norm: 1 NaN"
    assert state.tracks["grad_norm"].baseline.average is None
    assert not [event for event in of(events, EventKind.VERDICT_CHANGED) if not math.isfinite(event.detail["score"])]


def d08() -> None:
    """NovaSky-AI/SkyRL PR#2259: padded vocabulary makes every entropy NaN. That channel is blind, the others go on."""
    summary = step_summary(0, update=QUIET, mismatch=QUIET, scalars=scalars())
    records = [replace(summary, step=i, nonfinite={"entropy": NonFinite(nan=1000)}) for i in range(8)]
    state, _ = told(records)
    assert state.verdicts["entropy"].state is State.INCONCLUSIVE
    assert (state.verdicts["nonfinite"].state, state.verdicts["nonfinite"].rule) == (State.WARN, "entropy")
    for other in ("mismatch", "garbage", "reward", "tokens", "pipeline"):
        assert state.verdicts[other].state is State.OK


def d09() -> None:
    """NovaSky-AI/SkyRL PR#1707: every token is masked. The hook gives a row of no tokens, and raises nothing."""
    batch = {
        "train_logprobs": np.full((2, 3), -1.0, dtype=np.float32),
        "rollout_logprobs": np.full((2, 3), -1.0, dtype=np.float32),
        "advantages": np.ones(2, dtype=np.float32),
        "loss_mask": np.zeros((2, 3)),
    }
    assert TokenBatch(**batch).old_logprobs is None
    summary = accumulated(batch)
    assert summary.tokens == 0
    assert math.isnan(summary.sketches["mismatch"].pooled.quantile(0.5))
    state, events = told([normal(0), replace(summary, attempt=1, step=1)])
    assert state.verdicts["tokens"].state is State.INCONCLUSIVE
    assert state.verdicts["tokens"].evidence == {"empty_steps": 1.0}
    assert fired(events) == []


CASES: dict[str, Callable[[], None]] = {
    case.__name__.upper(): case for case in (d01, d02, d04, d05, d06, d07, d08, d09)
}


@pytest.mark.parametrize("case", CASES)
def test_public_case(case: str) -> None:
    CASES[case]()
