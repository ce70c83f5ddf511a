"""What the safety contract needs of a trainer, its data, and a stand-in's loss."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from trimtab.hooks import meter
from trimtab.hooks.attachment import Attachment

B, T = 4, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The tensors of one step, [B, T]; `shift` is what the trainer learns, and its log-probs are `old` + `shift`."""

    old: Tensor
    rollout: Tensor
    advantages: Tensor
    mask: Tensor
    entropy: Tensor
    shift: Tensor

    @property
    def train(self) -> Tensor:
        """Log-probs with a gradient."""
        return self.old + self.shift

    @classmethod
    def of(cls, generator: torch.Generator) -> Batch:
        def normal(scale: float) -> Tensor:
            return scale * torch.randn(B, T, generator=generator)

        old = -2 + normal(0.3)
        lengths = torch.tensor([T, T - 1, T - 2, T])
        return cls(
            old=old,
            rollout=old + normal(0.1),
            advantages=torch.tensor([1.0, -1.0, 0.5, -0.5])[:, None].expand(B, T).contiguous(),
            mask=(torch.arange(T) < lengths[:, None]).float(),
            entropy=normal(0.1).abs(),
            shift=normal(0.3).requires_grad_(),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step's loss was, and its gradient."""

    loss: Tensor
    gradient: Tensor


class Rig:
    """A trainer whose adapter is not on it yet."""

    first_step = 0
    """The number of its first step."""
    by_environment = True
    """Its workers attach by what their environment says; else a call attaches it, which raises where it cannot."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(7)
        self.attachment: Attachment | None = None
        self.used: dict[str, float] = {}
        """The bounds that the last loss clipped by."""
        self._installed: list[str] = []
        self._before: list[tuple[types.ModuleType, dict[str, Any]]] = []
        self._environment: dict[str, str | None] = {}

    def attach(self, url: str = "memory:", job: str = "run") -> None:
        """Put the adapter on; those that attach by themselves do at the first step."""
        raise NotImplementedError

    def step(self) -> Step:
        """One training step."""
        raise NotImplementedError

    def close(self) -> None:
        """Take everything off, so that another rig can follow in this process."""
        if self.attachment is not None:
            self.attachment.detach()
        for module, before in reversed(self._before):
            vars(module).update(before)
        for name in self._installed:
            sys.modules.pop(name, None)
        for name, value in self._environment.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})
        meter.METER.__init__()  # type: ignore[misc]

    def batch(self) -> Batch:
        return Batch.of(self.generator)

    def environment(self, **values: str) -> None:
        """Set variables until it is closed."""
        for name, value in values.items():
            self._environment.setdefault(name, os.environ.get(name))
            os.environ[name] = value

    def install(self, name: str, **contents: Any) -> types.ModuleType:
        """A module called `name`, with the packages above it, until it is closed."""
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            if path not in sys.modules:
                sys.modules[path] = package = types.ModuleType(path)
                package.__path__ = []  # so that what is below it can be imported
                self._installed.append(path)
                if depth > 1:
                    setattr(sys.modules[".".join(parts[: depth - 1])], parts[depth - 1], package)
        module = sys.modules[name]
        self._before.append((module, {key: vars(module)[key] for key in contents if key in vars(module)}))
        vars(module).update(contents)
        return module

    def clipped(
        self,
        log_ratio: Tensor,
        advantages: Tensor,
        *,
        low: float,
        high: float,
        dual: float | None = None,
    ) -> Tensor:
        """PPO's clipped loss of each token, with dual clip, as all of these frameworks have it."""
        self.used = {"low": low, "high": high, "dual": float("inf") if dual is None else dual}
        ratio = log_ratio.clamp(-20, 20).exp()
        loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - low, 1 + high))
        if dual is None:
            return loss
        return torch.where(advantages < 0, torch.minimum(loss, -advantages * dual), loss)


class HereCaller:
    """A driver's worker that is this process."""

    def submit(self, function: Callable[[Any], Any]) -> Sequence[Any]:
        return [function(None)]

    def ready(self, pending: Sequence[Any]) -> bool:
        return bool(pending)

    def gather(self, pending: Sequence[Any], seconds: float) -> list[Any]:  # noqa: ARG002
        return list(pending)


class Settings(SimpleNamespace):
    """A configuration that is read by attribute and with `get`."""

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)
