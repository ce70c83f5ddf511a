"""D23 to D29: ratio, clip and importance metrics that lie. The reports are other people's runs, restated."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from agent_runs import step_summary
from case_runs import acted, fired, incident, normal, scalars, told, with_mismatch

from trimtab.agent.state import State
from trimtab.api.server import running
from trimtab.api.service import Service
from trimtab.hooks.controls import Controls
from trimtab.hooks.records import RATIO_CAPS, RecordError, SequenceTotals, StepSummary


def weighted(importance: str, high: float) -> Controls:
    """Importance weights of whole sequences."""
    return Controls(importance=importance, importance_high=high, importance_level="sequence")  # type: ignore[arg-type]


def of_sequences(log_ratios: np.ndarray) -> SequenceTotals:
    """What a hook sums up of [sequences, tokens] log-ratios."""
    ratios = np.exp(log_ratios.sum(1))
    return SequenceTotals(
        sequences=len(ratios),
        observed=len(ratios),
        ratio=float(ratios.sum()),
        ratio_sq=float((ratios**2).sum()),
        ratio_above=tuple(int((ratios > cap).sum()) for cap in RATIO_CAPS),
    )


def sequences_of(step: int, log_ratios: np.ndarray, applied: Controls) -> StepSummary:
    flat = log_ratios.ravel()
    halves = flat[: flat.size // 2], flat[flat.size // 2 :]
    return with_mismatch(step, halves, applied=applied, sequences=of_sequences(log_ratios))


def d23() -> None:
    """huggingface/trl#5814: ratios of sequences summed instead of averaged: 0.57 where tokens say 1."""
    rng, sequence_weights = np.random.default_rng(3), weighted("tis", 3.0)
    noise = rng.normal(0, 0.02, (256, 512))
    records = [sequences_of(i, noise, sequence_weights) for i in range(6)]
    assert fired(told(records)[1]) == []  # both means near 1: exp(512 x 0.02^2 / 2) = 1.11

    shifted = noise - noise.mean() + (np.log(0.569) - 512 * 0.02**2 / 2) / 512
    records = [sequences_of(i, shifted, sequence_weights) for i in range(6)]
    state, events = told(records)
    assert fired(events) == [(1, "pipeline")]
    told_of = incident(state, "pipeline")
    assert told_of.rule == "deflation"
    assert told_of.evidence["sequence_ratio"] == pytest.approx(np.exp(shifted.sum(1)).mean())
    assert told_of.evidence["sequence_ratio"] == pytest.approx(0.569, rel=0.1)
    assert told_of.evidence["token_ratio"] == pytest.approx(0.9989, abs=5e-4)
    assert "geometric mean" in told_of.proposed

    # The report's own pair, 0.569 as a product and 0.993 as a mean, is that of 80 tokens: 0.993^80 = 0.57.
    short = rng.normal(np.log(0.993) - 0.02**2 / 2, 0.02, (1000, 80))
    evidence = incident(told([sequences_of(i, short, sequence_weights) for i in range(2)])[0], "pipeline").evidence
    assert evidence["sequence_ratio"] == pytest.approx(0.569, abs=0.005)
    assert evidence["token_ratio"] == pytest.approx(0.993, abs=0.0005)

    unused = [replace(record, applied=Controls()) for record in records]
    assert fired(told(unused)[1]) == []


def d24() -> None:
    """huggingface/trl#4772: 0.012 a token over 100 tokens is a ratio of 3.32, above the cap of 3: all is masked."""
    constant = np.full((64, 100), 0.012)
    state, events = told([sequences_of(i, constant, weighted("mis", 3.0)) for i in range(8)])
    assert fired(events) == [(5, "retained")]
    verdict = state.verdicts["retained"]
    assert verdict.evidence["retained_fraction"] == 0.0
    assert "100 tokens of +0.012 nats each are a ratio of 3.32, and the band ends at 3" in verdict.message
    assert "geometric mean" in incident(state, "retained").proposed
    assert "not a wider band" in incident(state, "retained").proposed
    assert not acted(events)


def d26() -> None:
    """huggingface/trl#5231: logged ratios are those after truncation. The raw ones are kept: 9.0, and half modified."""
    raw = np.log(np.full(100, 0.2)), np.log(np.full(100, 9.0))
    tis = Controls(importance="tis", importance_high=3.0)
    state, _ = told([with_mismatch(i, raw, applied=tis, scalars=scalars(retained_fraction=1.0)) for i in range(6)])
    evidence = state.verdicts["retained"].evidence
    assert evidence["raw_max"] == pytest.approx(9.0, rel=0.04)
    assert evidence["modified_fraction"] == 0.5


def d28(tmp_path: Path) -> None:
    """RLinf/RLinf#1471: a clip fraction of 31.0. Refused with the name of its field, and never judged."""
    with pytest.raises(RecordError, match=r"^scalars.clip_fraction: 31.0 is not a fraction in \[0, 1\]"):
        normal(0, scalars=scalars(clip_fraction=31.0))
    service = Service.open(tmp_path / "agent.db")
    try:
        with running(service) as url, httpx.Client(base_url=url, trust_env=False, timeout=10) as http:
            body = {"job": "run", "attempt": 1, "step": 0, "scalars": {"clip_fraction": 31.0}}
            answer = http.post("/v1/summaries", json=body)
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["field"] == "scalars.clip_fraction"
            assert http.get("/v1/jobs/run").status_code == 404
    finally:
        service.close()


def d29() -> None:
    """verl-project/verl PR#972: clip fraction 0 because every ratio is 1. No alarm, and no claim of health."""
    ones = np.zeros(1000), np.zeros(1000)
    state, events = told([with_mismatch(i, ones) for i in range(200)])
    assert state.verdicts["mismatch"].state is State.INCONCLUSIVE
    assert "not informative (on-policy, one pass, one engine)" in state.verdicts["mismatch"].message
    assert fired(events) == []


CASES: dict[str, Callable[[], None]] = {case.__name__.upper(): case for case in (d23, d24, d26, d29)}


@pytest.mark.parametrize("case", CASES)
def test_public_case(case: str) -> None:
    CASES[case]()


def test_public_case_d28(tmp_path: Path) -> None:
    d28(tmp_path)


def test_a_summary_of_no_sequences_is_no_deflation() -> None:
    record = replace(step_summary(0), applied=weighted("mis", 3.0), sequences=SequenceTotals(sequences=4))
    assert told([record])[0].verdicts["retained"].state is State.NOT_OBSERVED
