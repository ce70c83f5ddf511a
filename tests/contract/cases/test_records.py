"""D39 to D50: masks, tokens, positions; logging, resume, ranks. The reports are other people's runs, restated."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from agent_runs import step_summary
from case_runs import QUIET, acted, fired, incident, normal, of, scalars, told
from token_batches import accumulated

from trimtab.agent.config import AgentConfig
from trimtab.agent.state import EventKind, State
from trimtab.api.service import Service

NAN = math.nan


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service.open(tmp_path / "agent.db")
    yield service
    service.close()


def d39() -> None:
    """verl-project/verl#3805: no end of sequence, so the mask holds 32 of 10 tokens: padding is trained on."""
    state, events = told([normal(i, scalars=scalars(mask_tokens_excess=22.0)) for i in range(3)])
    assert fired(events) == [(1, "pipeline")]
    assert state.verdicts["pipeline"].state is State.WARN
    assert state.verdicts["pipeline"].message == "padding inside the mask: 22 tokens: a fault of the pipeline"
    assert incident(state, "pipeline").proposed.startswith("end the mask at the end of the response")


def d41() -> None:
    """NVIDIA-NeMo/Gym PR#1612: the mask is all zero for 20 steps, training silently frozen. Critical after two."""
    state, events = told([step_summary(i, tokens=0, scalars={"loss": 0.0}) for i in range(20)])
    assert fired(events) == [(1, "tokens")]
    assert state.verdicts["tokens"].message == "no trainable tokens for 20 steps"
    assert state.verdicts["tokens"].state is State.CRITICAL


def d42() -> None:
    """prime-rl's shift_tensor_right, yaof20/Flash-RL#19: a first log-prob that is missing, or +1. Nothing shifts."""
    train = np.array([[-0.5, -1.0, -2.0, -3.0]], dtype=np.float32)
    for first, kind in ((np.nan, "nan"), (1.0, "invalid")):
        summary = accumulated(
            {
                "train_logprobs": train,
                "rollout_logprobs": np.array([[first, -1.0, -2.0, -3.0]], dtype=np.float32),
                "advantages": np.ones(1, dtype=np.float32),
                "loss_mask": np.ones((1, 4)),
            }
        )
        [live] = [part for part in summary.sketches["mismatch"].signs() if part.n]
        assert (live.n, live.sum("log_ratio_sq")) == (3, 0.0)
        assert getattr(summary.nonfinite["rollout_logprobs"], kind) == 1


def d43() -> None:
    """verl-project/verl#7933: a resume from 100 labels its first step 102. A gap of one is noted by its number only."""
    state, events = told([*(normal(i) for i in range(101)), *(normal(i, attempt=2) for i in range(102, 130))])
    assert fired(events) == []
    assert [event.step for event in of(events, EventKind.ATTEMPT_STARTED)] == [0, 102]
    assert (state.steps, state.tick) == (28, 129)


def d48() -> None:
    """NovaSky-AI/SkyRL#1870: sampler log-probs never arrive. The mismatch is not observed, which is not green."""
    state, events = told([step_summary(i, update=QUIET, entropy=0.4, scalars=scalars()) for i in range(40)])
    assert state.verdicts["mismatch"].state is State.NOT_OBSERVED
    assert state.verdicts["pipeline"].state is State.NOT_OBSERVED
    assert state.verdicts["pipeline"].message.startswith("mismatch: not observed")
    assert fired(events) == []


def d50() -> None:
    """huggingface/trl: NaN in every second step is averaged away by logging every second. Each step is judged here."""
    state, events = told([normal(0, scalars=scalars(loss=1.5)), normal(1, scalars=scalars(loss=NAN))])
    assert fired(events) == [(1, "nonfinite")]
    assert sum(state.tracks["nonfinite"].recent) == 1.0
    assert len(state.tracks["nonfinite"].recent) == 2


CASES: dict[str, Callable[[], None]] = {case.__name__.upper(): case for case in (d39, d41, d42, d43, d48, d50)}


@pytest.mark.parametrize("case", CASES)
def test_public_case(case: str) -> None:
    CASES[case]()


def test_public_case_d45(service: Service) -> None:
    """wandb/wandb#4482: a resume goes from step 500 back to 450. Every row is kept; baselines start anew."""
    records = [*(normal(i) for i in range(495, 501)), *(normal(i, attempt=2) for i in range(450, 460))]
    assert {service.ingest(record).result for record in records} == {"stored"}
    assert {service.ingest(record).result for record in records} <= {"duplicate", "ignored"}
    state, keys = service.state("run"), [(e.attempt, e.step) for e in service.store.recorded("run").entries]
    assert keys == [(record.attempt, record.step) for record in records]
    assert (state.attempt, state.last_step, state.tick) == (2, 459, 16)
    assert state.tracks["reward_mean"].baseline.anchor is None
    assert fired(told(records)[1]) == []


def test_public_case_d46(service: Service) -> None:
    """prime-rl PR#1880: rows of step 5 after step 6. Judged in order; what comes too late is kept and told."""
    in_order = [normal(i) for i in range(10)]
    swapped = [*in_order[:5], in_order[6], in_order[5], *in_order[7:]]
    assert [service.ingest(record).result for record in swapped] == ["stored"] * 10
    assert service.state("run") == told(in_order, AgentConfig())[0]

    late = [normal(i, job="late") for i in (0, 1, 2, 3, 4, 6, 7, 8, 5, 9)]
    answers = [service.ingest(record) for record in late]
    assert [answer.result for answer in answers] == ["stored"] * 8 + ["ignored", "stored"]
    assert answers[8].reason == "step 5: late, attempt 1 is at step 8 already"
    assert 5 in {entry.step for entry in service.store.recorded("late").entries}
    assert (service.state("late").steps, service.state("late").last_step) == (9, 9)
    assert not acted(told(swapped)[1])
