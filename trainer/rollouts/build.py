"""The sampler that a configuration names, and how it supplies the run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import nn

from trimtab.trainer.config import ConfigError, RunConfig
from trimtab.trainer.engines import converted
from trimtab.trainer.experience import Collector
from trimtab.trainer.rollouts.ahead import Ahead
from trimtab.trainer.rollouts.process import SamplerProcess
from trimtab.trainer.rollouts.published import Published
from trimtab.trainer.rollouts.sampler import InFlight, Sampler
from trimtab.trainer.rollouts.shared import FirstSampler, FirstSupply, SharedTorchSampler
from trimtab.trainer.rollouts.supply import Supply, Synchronous
from trimtab.trainer.rollouts.torch_sampler import TorchSampler
from trimtab.trainer.sampler_sections import ServerConfig, TorchSamplerConfig, VllmConfig
from trimtab.trainer.sections import ModelConfig, PretrainedConfig
from trimtab.trainer.tasks.task import Task
from trimtab.trainer.world import World


def build_sampler(config: RunConfig, model: nn.Module, *, end: int, pad: int) -> Sampler:
    """The engine that samples for a run, in the format that the run starts in; it holds no weights yet.

    Args:
        config: the run.
        model: the policy, unconverted; it is copied.
        end: the token that ends a response.
        pad: the token that fills up after it.

    Raises:
        ConfigError: the engine is not installed, does not answer, or cannot compute as the run's sampler is to; the
            message names the field.
    """
    policy = config.asynchrony.in_flight
    engine = converted(model, config, config.controls_at(0).sampler_format)
    if isinstance(config.sampler, TorchSamplerConfig):
        return TorchSampler(engine, end=end, pad=pad, in_flight="keep" if policy == "wait" else policy)
    try:
        return _served(config, config.sampler, engine, end=end, pad=pad)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def _served(config: RunConfig, settings: VllmConfig | ServerConfig, model: nn.Module, *, end: int, pad: int) -> Sampler:
    # Here, so that a run of the embedded model does not wait for transformers.
    from trimtab.trainer.models.huggingface import HuggingFaceLM
    from trimtab.trainer.rollouts.vllm_sampler import VllmSampler
    from trimtab.trainer.rollouts.vllm_server import ServerSampler

    assert isinstance(model, HuggingFaceLM)  # the configuration refuses an engine for anything else
    policy: InFlight = "keep" if config.asynchrony.in_flight == "keep" else "drop"
    kv_format = config.controls_at(0).kv_format
    if isinstance(settings, ServerConfig):
        return ServerSampler(model, settings, end=end, pad=pad, in_flight=policy, kv_format=kv_format)
    return VllmSampler(
        folder_of(config.model), model, settings, end=end, pad=pad, in_flight=policy, kv_format=kv_format
    )


def folder_of(model: ModelConfig) -> Path:
    """Where the model's Hugging Face configuration is.

    Raises:
        ImportError: SmolLM2 is not installed.
    """
    from trimtab.trainer.models.smollm2 import smollm2_folder

    assert isinstance(model, PretrainedConfig)
    return smollm2_folder() if model.path is None else model.path.expanduser()


def sampler_of(config: RunConfig, model: nn.Module, task: Task, world: World) -> Sampler:
    """The run's sampler, in this process or in one beside it."""
    if world.size > 1 and config.asynchrony.mode == "off" and isinstance(config.sampler, TorchSamplerConfig):
        engine = converted(model, config, config.controls_at(0).sampler_format)
        return SharedTorchSampler(engine, world=world, end=task.end, pad=task.pad)
    factory: Callable[[], Sampler] = partial(build_sampler, config, model, end=task.end, pad=task.pad)
    if config.asynchrony.mode == "process":
        factory = partial(SamplerProcess, factory)
    return factory() if world.size == 1 else FirstSampler(factory, world)


def published_of(config: RunConfig) -> Published:
    """Where the run publishes its weights."""
    ahead = config.asynchrony
    return Published(every=ahead.sync_every, age=config.rollout.lag if ahead.mode == "off" else ahead.max_staleness)


def supply_of(config: RunConfig, task: Task, sampler: Sampler, world: World) -> Supply:
    """Where the run's steps get their experience from."""
    if isinstance(sampler, FirstSampler):
        inner = None if sampler.inner is None else supply_of(config, task, sampler.inner, world)
        return FirstSupply(inner, world)
    ahead, collector = config.asynchrony, Collector(config.rollout, task, sampler)
    if ahead.mode == "off":
        return Synchronous(collector, sampler, lag=config.rollout.lag, seed=config.seed)
    return Ahead(
        collector,
        sampler,
        max_staleness=ahead.max_staleness,
        in_flight=ahead.in_flight != "wait",
        steps=config.steps,
        seed=config.seed,
    )
