"""The whole loop over HTTP: an emitter, the service in a process of its own, and a replay of what it did."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from api_runs import serving, trimtab

import trimtab as face
from trimtab.api.client import Client
from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.emitter import Emitter

CAPABLE = Capabilities(
    controls={"ratio_reference": Liveness.LIVE, "centering": Liveness.LIVE, "clip_mode": Liveness.LIVE},
    rollout_logprobs=True,
    sampler_head=4,
)
NOISY_FROM = 10
SHAPE = (16, 64)


def observe(emitter: Emitter, rng: np.random.Generator, step: int) -> None:
    """One step's tensors: from step 10 on the sampler's log-probs are far from the trainer's."""
    train = -np.abs(rng.normal(0.5, 0.2, SHAPE))
    emitter.observe(
        train_logprobs=train,
        old_logprobs=train - rng.normal(0, 0.02, SHAPE),
        rollout_logprobs=train - rng.normal(0, 0.6 if step >= NOISY_FROM else 0.02, SHAPE),
        advantages=np.where(np.arange(SHAPE[0]) % 2, 1.0, -1.0),
        loss_mask=np.ones(SHAPE),
        entropy=np.abs(rng.normal(0.4, 0.05, SHAPE)),
    )


def test_the_agent_changes_a_control_of_a_training_process_and_replays_why(tmp_path: Path) -> None:
    db, rng = tmp_path / "agent.db", np.random.default_rng(0)
    with serving(db) as (_, url), Client(url) as client:
        client.register("loop", mode="auto")
        own = Controls(ratio_reference="sampler")
        with face.attach(url, job="loop", attempt=1, controls=own, capabilities=CAPABLE) as emitter:
            controls = emitter.controls
            for step in range(60):
                observe(emitter, rng, step)
                controls = emitter.end_step(step=step, scalars={"reward_mean": 0.5})
                wait_until_told(client, step)
        assert (controls.ratio_reference, controls.centering) == ("recomputed", True)
        events = list(client.events("loop"))
        changed = next(event for event in events if event.kind == "controls_changed")
        assert NOISY_FROM <= changed.step <= NOISY_FROM + 10
        assert client.controls("loop").in_sync
    outcome = json.loads(trimtab("replay", db, "--json").stdout)
    assert outcome["identical"] is True
    assert [len(job["events"]) for job in outcome["jobs"]] == [len(events)]


def wait_until_told(client: Client, step: int) -> None:
    """The emitter reports one step late, from a thread of its own; keep training and agent in step."""
    deadline = time.monotonic() + 30
    while step > 0 and (client.job("loop").step or 0) < step - 1:
        if time.monotonic() > deadline:
            pytest.fail(f"step {step - 1} was not delivered within 30 s")
        time.sleep(0.01)
