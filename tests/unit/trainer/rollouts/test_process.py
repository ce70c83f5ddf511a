"""A sampler in a process of its own gives what it gives in this one, and its end is told by name."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest
import torch
from endless_sampler import EndlessSampler

from trimtab.trainer.config import ConfigError, RunConfig
from trimtab.trainer.rollouts.build import build_sampler
from trimtab.trainer.rollouts.process import SamplerProcess
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Sampler, SamplerError, Update
from trimtab.trainer.tasks.running_sum import END, PAD, RunningSum
from trimtab.trainer.warm_start import build_decoder, warm_weights

TASK = RunningSum(digits=3)


@contextmanager
def child(config: RunConfig) -> Iterator[SamplerProcess]:
    with closing(SamplerProcess(partial(build_sampler, config, build_decoder(config), end=END, pad=PAD))) as sampler:
        yield sampler


def update(config: RunConfig, version: int, factor: float = 1.0) -> Update:
    weights = {name: value * factor for name, value in warm_weights(config).items()}
    return Update(weights=weights, version=version, number_format="nvfp4")


def sampled(
    sampler: Sampler, seed: int = 2, length: int | None = None, arrivals: Callable[[], Update | None] | None = None
) -> Rollout:
    return sampler.generate(
        TASK.prompts(8, torch.Generator().manual_seed(1)),
        TASK.response_length if length is None else length,
        samples=2,
        head=3,
        temperature=1.0,
        generator=torch.Generator().manual_seed(seed),
        arrivals=arrivals,
    )


def test_it_samples_as_in_this_process(tiny: RunConfig) -> None:
    here = build_sampler(tiny, build_decoder(tiny), end=END, pad=PAD)
    here.sync(update(tiny, 3))
    with child(tiny) as there:
        there.sync(update(tiny, 3))
        assert there.version == 3
        assert there.contract() == here.contract()
        mine, theirs = sampled(here), sampled(there)
    for name in ("responses", "logprobs", "head_ids", "head_logprobs", "versions"):
        assert getattr(mine, name).equal(getattr(theirs, name)), name
    assert theirs.engine == "nvfp4-emulated"


def test_the_generator_goes_on_where_the_process_left_it(tiny: RunConfig) -> None:
    generator = torch.Generator().manual_seed(4)
    here = build_sampler(tiny, build_decoder(tiny), end=END, pad=PAD)
    here.sync(update(tiny, 0))
    prompts = TASK.prompts(4, torch.Generator().manual_seed(1))
    with child(tiny) as there:
        there.sync(update(tiny, 0))
        there.generate(prompts, TASK.response_length, head=0, temperature=1.0, generator=generator)
    expected = torch.Generator().manual_seed(4)
    here.generate(prompts, TASK.response_length, head=0, temperature=1.0, generator=expected)
    assert generator.get_state().equal(expected.get_state())


def test_weights_arrive_in_flight_or_right_behind(tiny: RunConfig) -> None:
    """Whether they come into the batch or just miss it, the process holds them afterwards."""
    with child(tiny) as there:
        there.sync(update(tiny, 0))
        coming = [update(tiny, 5, 0.5)]
        rollout = sampled(there, arrivals=lambda: coming.pop() if coming else None)
        assert set(rollout.versions.flatten().tolist()) <= {0, 5}
        assert there.version == 5
        assert set(sampled(there).versions.flatten().tolist()) == {5}


class _NoMore(Exception):  # noqa: N818
    pass


def test_a_batch_that_is_broken_off_leaves_nothing_in_the_pipe(tiny: RunConfig) -> None:
    def arrivals() -> None:
        raise _NoMore

    with child(tiny) as there:
        there.sync(update(tiny, 0))
        expected = sampled(there)
        for _ in range(3):  # in the middle of the batch, or when it was just done
            with pytest.raises(_NoMore):
                there.generate(
                    TASK.prompts(512, torch.Generator()),
                    TASK.response_length,
                    head=0,
                    temperature=1.0,
                    generator=torch.Generator(),
                    arrivals=arrivals,
                )
        assert sampled(there).responses.equal(expected.responses)


def test_a_batch_without_an_end_is_broken_off() -> None:
    def arrivals() -> None:
        raise _NoMore

    def sample_in_vain(there: SamplerProcess) -> None:
        with pytest.raises(SamplerError):
            sampled(there)

    with closing(SamplerProcess(EndlessSampler)) as there:
        with pytest.raises(_NoMore):
            sampled(there, arrivals=arrivals)
        assert there.contract() == {}
        busy = threading.Thread(target=sample_in_vain, args=(there,))
        busy.start()
    busy.join()
    assert there._process.exitcode == 0  # it was told, and not killed


def test_what_the_sampler_refuses_is_raised_here(tiny: RunConfig) -> None:
    with child(tiny) as there:
        there.sync(update(tiny, 0))
        with pytest.raises(ConfigError, match=r"task\.response_length"):
            sampled(there, length=500)
        assert sampled(there).responses.shape[0] == 16


def test_a_sampler_that_cannot_be_made_says_why() -> None:
    with pytest.raises(SamplerError, match="sampler: ValueError: invalid literal"):
        SamplerProcess(partial(int, "no sampler"))  # type: ignore[arg-type]


def test_a_killed_process_is_named(tiny: RunConfig) -> None:
    with child(tiny) as there:
        there.sync(update(tiny, 0))
        pid = there._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SamplerError, match="exit code -9"):
            sampled(there)


def test_a_process_that_does_not_answer_is_told_once(tiny: RunConfig, caplog: pytest.LogCaptureFixture) -> None:
    factory = partial(build_sampler, tiny, build_decoder(tiny), end=END, pad=PAD)
    with closing(SamplerProcess(factory)) as there:
        there.sync(update(tiny, 0))
        assert caplog.messages == []
        pid = there._process.pid
        assert pid is not None
        there._patience = 1.0
        os.kill(pid, signal.SIGSTOP)
        waiting = threading.Thread(target=sampled, args=(there,))
        waiting.start()
        deadline = time.monotonic() + 60
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(pid, signal.SIGCONT)
        waiting.join()
    assert caplog.messages == [f"trimtab: the sampler process (pid {pid}) has not answered for 1 s; waiting on"]


def test_closing_twice_is_closing(tiny: RunConfig) -> None:
    with child(tiny) as there:
        there.close()
    assert there._process.exitcode == 0
