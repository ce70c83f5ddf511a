"""The embedded sampler: batched generation with a key-value cache, in its own number format, with its own (older)
weights.

It records what a serving engine records: the log-prob of each sampled token under the distribution that it was sampled
from, and the top-k log-probs of that distribution, normalised over the whole vocabulary.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.models.language_model import LanguageModel
from trimtab.trainer.quant import engine_of, freeze, manifest, set_format
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Arrivals, InFlight, Update, check_length
from trimtab.trainer.tasks.task import Prompts

NEVER = -1e4
"""Stands for the log of probability 0 where it is multiplied by that probability."""


class TorchSampler:
    """Samples from a private copy of the model.

    Args:
        model: a model of the trainer's architecture, converted for quantisation; the sampler owns it.
        end: the token that ends a response.
        pad: the token that fills up after it.
        in_flight: what becomes of the keys and values of half-done responses when weights arrive.
    """

    def __init__(self, model: nn.Module, *, end: int, pad: int, in_flight: InFlight = "keep") -> None:
        self.model = model.eval().requires_grad_(False)
        freeze(self.model)  # weights are quantised once a sync, not once a token
        self.end = end
        self.pad = pad
        self.in_flight = in_flight
        self.version = -1
        self.kv_format = "none"

    def sync(self, update: Update) -> None:
        """Take over the weights, and from now on sample in their format; a cache in use stays in its own."""
        set_format(self.model, update.number_format)
        self.model.load_state_dict(update.weights)
        self.version = update.version
        self.kv_format = update.kv_format

    def contract(self) -> dict[str, TensorContract]:
        """What each weight is computed in."""
        return manifest(self.model)

    def close(self) -> None:
        """There is nothing to end."""

    def generate(
        self,
        prompts: Prompts,
        length: int,
        *,
        samples: int = 1,
        head: int,
        temperature: float,
        generator: torch.Generator,
        arrivals: Arrivals | None = None,
    ) -> Rollout:
        """Sample responses; see `Sampler.generate`.

        Raises:
            ConfigError: the longest prompt and `length` are more than the model was made for.
        """
        model, width = cast(LanguageModel, self.model), prompts.tokens.shape[1]
        check_length(width, length, model.context)
        engine, device = engine_of(self.model), next(self.model.parameters()).device
        prompts = prompts.to(device)
        cache, logits = self._read(model, prompts, samples, length)
        repeated = prompts.repeated(samples)
        batch = len(repeated.tokens)
        head = min(head, logits.shape[-1])
        responses = torch.full((batch, length), self.pad, device=device)
        versions = torch.full((batch, length), self.version)
        logprobs, entropy = torch.zeros(2, batch, length, device=device)
        head_ids = torch.arange(head, device=device).repeat(batch, length, 1)
        head_logprobs = torch.zeros(batch, length, head, device=device)
        done = torch.zeros(batch, dtype=torch.bool, device=device)
        with torch.inference_mode():
            for position in range(length):
                log_p = torch.log_softmax(logits[:, -1].float() / temperature, -1)
                p = log_p.exp()
                token = torch.where(done, self.pad, drawn(p, self._levels(batch, generator).to(device)))
                responses[:, position] = token
                logprobs[:, position] = log_p.gather(1, token[:, None])[:, 0]
                entropy[:, position] = entropies(log_p)
                top = log_p.topk(head, -1)
                head_ids[:, position], head_logprobs[:, position] = top.indices, top.values
                done |= token == self.end
                if position == length - 1 or bool(done.all()):
                    break
                so_far = repeated, responses[:, : position + 1]
                cache, logits = self._next(model, cache, *so_far, length, arrivals)
                versions[:, position + 1 :] = self.version
        return Rollout(
            prompts=repeated,
            responses=responses,
            logprobs=logprobs,
            entropy=entropy,
            head_ids=head_ids,
            head_logprobs=head_logprobs,
            versions=versions,
            engine=engine,
        ).to("cpu")

    def _levels(self, count: int, generator: torch.Generator) -> Tensor:
        """[count, 1] what the next token of each row is drawn by, uniform in [0, 1)."""
        return torch.rand(count, 1, generator=generator, dtype=torch.float64)

    @torch.inference_mode()
    def _read(self, model: LanguageModel, prompts: Prompts, samples: int, length: int) -> tuple[Any, Tensor]:
        """The cache and the last logits of each row; a prompt is read once, whatever the number of its samples."""
        count, width = prompts.tokens.shape
        cache = model.new_cache(count, width + length, self.kv_format)
        logits = model(prompts.tokens, cache=cache, keep_last=1, padding=prompts.padding)
        cache.batch_repeat_interleave(samples)
        return cache, logits.repeat_interleave(samples, 0)

    def _next(
        self,
        model: LanguageModel,
        cache: Any,
        prompts: Prompts,
        responses: Tensor,
        length: int,
        arrivals: Arrivals | None,
    ) -> tuple[Any, Tensor]:
        """The cache and the logits behind `responses`, with the weights that have just arrived, if any have."""
        update = None if arrivals is None else arrivals()
        if update is not None:
            self.sync(update)
            if self.in_flight == "drop":
                tokens = torch.cat([prompts.tokens, responses], 1)
                cache = model.new_cache(len(tokens), prompts.tokens.shape[1] + length, self.kv_format)
                return cache, model(tokens, cache=cache, keep_last=1, padding=prompts.padding)
        return cache, model(responses[:, -1:], cache=cache, padding=prompts.padding)


def entropies(log_p: Tensor) -> Tensor:
    """[...] entropy in nats of each of the [..., V] distributions; a token of probability 0 adds nothing."""
    return -(log_p.exp() * log_p.clamp_min(NEVER)).sum(-1)


def drawn(p: Tensor, levels: Tensor) -> Tensor:
    """[B] one token from each row of the [B, V] probabilities, by inversion of [B, 1] `levels` in [0, 1), where
    `torch.multinomial` takes one a token, which costs more than the rest of the sampling. A token of probability 0 is
    never drawn."""
    reached = p.double().cumsum(-1)
    return torch.searchsorted(reached, levels * reached[:, -1:], right=True)[:, 0].clamp_max(p.shape[1] - 1)
