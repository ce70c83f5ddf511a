"""The sampler that a configuration names."""

from __future__ import annotations

from torch import nn

from trimtab.trainer.config import RunConfig
from trimtab.trainer.engines import converted
from trimtab.trainer.rollouts.sampler import Sampler
from trimtab.trainer.rollouts.torch_sampler import TorchSampler


def build_sampler(config: RunConfig, model: nn.Module, *, end: int, pad: int) -> Sampler:
    """The engine that samples for a run, in the format that the run starts in; it holds no weights yet.

    Args:
        config: the run.
        model: the policy, unconverted; it is copied.
        end: the token that ends a response.
        pad: the token that fills up after it.
    """
    policy = config.asynchrony.in_flight
    engine = converted(model, config, config.controls_at(0).sampler_format)
    return TorchSampler(engine, end=end, pad=pad, in_flight="keep" if policy == "wait" else policy)
