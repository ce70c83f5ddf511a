"""Stand-in for SkyRL 0.4.0: the loss registry, the callback's base class, the dispatch and the trainer's loop."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from rigs.base import HereCaller, Rig, Settings, Step
from trimtab.hooks import skyrl


class TrainingCallback:
    """Events do nothing, and what they raise reaches the trainer."""

    def on_train_start(self, trainer: Any, callback_input: Any, control: Any) -> None: ...

    def on_train_end(self, trainer: Any, callback_input: Any, control: Any) -> None: ...

    def on_step_end(self, trainer: Any, callback_input: Any, control: Any) -> None: ...


class Registry:
    """Refuses a name twice."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}

    def list_available(self) -> list[str]:
        return list(self.functions)

    def get(self, name: str) -> Callable[..., Any]:
        return self.functions[name]

    def register(self, name: str, function: Callable[..., Any]) -> None:
        if name in self.functions:
            raise ValueError(f"policy loss '{name}' already registered")
        self.functions[name] = function


class Dispatch:
    """Its worker is this process, with a configuration of its own."""

    def __init__(self, algorithm: Any, registry: Registry) -> None:
        self.algorithm, self.registry = copy.deepcopy(algorithm), registry
        self.last: Step | None = None

    def forward_backward_from_staged(
        self,
        model: str,
        chunk_refs: Any,
        loss_fn: str | None = None,
        loss_fn_config: dict[str, Any] | None = None,
        model_id: str | None = None,
    ) -> Any:
        del model_id
        assert model == "policy"
        config = copy.deepcopy(self.algorithm)
        changed = dict(loss_fn_config or {})
        vars(config.off_policy_correction).update(changed.pop("off_policy_correction", {}))
        vars(config).update(changed)
        batch = chunk_refs[0]
        loss, metrics = self.registry.get(loss_fn or config.policy_loss_type)(
            batch.train,
            batch.old,
            batch.advantages,
            config=config,
            loss_mask=batch.mask,
            rollout_logprobs=batch.rollout,
        )
        loss.backward()
        self.last = Step(loss=loss.detach(), gradient=batch.shift.grad)
        return SimpleNamespace(metrics=metrics)


class SkyRlRig(Rig):
    first_step = 1

    def __init__(self) -> None:
        super().__init__()
        self.install("skyrl.train.utils.callbacks", TrainingCallback=TrainingCallback)
        correction = Settings(tis_ratio_type="token", token_tis_ratio_clip_high=2.0, sequence_tis_ratio_clip_high=5.0)
        algorithm = Settings(
            policy_loss_type="dual_clip",
            eps_clip_low=0.2,
            eps_clip_high=0.2,
            clip_ratio_c=3.0,
            use_kl_loss=True,
            kl_loss_coef=0.001,
            off_policy_correction=correction,
        )
        sampling = Settings(logprobs=1)
        self.registry = Registry()
        self.registry.register("dual_clip", self.policy_loss)
        self.cfg = Settings(trainer=Settings(algorithm=algorithm), generator=Settings(sampling_params=sampling))
        self.dispatch = Dispatch(algorithm, self.registry)
        self.callback: Any = None
        self.global_step = self.first_step

    def policy_loss(
        self,
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        config: Any,
        loss_mask: Tensor | None = None,
        rollout_logprobs: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        assert loss_mask is not None
        bounds = {"low": config.eps_clip_low, "high": config.eps_clip_high, "dual": config.clip_ratio_c}
        loss = self.clipped(log_probs - old_log_probs, advantages, **bounds)
        if config.off_policy_correction.tis_ratio_type == "token" and rollout_logprobs is not None:
            high = config.off_policy_correction.token_tis_ratio_clip_high
            loss = loss * (old_log_probs - rollout_logprobs).exp().clamp(max=high)
        return (loss * loss_mask).sum(), {}

    def attach(self, url: str = "memory:", job: str = "run") -> None:
        self.callback = skyrl.callback(url=url, job=job, caller=lambda _: HereCaller(), registry=self.registry)
        self._fire("on_train_start")
        self.attachment = self.callback.attachment

    def step(self) -> Step:
        metrics = self.dispatch.forward_backward_from_staged("policy", [self.batch()]).metrics
        if self.callback is not None:
            self._fire("on_step_end", metrics={"policy_loss": 0.1, **metrics})
        self.global_step += 1
        assert self.dispatch.last is not None
        return self.dispatch.last

    def _fire(self, event: str, metrics: Any = None) -> None:
        given = SimpleNamespace(global_step=self.global_step, metrics=metrics)
        getattr(self.callback, event)(self, given, SimpleNamespace())
