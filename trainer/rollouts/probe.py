"""Does an engine compute with the weights that it was given? Asked of its log-probs, after every set of weights.

A serving engine keeps weights in forms of its own (merged, packed, quantised, split over processes), and nothing that
it says about them is proof: vLLM 0.32 on a CPU goes on multiplying by a tied head's old weight after an update, and its
checksums say that all is well. So a few fixed tokens are scored by the engine, and by the trainer's own model with the
same weights in the same format; they differ by rounding, or something is wrong.

What can be seen is what is larger than rounding: a single step of a small learning rate is not, and comes to light as
such steps add up.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.quant import format_named, manifest, set_format
from trimtab.trainer.quant.fp8 import Fp8Tensor
from trimtab.trainer.quant.layers import quant_layers
from trimtab.trainer.rollouts.sampler import SyncError, Update

LENGTH = 64
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FACTOR = 3.0
"""How many times the rounding that the trainer's model itself shows is still rounding."""
LEAST = 1e-3
"""Nats that are always rounding."""
KV = 0.25
"""Nats that a quantised key-value cache may change a token by: attention in vLLM rounds it in ways of its own."""
BATCH = 0.5
"""Nats that the rest of a batch may change a token by in a format whose activations share a scale over the batch."""
EPSILON = 2.0**-20
"""Relative change of the trainer's weights that stands for an engine in float32 which adds up in another order."""


class Probe:
    """Fixed random tokens, and what the trainer says of them.

    How far apart two engines may be that compute the same is not known beforehand: in a deep model of low precision one
    rounding error tips values over into other codes, and those tip others. So it is measured each time, as the mean
    |difference| between the trainer's model and itself with roundings like the engine's.

    Args:
        model: converted as the sampler's is; copied, without its weights.
        dtype: what the engine keeps activations in, `float32` or `bfloat16`.
    """

    def __init__(self, model: HuggingFaceLM, *, dtype: str) -> None:
        self._model = without_weights(model)
        # Engines give logits in float32, whatever their type.
        head: nn.Module = self._model.causal_lm.get_output_embeddings()  # type: ignore[no-untyped-call]
        head.register_forward_pre_hook(_in_float32)
        self._in_layers = frozenset(
            f"{name}.{parameter}" for name, layer in quant_layers(self._model) for parameter in layer.matrices()
        )
        self._dtype = dtype
        generator = torch.Generator().manual_seed(0)
        length = min(LENGTH, model.context or LENGTH)
        self.tokens: list[int] = torch.randint(model.vocabulary, (length,), generator=generator).tolist()

    def expected(self, update: Update) -> Tensor:
        """[length - 1] log-prob of each of `tokens` after those before it, by the trainer's model."""
        return self._scores(dict(update.weights), update)

    def tolerance(self, expected: Tensor, update: Update) -> float:
        """Mean |difference| that rounding explains, nats."""
        rounded = self._scores({name: self._rounded(name, value) for name, value in update.weights.items()}, update)
        other = BATCH if isinstance(format_named(update.number_format), Fp8Tensor) else 0.0
        other += KV if update.kv_format != "none" else 0.0
        return LEAST + other + FACTOR * float((rounded - expected).abs().mean())

    def check(self, measured: Tensor, update: Update) -> float:
        """Compare with what the engine says of `tokens`, and return the mean |difference|.

        Raises:
            SyncError: it is more than rounding.
        """
        expected = self.expected(update)
        difference = (measured - expected).abs()
        mean, tolerance = float(difference.mean()), self.tolerance(expected, update)
        if not mean <= tolerance:
            raise SyncError(
                f"sampler: after taking over version {update.version} it does not compute with these weights: the "
                f"log-probs of {len(difference)} fixed tokens are {mean:.3g} nats off on average and "
                f"{float(difference.max()):.3g} at most, where {update.number_format} in {self._dtype} explains "
                f"{tolerance:.3g}. Some weights are old (a head tied to the embedding is the known case), or the "
                "engine computes in something else"
            )
        return mean

    @torch.inference_mode()
    def _scores(self, weights: dict[str, Tensor], update: Update) -> Tensor:
        set_format(self._model, update.number_format)
        tokens = torch.tensor([self.tokens], device=next(iter(weights.values())).device)
        cache = self._model.new_cache(1, len(self.tokens), update.kv_format)
        weights |= {name: buffer.to(tokens.device) for name, buffer in self._model.named_buffers()}
        # Both names of a tied weight are given, so that nothing is to be tied.
        logits = functional_call(self._model, weights, (tokens,), {"cache": cache}, tie_weights=False)
        log_p = torch.log_softmax(logits[0, :-1].float(), -1)
        return log_p.gather(1, tokens[0, 1:, None])[:, 0].cpu()

    def _rounded(self, name: str, value: Tensor) -> Tensor:
        """Embeddings and norms decide what activations are kept in, and the layers are given what the engine's are."""
        if name in self._in_layers or not value.is_floating_point():
            return value
        if self._dtype == "float32":
            generator = torch.Generator(value.device).manual_seed(1)
            noise = torch.randn(value.shape, generator=generator, device=value.device)
            return value * (1 + EPSILON * noise)
        return value.to(DTYPES[self._dtype])

    def contract(self) -> dict[str, TensorContract]:
        """What each weight was to be computed in, by the last update."""
        return manifest(self._model)


def _in_float32(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(argument.float() for argument in arguments)


def without_weights(model: HuggingFaceLM) -> HuggingFaceLM:
    """A copy whose Parameters have shapes only, to be called with weights that are elsewhere."""
    memo: dict[int, Any] = {
        id(parameter): nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
        for parameter in model.parameters()
    }
    return copy.deepcopy(model, memo).eval()
