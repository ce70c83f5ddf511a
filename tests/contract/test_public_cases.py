"""Faults that people reported of their own runs in public, as small inputs, and what the agent must make of them.

One case a report; its id and the report stand in the docstring. Cases that the hooks or the service answer are tested
there.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from agent_runs import Plant, step_summary

from trimtab.agent.advance import advance
from trimtab.agent.config import AgentConfig
from trimtab.agent.run_state import RunState
from trimtab.agent.state import Event, EventKind, Mode, Phase, State
from trimtab.hooks.contract import TensorContract, contract_differences, report
from trimtab.hooks.records import NonFinite, StepSummary

AUTO = AgentConfig(mode=Mode.AUTO)
RNG = np.random.default_rng(11)
QUIET = RNG.normal(0, 0.01, 1000), RNG.normal(0, 0.01, 1000)
NAN = math.nan


def told(records: list[StepSummary], config: AgentConfig = AUTO) -> tuple[RunState, list[Event]]:
    state, events = RunState.initial("run", config.mode), []
    for record in records:
        outcome = advance(config, state, record)
        state, events = outcome.state, [*events, *outcome.events]
    return state, events


def of(events: list[Event], kind: EventKind) -> list[Event]:
    return [event for event in events if event.kind is kind]


def fired(events: list[Event]) -> list[tuple[int, str]]:
    return [(event.step, event.detail["detector"]) for event in of(events, EventKind.INCIDENT_FIRING)]


def acted(events: list[Event]) -> bool:
    return bool(of(events, EventKind.PROPOSED) + of(events, EventKind.CONTROLS_CHANGED))


def normal(step: int, **fields: object) -> StepSummary:
    scalars = {"reward_mean": 0.6, "loss": 0.01, "grad_norm": 0.2, "garbage_fraction": 0.0}
    summary = step_summary(step, update=QUIET, mismatch=QUIET, entropy=0.4, scalars=scalars)
    return replace(summary, **fields)  # type: ignore[arg-type]


def scalars(**changes: float) -> dict[str, float]:
    return {"reward_mean": 0.6, "loss": 0.01, "grad_norm": 0.2, "garbage_fraction": 0.0} | changes


def d04() -> None:
    """huggingface/trl#6166: the sampler returns NaN for a whole batch: a broken engine, which nothing may hide."""
    broken = replace(step_summary(6, update=QUIET), nonfinite={"rollout_logprobs": NonFinite(nan=1000)})
    state, events = told([*(normal(i) for i in range(6)), broken])
    assert fired(events) == [(6, "nonfinite")]
    assert "load its weights again" in state.verdicts["nonfinite"].message
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
    assert not acted(events)


def d06() -> None:
    """OpenRLHF/OpenRLHF#1120: loss NaN, then reward 0. The NaN explains the reward: one incident, not two."""
    rewards = [0.6] * 20 + [0.0] * 20
    records = [
        normal(i, scalars=scalars(reward_mean=reward, loss=NAN if i >= 20 else 0.01))
        for i, reward in enumerate(rewards)
    ]
    state, events = told(records)
    assert fired(events) == [(20, "nonfinite")]
    assert state.verdicts["reward"].state is State.CRITICAL
    assert not acted(events)


def d07() -> None:
    """unslothai/unsloth#3006: loss 0.0 with gradient norm NaN, every step from 1. The finite loss must not hide it."""
    records = [normal(i, scalars=scalars(loss=0.0, grad_norm=NAN)) for i in range(1, 40)]
    state, events = told(records)
    assert fired(events) == [(1, "nonfinite")]
    assert state.verdicts["nonfinite"].message == "grad_norm: 1 NaN"
    assert state.tracks["grad_norm"].baseline.nonfinite == 39
    assert state.tracks["grad_norm"].baseline.average is None


def d08() -> None:
    """NovaSky-AI/SkyRL PR#2259: padded vocabulary makes every entropy NaN. That channel is blind, the others go on."""
    summary = step_summary(0, update=QUIET, mismatch=QUIET, scalars=scalars())
    records = [replace(summary, step=i, nonfinite={"entropy": NonFinite(nan=1000)}) for i in range(8)]
    state, _ = told(records)
    assert state.verdicts["entropy"].state is State.INCONCLUSIVE
    assert state.verdicts["nonfinite"].state is State.WARN
    for other in ("mismatch", "garbage", "reward", "tokens"):
        assert state.verdicts[other].state is State.OK


def d10() -> None:
    """verl-project/verl#5459: FP8 weights loaded wrongly, log-probs 3 nats off from step 1. Nothing may hide it."""
    off = np.full(1000, 3.0), np.full(1000, 3.1)
    state, events = told([normal(i, sketches=step_summary(i, update=off, mismatch=off).sketches) for i in range(1, 30)])
    assert fired(events) == [(1, "mismatch")]
    assert "fault of the pipeline" in state.verdicts["mismatch"].message
    assert [event.detail["fault"] for event in of(events, EventKind.REFUSED)] == ["offset"]
    assert not acted(events)


def d11() -> None:
    """vllm-project/vllm PR#45835: weights synced at step 10 without their scales; from 11 on nothing is finite."""
    broken = [
        replace(step_summary(i, update=QUIET), nonfinite={"rollout_logprobs": NonFinite(nan=1000)})
        for i in range(11, 16)
    ]
    state, events = told([*(normal(i) for i in range(11)), *broken])
    assert fired(events) == [(11, "nonfinite")]
    assert state.incidents["run/nonfinite"].phase is Phase.FIRING
    assert not acted(events)


def d13() -> None:
    """NVIDIA-NeMo/RL#2180: NaN in steps 13 and 61 of 100. One incident that comes back and goes, no knob touched."""
    records = [
        normal(i, nonfinite={"rollout_logprobs": NonFinite(nan=20)} if i in (13, 61) else {}) for i in range(100)
    ]
    state, events = told(records)
    assert fired(events) == [(13, "nonfinite"), (61, "nonfinite")]
    assert [event.step for event in of(events, EventKind.INCIDENT_RESOLVED)] == [33, 81]
    assert list(state.incidents) == ["run/nonfinite"]
    assert state.incidents["run/nonfinite"].occurrences == 2
    assert not acted(events)


def d19() -> None:
    """THUDM/slime#1695: mismatch 20 x and reward 0.2 x for a few steps after a resume. A transient, not a cause."""
    wide = RNG.normal(0, 0.2, 1000), RNG.normal(0, 0.2, 1000)
    transient = [
        replace(step_summary(i, update=wide, mismatch=wide, entropy=0.4, scalars=scalars(reward_mean=0.12)), attempt=2)
        for i in range(1, 5)
    ]
    after = [normal(i, attempt=2) for i in range(5, 40)]
    state, events = told([*(normal(i) for i in range(40)), *transient, *after])
    assert not acted(events)
    assert fired(events) == []
    assert {verdict.state for verdict in state.verdicts.values()} <= {State.OK, State.INCONCLUSIVE}


def d21() -> None:
    """verl-project/verl PR#7519: 56 weights in FP8 in the trainer, in BF16 in the sampler. Every one is named.

    The sampler was told to leave the routers alone and compares names by substring, on its merged projections: on a
    model without routers `mlp.gate` takes `mlp.gate_up_proj` along, gate and up of all 28 layers.
    """
    fp8 = TensorContract(format="mxfp8", scale_mode="e8m0 block 32", tie_rule="none", quantised=True)
    bf16 = TensorContract(format="bf16", scale_mode="none", tie_rule="none", quantised=False)
    merged = {
        "self_attn.qkv_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.o_proj": ("self_attn.o_proj",),
        "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj": ("mlp.down_proj",),
    }
    ignored = [f"model.layers.{layer}.mlp.gate" for layer in range(28)]

    def quantised_by(ignores: Callable[[str, str], bool]) -> dict[str, TensorContract]:
        side = {"lm_head.weight": bf16}
        for layer in range(28):
            for module, parts in merged.items():
                name = f"model.layers.{layer}.{module}"
                contract = bf16 if any(ignores(entry, name) for entry in ignored) else fp8
                side |= {f"model.layers.{layer}.{part}.weight": contract for part in parts}
        return side

    by_name, by_substring = quantised_by(str.__eq__), quantised_by(lambda entry, name: entry in name)
    differences = contract_differences(by_name, by_substring)
    names = sorted(f"model.layers.{i}.mlp.{part}_proj.weight" for i in range(28) for part in ("gate", "up"))
    assert len(names) == 56
    assert [difference.tensor for difference in differences] == names
    assert {(d.field, d.trainer, d.sampler) for d in differences} == {("format", "mxfp8", "bf16")}
    assert report(differences) == (f"56 tensors are MXFP8 in the trainer but BF16 in the sampler: {', '.join(names)}.")
    assert contract_differences(by_name, by_name) == ()


def d29() -> None:
    """verl-project/verl PR#972: clip fraction 0 because every ratio is 1. No alarm, and no claim of health."""
    ones = np.zeros(1000), np.zeros(1000)
    state, events = told([normal(i, sketches=step_summary(i, update=ones, mismatch=ones).sketches) for i in range(200)])
    assert state.verdicts["mismatch"].state is State.INCONCLUSIVE
    assert fired(events) == []


def d31() -> None:
    """verl-project/verl#5953: entropy from 0.8 to 0.02 in 60 steps, reward flat. A collapse; no control is touched."""
    entropy = np.geomspace(0.8, 0.02, 60)
    records = [step_summary(i, entropy=float(entropy[i]), scalars=scalars()) for i in range(60)]
    _, events = told(records)
    assert [name for _, name in fired(events)] == ["entropy"]
    assert not acted(events)


def d32() -> None:
    """verl-project/verl#2738: entropy from 0.3 to 2.0 over 1000 steps. An alarm with a falling reward, none without."""
    noise = RNG.normal(0, 0.01, 1000)
    entropy = np.linspace(0.3, 2.0, 1000) + noise

    def run(last_reward: float) -> list[tuple[int, str]]:
        reward = np.linspace(0.6, last_reward, 1000) + RNG.normal(0, 0.005, 1000)
        return fired(
            told(
                [
                    step_summary(i, entropy=float(entropy[i]), scalars=scalars(reward_mean=float(reward[i])))
                    for i in range(1000)
                ]
            )[1]
        )

    assert "entropy" in [name for _, name in run(0.42)]
    assert run(0.62) == []


def d34() -> None:
    """huggingface/trl#3857: no group has any variance of reward: nothing is learnt. Not converged, and not green."""
    records = [
        step_summary(i, entropy=0.4, scalars=scalars(zero_variance_fraction=1.0, loss=0.0, grad_norm=0.0))
        for i in range(40)
    ]
    state, events = told(records)
    assert state.verdicts["reward"].state is State.INCONCLUSIVE
    assert state.verdicts["mismatch"].state is State.NOT_OBSERVED
    assert fired(events) == []


def d37() -> None:
    """PrimeIntellect-ai/prime-rl#964: reward 0.95 to 0.1 in 50 steps at step 3000, mismatch unknown. No false cause."""
    rewards = [*([0.95] * 3000), *np.linspace(0.95, 0.1, 50)]
    records = [step_summary(i, scalars={"reward_mean": float(reward)}) for i, reward in enumerate(rewards)]
    state, events = told(records)
    assert {name for _, name in fired(events)} == {"reward"}
    assert state.verdicts["mismatch"].state is State.NOT_OBSERVED
    assert not acted(events)


def d38() -> None:
    """areal-project/AReaL#121: loss +inf at step 40. The kind is kept, and the alert is critical."""
    state, events = told([*(normal(i) for i in range(40)), normal(40, scalars=scalars(loss=math.inf))])
    assert fired(events) == [(40, "nonfinite")]
    assert state.verdicts["nonfinite"].message == "loss: 1 +inf"
    assert state.tracks["grad_norm"].recent[-1] == 0.2


def d41() -> None:
    """NVIDIA-NeMo/Gym PR#1612: the mask is all zero for 20 steps, training silently frozen. Critical after two."""
    records = [step_summary(i, tokens=0, scalars={"loss": 0.0}) for i in range(20)]
    state, events = told(records)
    assert fired(events) == [(1, "tokens")]
    assert state.verdicts["tokens"].message == "no trainable tokens for 20 steps"


def d43() -> None:
    """verl-project/verl#7933: a resume from 100 labels its first step 102. A gap of one is noted by its number only."""
    records = [*(normal(i) for i in range(101)), *(normal(i, attempt=2) for i in range(102, 130))]
    state, events = told(records)
    assert fired(events) == []
    assert [event.step for event in of(events, EventKind.ATTEMPT_STARTED)] == [0, 102]
    assert state.steps == 28


def d45() -> None:
    """wandb/wandb#4482: a resume goes from step 500 back to 450. Every row counts; windows and baselines start anew."""
    records = [*(normal(i) for i in range(501)), *(normal(i, attempt=2) for i in range(450, 460))]
    state, events = told(records)
    assert (state.attempt, state.last_step, state.tick) == (2, 459, 511)
    assert state.tracks["reward_mean"].baseline.anchor is None
    assert fired(events) == []


def d46() -> None:
    """prime-rl PR#1880: rows of step 5 after step 6. The ledger keeps them; the fold takes each step once, in order."""
    ordered, _ = told([normal(i) for i in range(10)])
    late = [*(normal(i) for i in range(7)), normal(5), *(normal(i) for i in range(7, 10))]
    assert told(late)[0] == ordered


def d48() -> None:
    """NovaSky-AI/SkyRL#1870: sampler log-probs never arrive. The mismatch is not observed, which is not green."""
    records = [step_summary(i, update=QUIET, entropy=0.4, scalars=scalars()) for i in range(40)]
    state, _ = told(records)
    assert state.verdicts["mismatch"].state is State.NOT_OBSERVED


def d50() -> None:
    """huggingface/trl: NaN in every second step is averaged away by logging every second. Each step is judged here."""
    _, events = told([normal(0), normal(1, scalars=scalars(loss=NAN))])
    assert fired(events) == [(1, "nonfinite")]


CASES: dict[str, Callable[[], None]] = {
    case.__name__.upper(): case
    for case in (
        *(d04, d05, d06, d07, d08, d10, d11, d13, d19, d21, d29),
        *(d31, d32, d34, d37, d38, d41, d43, d45, d46, d48, d50),
    )
}


@pytest.mark.parametrize("case", CASES)
def test_public_case(case: str) -> None:
    CASES[case]()


def test_the_reference_failure_is_not_a_fault_but_a_mismatch() -> None:
    """The counterpart of the cases above: a statistical mismatch is acted on."""
    plant = Plant(seed=1, noisy_from=0)
    records = [plant.advance() for _ in range(10)]
    assert acted(told(records)[1])
