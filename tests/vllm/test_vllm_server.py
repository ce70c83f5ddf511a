"""A `vllm serve` of two API servers, as its own process: sampling, weights in flight, and updates that go wrong."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import torch
from engine_runs import END, PAD, differences, of_tokens, prepared, sampled, shaken, trained_logprobs, update

from trimtab.trainer.config import ConfigError
from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import InFlight, SyncError, Weights
from trimtab.trainer.rollouts.vllm_server import ServerSampler
from trimtab.trainer.sampler_sections import ServerConfig

pytestmark = pytest.mark.slow

RUN = """
[model]
kind = "huggingface"
path = "{folder}"
tokenizer = "characters"
[task]
kind = "reasoning_gym"
dataset = "spell_backward"
[sampler]
kind = "server"
urls = ["{url}"]
dtype = "float32"
[controls]
sampler_format = "nvfp4"
"""
SIZES = ("--max-model-len", "192", "--max-num-seqs", "16", "--kv-cache-memory-bytes", "50000000")
MOST_SECONDS = 600
QUERY = "causal_lm.model.layers.1.self_attn.q_proj.weight"


class Served:
    """A server and the model that it serves, whose head is tied to its embedding."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.plain, self.model = prepared(folder, tied=True)

    def sampler(self, in_flight: InFlight = "keep", *, refresh_tied_head: bool = True) -> ServerSampler:
        config = ServerConfig(kind="server", urls=(self.url,), dtype="float32", retries=1)
        how = {"in_flight": in_flight, "refresh_tied_head": refresh_tied_head}
        return ServerSampler(self.model, config, end=END, pad=PAD, **how)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("served")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    result = Served(place / "model", f"http://127.0.0.1:{port}")
    (place / "run.toml").write_text(RUN.format(folder=place / "model", url=result.url))
    command = [sys.executable, "-m", "trimtab.trainer.rollouts.vllm_serve", str(place / "run.toml"), *SIZES]
    command += ["--host", "127.0.0.1", "--port", str(port), "--api-server-count", "2"]
    with (place / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=place,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    try:
        until = time.monotonic() + MOST_SECONDS
        while not _answers(result.url):
            if process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"the server did not come up:\n{(place / 'log').read_text()[-3000:]}")
            time.sleep(0.5)
        yield result
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("number_format", ["fp32", "nvfp4", "fp8-row"])
def test_a_server_samples_on_the_trainers_grid_and_changes_its_format_live(served: Served, number_format: str) -> None:
    weights = shaken(served.plain.state_dict())
    with closing(served.sampler()) as sampler:
        sampler.sync(update(weights, 3, number_format))
        rollout, again = sampled(sampler), sampled(sampler)
    assert torch.equal(rollout.responses, again.responses)
    assert bool((rollout.versions == 3).all())
    log_p = trained_logprobs(served.model, weights, rollout, number_format)
    tokens, heads = differences(rollout, log_p)
    assert float(tokens.abs().median()) < 2e-5
    assert float(heads.abs().median()) < 2e-5
    live = rollout.logprobs != 0
    same = rollout.head_ids[live] == log_p.topk(5).indices[live]
    assert float(same.float().mean()) > 0.99  # two that are as probable may come in either order
    outside = ~(rollout.head_ids == rollout.responses[..., None]).any(-1)
    assert bool(outside[live].any())
    assert rollout.engine == f"{number_format.partition('-')[0]}-server"


def _with_weights_at(sampler: ServerSampler, look: int, old: Weights, new: Weights) -> Rollout:
    """Responses sampled with the old weights until the sampler has looked for new ones so often."""
    sampler.sync(update(old, 4))
    looks = iter(range(1, 10**6))
    return sampled(sampler, 160, arrivals=lambda: update(new, 6) if next(looks) == look else None)


def _met_in_the_middle(rollout: Rollout) -> bool:
    """One response at least has tokens of both versions."""
    live = rollout.logprobs != 0
    return bool(((live & (rollout.versions == 4)).any(1) & (live & (rollout.versions == 6)).any(1)).any())


@pytest.mark.parametrize("in_flight", ["keep", "drop"])
def test_weights_in_flight_are_on_the_tokens_they_sampled(served: Served, in_flight: InFlight) -> None:
    old, new = served.plain.state_dict(), shaken(served.plain.state_dict())
    with closing(served.sampler(in_flight)) as sampler:
        rollout = next(
            filter(_met_in_the_middle, (_with_weights_at(sampler, look, old, new) for look in (3, 6, 12, 2)))
        )
    live = rollout.logprobs != 0
    before, behind = live & (rollout.versions == 4), live & (rollout.versions == 6)
    # What a response that began behind the update says of old keys is nothing.
    behind &= before.any(1, keepdim=True)
    with_old = (of_tokens(trained_logprobs(served.model, old, rollout, "fp32"), rollout) - rollout.logprobs).abs()
    with_new = (of_tokens(trained_logprobs(served.model, new, rollout, "fp32"), rollout) - rollout.logprobs).abs()
    assert float(with_old[before].mean()) < 1e-4
    if in_flight == "drop":
        assert float(with_new[behind].mean()) < 1e-4
    else:
        assert float(with_new[behind].mean()) > 1e-3


def test_an_update_that_is_not_whole_and_an_old_head_stop_the_sampling(served: Served) -> None:
    weights = shaken(served.plain.state_dict())
    name = "causal_lm.model.norm.weight"
    broken = {each: value for each, value in weights.items() if each != name}
    with closing(served.sampler()) as sampler:
        sampler.sync(update(served.plain.state_dict(), 1))
    with closing(served.sampler(refresh_tied_head=False)) as sampler:
        with pytest.raises(SyncError, match="a head tied to the embedding is the known case"):
            sampler.sync(update(weights, 2))
        with pytest.raises(SyncError, match="sync before sampling"):
            sampled(sampler)
    with closing(served.sampler()) as sampler:
        with pytest.raises(SyncError, match=r"version 3 was not taken over: .*/update_weights failed"):
            sampler.sync(update(broken, 3))
        with pytest.raises(SyncError, match="sync before sampling"):
            sampled(sampler)
        sampler.sync(update(weights, 4))
        assert bool((sampled(sampler).versions == 4).all())


def test_a_single_old_matrix_is_found_in_float32_where_the_live_format_hides_it(served: Served) -> None:
    old = served.plain.state_dict()
    new = {**old, QUERY: shaken(old)[QUERY]}
    with closing(served.sampler()) as sampler:
        verification = sampler._verification
        sampler.sync(update(old, 1, "fp8-tensor"))
        assert max(sampler.probed.values()) < 1e-5
        with verification.taking_over(update(new, 2, "fp8-tensor"), idle=False):
            sampler._take_over(update(old, 2, "fp8-tensor"))
        verification.require()
        with pytest.raises(SyncError, match=r"does not compute with these weights: .* where fp32 in float32 explains"):
            verification.settle()
        with pytest.raises(SyncError, match="sync before sampling"):
            sampled(sampler)
        sampler.sync(update(new, 3, "fp8-tensor"))
        assert max(sampler.probed.values()) < 1e-5


def test_what_does_not_answer_is_refused_before_the_run(served: Served) -> None:
    model: HuggingFaceLM = served.model
    config = ServerConfig(kind="server", urls=(served.url, "http://127.0.0.1:9"), retries=0)
    with pytest.raises(ConfigError, match=r"sampler.urls: http://127.0.0.1:9/health failed 1 times: ConnectError"):
        ServerSampler(model, config, end=END, pad=PAD)
