"""The embedded sampler: batched generation with a key-value cache, in its own number format, with its own (older)
weights.

It records what a serving engine records: the log-prob of each sampled token under the distribution that it was sampled
from, and the top-k log-probs of that distribution, normalised over the whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from trimtab.trainer import rows
from trimtab.trainer.config import ConfigError
from trimtab.trainer.models.language_model import LanguageModel
from trimtab.trainer.quant import freeze, set_format
from trimtab.trainer.tasks.task import Prompts

Weights = dict[str, Tensor]
NEVER = -1e4
"""Stands for the log of probability 0 where it is multiplied by that probability."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """Sampled responses; B sequences, T response tokens, k head entries."""

    prompts: Prompts
    """[B, prompt_length] tokens, padded on the left."""
    responses: Tensor
    """[B, T] tokens; padding after the end."""
    logprobs: Tensor
    """[B, T] log-prob of each token under the sampler."""
    entropy: Tensor
    """[B, T] entropy of the distribution that each token was sampled from, nats."""
    head_ids: Tensor
    """[B, T, k] ids of the sampler's most probable tokens."""
    head_logprobs: Tensor
    """[B, T, k] their log-probs."""
    version: int
    """Version of the weights that sampled."""

    @property
    def inputs(self) -> Tensor:
        """[B, prompt_length + T - 1] tokens that a model reads to give the distribution of every response token."""
        return torch.cat([self.prompts.tokens, self.responses[:, :-1]], 1)

    def rows(self, index: Tensor) -> Rollout:
        """The sequences at `index`, a [n] tensor of row numbers."""
        return replace(rows.chosen(self, index), prompts=self.prompts.rows(index))

    @staticmethod
    def concatenated(rollouts: Sequence[Rollout], pad: int) -> Rollout:
        """All sequences of rollouts of one version, prompts padded to one length with `pad`."""
        prompts = Prompts.concatenated([rollout.prompts for rollout in rollouts], pad)
        return replace(rows.joined(rollouts), prompts=prompts)


class TorchSampler:
    """Samples from a private copy of the model.

    Args:
        model: a model of the trainer's architecture, converted for quantisation; the sampler owns it.
        end: the token that ends a response.
        pad: the token that fills up after it.
    """

    def __init__(self, model: nn.Module, *, end: int, pad: int) -> None:
        self.model = model.eval().requires_grad_(False)
        freeze(self.model)  # weights are quantised once a sync, not once a token
        self.end = end
        self.pad = pad
        self.version = -1
        self.kv_format = "none"

    def sync(self, weights: Weights, version: int, number_format: str, kv_format: str = "none") -> None:
        """Take over `weights` of `version`, and from now on sample in `number_format` with a cache in `kv_format`."""
        set_format(self.model, number_format)
        self.model.load_state_dict(weights)
        self.version = version
        self.kv_format = kv_format

    def generate(
        self,
        prompts: Prompts,
        length: int,
        *,
        samples: int = 1,
        head: int,
        temperature: float,
        generator: torch.Generator,
    ) -> Rollout:
        """Sample `samples` responses of up to `length` tokens for each of the prompts, in consecutive rows.

        A head larger than the vocabulary is the whole vocabulary.

        Raises:
            ConfigError: the longest prompt and `length` are more than the model was made for.
        """
        model, width = cast(LanguageModel, self.model), prompts.tokens.shape[1]
        if model.context is not None and width + length > model.context:
            raise ConfigError(
                f"task.response_length: {length} tokens after a prompt of {width} are more than the {model.context} of "
                "the model's context; give shorter responses or prompts"
            )
        cache, logits = self._read(model, prompts, samples, length)
        repeated = prompts.repeated(samples)
        batch = len(repeated.tokens)
        head = min(head, logits.shape[-1])
        responses = torch.full((batch, length), self.pad)
        logprobs, entropy = torch.zeros(batch, length), torch.zeros(batch, length)
        head_ids = torch.arange(head).repeat(batch, length, 1)
        head_logprobs = torch.zeros(batch, length, head)
        done = torch.zeros(batch, dtype=torch.bool)
        with torch.inference_mode():
            for position in range(length):
                log_p = torch.log_softmax(logits[:, -1].float() / temperature, -1)
                p = log_p.exp()
                token = torch.where(done, self.pad, drawn(p, generator))
                responses[:, position] = token
                logprobs[:, position] = log_p.gather(1, token[:, None])[:, 0]
                entropy[:, position] = entropies(log_p)
                top = log_p.topk(head, -1)
                head_ids[:, position], head_logprobs[:, position] = top.indices, top.values
                done |= token == self.end
                if position == length - 1 or bool(done.all()):
                    break
                logits = model(token[:, None], cache=cache, padding=repeated.padding)
        return Rollout(
            prompts=repeated,
            responses=responses,
            logprobs=logprobs,
            entropy=entropy,
            head_ids=head_ids,
            head_logprobs=head_logprobs,
            version=self.version,
        )

    @torch.inference_mode()
    def _read(self, model: LanguageModel, prompts: Prompts, samples: int, length: int) -> tuple[Any, Tensor]:
        """The cache and the last logits of each row; a prompt is read once, whatever the number of its samples."""
        count, width = prompts.tokens.shape
        cache = model.new_cache(count, width + length, self.kv_format)
        logits = model(prompts.tokens, cache=cache, keep_last=1, padding=prompts.padding)
        cache.batch_repeat_interleave(samples)
        return cache, logits.repeat_interleave(samples, 0)


def entropies(log_p: Tensor) -> Tensor:
    """[...] entropy in nats of each of the [..., V] distributions; a token of probability 0 adds nothing."""
    return -(log_p.exp() * log_p.clamp_min(NEVER)).sum(-1)


def drawn(p: Tensor, generator: torch.Generator) -> Tensor:
    """[B] one token from each row of the [B, V] probabilities, by inversion: one random number a row, where
    `torch.multinomial` takes one a token, which costs more than the rest of the sampling. A token of probability 0 is
    never drawn."""
    reached = p.double().cumsum(-1)
    level = torch.rand(len(p), 1, generator=generator, dtype=torch.float64) * reached[:, -1:]
    return torch.searchsorted(reached, level, right=True)[:, 0].clamp_max(p.shape[1] - 1)
