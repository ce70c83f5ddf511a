"""Faults of the pipeline, by name, and what is none."""

from dataclasses import replace

import numpy as np
import pytest
from agent_runs import Plant, step_summary
from agent_verdicts import verdict
from case_runs import acted, fired, told

from trimtab.agent.detectors.pipeline import beyond
from trimtab.agent.signals.step import Step
from trimtab.agent.state import State
from trimtab.hooks.records import SequenceTotals, StepSummary

N = 4000


def steps(d: np.ndarray, n: int = 6) -> list[StepSummary]:
    return [step_summary(i, mismatch=(d[: d.size // 2], d[d.size // 2 :])) for i in range(n)]


def sampled(seed: int, entropy: float, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs of both sides of tokens that the second one drew, over 50 tokens of noisy logits."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, entropy, (N, 50))
    other = logits + rng.normal(0, noise, logits.shape)
    both = [each - np.log(np.exp(each).sum(1, keepdims=True)) for each in (logits, other)]
    drawn = (both[1] + rng.gumbel(size=logits.shape)).argmax(1)[:, None]
    return np.take_along_axis(both[0], drawn, 1)[:, 0], np.take_along_axis(both[1], drawn, 1)[:, 0]


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5, 1.5])
@pytest.mark.parametrize("entropy", [1.0, 4.0])
def test_noise_of_any_size_is_no_fault(entropy: float, noise: float) -> None:
    for seed in range(3):
        trainer, sampler = sampled(seed, entropy, noise)
        assert verdict("pipeline", steps(trainer - sampler)).state is State.OK


def test_log_probs_of_the_next_token_are_misaligned() -> None:
    trainer, sampler = sampled(0, 4.0, 0.02)
    found = verdict("pipeline", steps(np.roll(trainer, 1) - sampler, 1))
    assert (found.state, found.rule) == (State.CRITICAL, "misaligned")


def test_log_probs_within_top_p_are_an_offset() -> None:
    trainer, sampler = sampled(0, 2.0, 0.0)
    kept = np.random.default_rng(0).uniform(0.9, 0.95, N)
    found = verdict("pipeline", steps(trainer - (sampler - np.log(kept))))
    assert (found.state, found.rule) == (State.WARN, "offset")
    assert found.evidence["mismatch_mean"] == pytest.approx(np.log(kept).mean(), rel=1e-3)


def test_tokens_beyond_are_counted_outside_the_bin_of_the_bound() -> None:
    d = np.array([-1.5, -1.0, -0.5, 0.0, 1.0, 1.5, 3.0, 25.0, -25.0])
    [summary] = steps(d, 1)
    parts = Step(summary).parts("mismatch")
    assert [beyond(parts, x) for x in (-20.0, -1.0, 1.0, 2.0, 20.0)] == [1, 2, 3, 2, 1]


def test_an_overflow_under_the_mask_alone_is_told_and_bars_no_remedy() -> None:
    plant = Plant(seed=1, noisy_from=0)
    hidden = SequenceTotals(sequences=1, latent=3)
    state, events = told([replace(plant.advance(), sequences=hidden) for _ in range(10)])
    assert (1, "pipeline") in fired(events)
    assert state.verdicts["pipeline"].evidence == {"masked_overflow": 3.0}
    assert acted(events)
