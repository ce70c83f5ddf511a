"""Stand-in for verl 0.9.1: the loss registry, `ppo_loss`, the frozen configuration, and a trainer with its workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rigs.base import HereCaller, Rig, Settings, Step
from trimtab.hooks import verl


@dataclass
class ActorConfig:
    """Refuses to be changed."""

    clip_ratio: float = 0.2
    clip_ratio_low: float = 0.2
    clip_ratio_high: float = 0.28
    clip_ratio_c: float = 3.0
    kl_loss_coef: float = 0.001
    use_kl_loss: bool = False
    loss_agg_mode: str = "token-mean"
    policy_loss: dict[str, Any] = field(default_factory=lambda: {"loss_mode": "vanilla"})
    global_batch_info: dict[str, Any] = field(default_factory=dict)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            raise FrozenInstanceError(f"Field '{name}' is frozen and cannot be modified")
        super().__setattr__(name, value)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


class Data(dict[str, Any]):
    """A TensorDict, whose tensors are padded already."""

    def select(self, *names: str) -> Data:
        return Data({name: self[name] for name in names})

    def to_padded_tensor(self) -> Data:
        return self


class Workers:
    """The actor's worker group, whose one worker is this process."""

    def __init__(self, rig: VerlRig) -> None:
        self.rig = rig
        self.workers: list[Any] = []
        self.loss_fn: Callable[..., Any] = partial(rig.ppo_loss, config=ActorConfig())

    def set_loss_fn(self, loss_fn: Callable[..., Any]) -> None:
        self.loss_fn = loss_fn

    def update_actor(self, batch: Any) -> Step:
        step = None
        for _ in range(2):  # mini-batches
            tensors = self.rig.batch()
            data = Data(
                response_mask=tensors.mask,
                old_log_probs=tensors.old,
                advantages=tensors.advantages,
                rollout_log_probs=tensors.rollout,
                **batch.extra_info,
            )
            output = {"log_probs": tensors.train, "entropy": tensors.entropy}
            loss, _ = self.loss_fn(model_output=output, data=data, dp_group=None)
            loss.backward()
            assert tensors.shift.grad is not None
            step = Step(loss=loss.detach(), gradient=tensors.shift.grad)
        assert step is not None
        return step


class PPOTrainerSync:
    """One `step` of the driver's loop."""

    def __init__(self, rig: VerlRig) -> None:
        actor = Settings(**vars(ActorConfig()))
        correction = {"rollout_is": None, "rollout_is_threshold": 2.0, "bypass_mode": False}
        rollout = Settings(calculate_log_probs=True)
        self.config = Settings(
            actor_rollout_ref=Settings(actor=actor, rollout=rollout), algorithm=Settings(rollout_correction=correction)
        )
        self.actor_rollout_wg = Workers(rig)
        self.global_steps = 1

    def on_train_begin(self) -> None: ...

    def on_step_end(self) -> None: ...

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        batch.extra_info["temperature"] = 1.0
        batch.result = self.actor_rollout_wg.update_actor(batch)
        metrics["actor/grad_norm"] = 1.0
        return batch

    def step(self) -> Step:
        batch = SimpleNamespace(extra_info={})
        result: Step = self._update_actor(batch, metrics={}).result
        self.on_step_end()
        self.global_steps += 1
        return result


class VerlRig(Rig):
    first_step = 1

    def __init__(self) -> None:
        super().__init__()
        self.registry: dict[str, Callable[..., Any]] = {"vanilla": self.vanilla}
        self.install(
            "verl.trainer.ppo.core_algos",
            POLICY_LOSS_REGISTRY=self.registry,
            register_policy_loss=lambda name: lambda function: self.registry.setdefault(name, function),
        )
        self.install("verl.workers.utils.losses", ppo_loss=self.ppo_loss)
        self.install("verl.workers.utils.padding", no_padding_2_padding=lambda tensor, _: tensor)
        self.install(
            "verl.utils.tensordict_utils", get_non_tensor_data=lambda data, key, default: data.get(key, default)
        )
        self.install("verl.utils.config", omega_conf_to_dataclass=lambda _: ActorConfig())
        self.trainer = PPOTrainerSync(self)

    def vanilla(
        self,
        *,
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str,
        config: Any,
        rollout_is_weights: Tensor | None,
    ) -> tuple[Tensor, dict[str, float]]:
        assert loss_agg_mode == "token-mean"
        bounds = {"low": config.clip_ratio_low, "high": config.clip_ratio_high, "dual": config.clip_ratio_c}
        loss = self.clipped(log_prob - old_log_prob, advantages, **bounds)
        if rollout_is_weights is not None:
            loss = loss * rollout_is_weights
        return torch.where(response_mask, loss, 0).sum() / config.global_batch_info["batch_num_tokens"], {}

    def ppo_loss(self, config: Any, model_output: Any, data: Any, dp_group: Any = None) -> Any:
        del dp_group
        config.global_batch_info["batch_num_tokens"] = 20
        return self.registry[config.policy_loss["loss_mode"]](
            old_log_prob=data["old_log_probs"],
            log_prob=model_output["log_probs"],
            advantages=data["advantages"],
            response_mask=data["response_mask"].to(bool),
            loss_agg_mode=config.loss_agg_mode,
            config=config,
            rollout_is_weights=data.get("rollout_is_weights"),
        )

    def attach(self, url: str = "memory:", job: str = "run") -> None:
        self.attachment = verl.attach(self.trainer, url=url, job=job, caller=HereCaller())

    def step(self) -> Step:
        return self.trainer.step()
