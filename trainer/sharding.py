"""Split a model and its optimizer over the processes of a run (FSDP2), and put their states together again.

Each decoder layer is a unit, and the rest is one: layers whose weights share a scale are siblings within a decoder
layer, so the weights that a scale is taken of are whole whenever it is. Whole states are those of one process, so a
checkpoint can be read by any number of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim.optimizer import Optimizer

from trimtab.trainer.config import ConfigError, RunConfig
from trimtab.trainer.quant.anatomy import decoder_layers
from trimtab.trainer.rollouts.sampler import Weights
from trimtab.trainer.world import World


def check_world(config: RunConfig, world: World) -> None:
    """Refuse more processes than there are rows to share.

    Raises:
        ConfigError: a process would have no row of a minibatch, no prompt of a step, or none of the evaluation.
    """
    rollout, update = config.rollout, config.update
    rows = rollout.prompts // update.minibatches * rollout.group_size
    if rows < world.size:
        raise ConfigError(
            f"update.minibatches: {update.minibatches} leaves minibatches of {rows} responses, fewer than the "
            f"{world.size} processes; give fewer minibatches or processes, or more rollout.prompts"
        )
    for name, prompts in (("rollout", rollout.prompts), ("evaluation", config.evaluation.prompts or world.size)):
        if prompts < world.size:
            raise ConfigError(
                f"{name}.prompts: {prompts} is fewer than the {world.size} processes, which share them; give at least "
                f"{world.size}"
            )


def shard(model: nn.Module, world: World) -> None:
    """Split the Parameters of a converted `model` over the processes, in place; alone they stay as they are."""
    if world.size == 1:
        return
    mesh = init_device_mesh(next(model.parameters()).device.type, (world.size,))
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    for name in decoder_layers(model):
        fully_shard(model.get_submodule(name), mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def whole(tensor: Tensor) -> Tensor:
    """A tensor that is split over the processes as one; a collective."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def split_like(tensor: Tensor, like: Tensor) -> Tensor:
    """This process's part of a whole `tensor`, split as `like` is."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def whole_weights(model: nn.Module) -> Weights:
    """The state dict of one process; a collective. Alone, it is the model's own tensors."""
    return {name: whole(value) for name, value in model.state_dict().items()}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Take up whole weights."""
    model.load_state_dict({name: split_like(weights[name], mine) for name, mine in model.state_dict().items()})


def whole_optimizer(optimizer: Optimizer) -> dict[str, Any]:
    """The state dict of one process; a collective."""
    state = optimizer.state_dict()
    moments = {
        index: {name: whole(value) if isinstance(value, Tensor) else value for name, value in of_one.items()}
        for index, of_one in state["state"].items()
    }
    return {**state, "state": moments}


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Take up a whole state dict."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    moments = {
        index: {
            name: split_like(value, parameters[index])
            if isinstance(value, Tensor) and value.shape == parameters[index].shape
            else value
            for name, value in of_one.items()
        }
        for index, of_one in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": moments})
