"""AdamW and plain SGD for master weights in float32 or bfloat16, with moments in float32 either way.

torch's AdamW keeps its moments in the parameter's type, and in bfloat16 both go wrong: a moment stops moving once its
increments fall below 1/256 of it, and a weight does once the update does, which at GRPO's learning rates is always.
Here the moments are float32, the update is computed in float32, and it is rounded into the bfloat16 weight at random in
proportion to the distance (stochastic rounding: right on average, so that small updates add up).

Sources: AdamW (arXiv 1711.05101); stochastic rounding of bfloat16 weights (arXiv 2010.06192).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import Optimizer
from typing_extensions import override

BETAS = (0.9, 0.999)
EPS = 1e-8


OptimizerName = Literal["adamw", "sgd"]


def optimizer_named(name: OptimizerName, parameters: Iterable[nn.Parameter], lr: float) -> Optimizer:
    """AdamW without weight decay, or SGD without momentum, for parameters of either type."""
    return _BUILDERS[name](list(parameters), lr)


def adamw(parameters: Sequence[nn.Parameter], lr: float) -> Optimizer:
    """AdamW without weight decay, with float32 moments for parameters of either type."""
    if _all_float32(parameters):
        return torch.optim.AdamW(parameters, lr=lr, betas=BETAS, eps=EPS, weight_decay=0.0, fused=True)
    return BFloat16AdamW(parameters, lr)


def sgd(parameters: Sequence[nn.Parameter], lr: float) -> Optimizer:
    """Plain SGD: no momentum, no weight decay, no state."""
    if _all_float32(parameters):
        return torch.optim.SGD(parameters, lr=lr)
    return BFloat16SGD(parameters, lr)


_BUILDERS: dict[OptimizerName, Callable[[Sequence[nn.Parameter], float], Optimizer]] = {"adamw": adamw, "sgd": sgd}


def _all_float32(parameters: Sequence[nn.Parameter]) -> bool:
    return all(parameter.dtype == torch.float32 for parameter in parameters)


class _StochasticallyRounded(Optimizer):
    """Updates in float32, rounded into bfloat16 weights at random by torch's default generator."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of every parameter that has a gradient."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    weight, update = local(parameter), local(self._update(parameter, group["lr"]))
                    weight.copy_(stochastically_rounded(weight.float() - update, weight.dtype))
        return loss

    def _update(self, parameter: Tensor, lr: float) -> Tensor:
        """What is taken from the weight, float32."""
        raise NotImplementedError


class BFloat16SGD(_StochasticallyRounded):
    """SGD on bfloat16 weights."""

    @override
    def _update(self, parameter: Tensor, lr: float) -> Tensor:
        return lr * parameter.grad.float()  # type: ignore[union-attr]


class BFloat16AdamW(_StochasticallyRounded):
    """AdamW on bfloat16 weights: float32 moments."""

    @override
    def _update(self, parameter: Tensor, lr: float) -> Tensor:
        """What AdamW takes from the weight, float32."""
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["mean"] = torch.zeros_like(parameter, dtype=torch.float32)
            state["square"] = torch.zeros_like(parameter, dtype=torch.float32)
        state["step"] += 1
        gradient = parameter.grad.float()  # type: ignore[union-attr]
        state["mean"].lerp_(gradient, 1 - BETAS[0])
        state["square"].mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        mean = state["mean"] / (1 - BETAS[0] ** state["step"])
        square = state["square"] / (1 - BETAS[1] ** state["step"])
        update: Tensor = lr * mean / (square.sqrt() + EPS)
        return update

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but the moments stay float32, where torch would cast them to the parameter's type."""
        super().load_state_dict(state_dict)
        saved = state_dict["state"]
        flat = [parameter for group in self.param_groups for parameter in group["params"]]
        for index, parameter in enumerate(flat):
            if index in saved:
                for name in ("mean", "square"):
                    self.state[parameter][name] = saved[index][name].to(parameter.device, torch.float32, copy=True)


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor, in place: what is rounded at random is rounded where it is kept."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def stochastically_rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Float32 `x` as bfloat16, up or down with the probability of its distance to either; float32 stays as it is."""
    if dtype != torch.bfloat16:
        return x.to(dtype)
    # A bfloat16 is the upper half of a float32: noise below it carries into it in proportion to what is there.
    noise = torch.randint(0, 1 << 16, x.shape, dtype=torch.int32, device=x.device)
    rounded = ((x.view(torch.int32) + noise) & -65536).view(torch.float32)
    return torch.where(x.isfinite(), rounded, x).to(torch.bfloat16)
