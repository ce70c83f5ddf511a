"""Does an engine compute with the weights that it was given? Asked of its log-probs, after every set of weights.

A serving engine keeps weights in forms of its own (merged, packed, quantised, split over processes), and nothing that
it says about them is proof: vLLM 0.32 on a CPU goes on multiplying by a tied head's old weight after an update, and its
checksums say that all is well. So a few fixed tokens are scored by the engine, and by the trainer's own model with the
same weights in the same format; they differ by rounding, or something is wrong.

In a deep model of low precision rounding is large, and an old weight hides in it. So engines are probed twice (see
`verified`): once with every layer in float32, where little but an old weight makes a difference, and once in the format
that they sample in, to see that it is on.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.models.huggingface import FormattedCache, HuggingFaceLM
from trimtab.trainer.quant import format_named, manifest, set_format
from trimtab.trainer.quant.fp8 import Fp8Tensor
from trimtab.trainer.quant.layers import quant_layers
from trimtab.trainer.rollouts.sampler import SyncError, Update
from trimtab.trainer.rollouts.truncated import TruncatedCache

LENGTH = 64
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
EXACT = format_named("fp32")
FACTOR = 3.0
"""How many times the rounding that the trainer's model itself shows is still rounding."""
LEAST = 1e-3
"""Nats that are always rounding in a format that rounds: of a few values that are tipped over, or none."""
LEAST_EXACT = 1e-5
"""Nats that are always rounding where all layers are float32."""
BATCH = 0.5
"""Nats that the rest of a batch may change a token by in a format whose activations share a scale over the batch."""
EPSILON = 2.0**-20
"""Relative change of the trainer's weights that stands for an engine in float32 which adds up in another order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What an engine must say of the probe's tokens if it computes as it should."""

    logprobs: tuple[Tensor, ...]
    """[n] each, by the trainer's model: one for each of the ways that engines are known to round keys and values."""
    tolerances: tuple[float, ...]
    """Of each: mean |difference| that rounding explains, nats."""
    version: int
    computed: str
    """The format and what activations are kept in, for people."""

    def check(self, measured: Tensor) -> float:
        """Compare with what the engine says, [n], and return the mean |difference| to the closest.

        Raises:
            SyncError: it is more than rounding.
        """
        differences = [(measured - each).abs() for each in self.logprobs]
        difference, tolerance = min(
            zip(differences, self.tolerances, strict=True), key=lambda each: float(each[0].mean())
        )
        mean = float(difference.mean())
        if not mean <= tolerance:
            raise SyncError(
                f"sampler: after taking over version {self.version} it does not compute with these weights: the "
                f"log-probs of {len(difference)} fixed tokens are {mean:.3g} nats off on average and "
                f"{float(difference.max()):.3g} at most, where {self.computed} explains {tolerance:.3g}. Some "
                "weights are old (a head tied to the embedding is the known case), or the engine computes in something "
                "else"
            )
        return mean


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
        self._layers = dict(quant_layers(self._model))
        self._in_layers = frozenset(
            f"{name}.{parameter}" for name, layer in self._layers.items() for parameter in layer.matrices()
        )
        self._dtype = dtype
        generator = torch.Generator().manual_seed(0)
        length = min(LENGTH, model.context or LENGTH)
        self.tokens: list[int] = torch.randint(model.vocabulary, (length,), generator=generator).tolist()

    def expected(self, update: Update, *, exact: bool = False) -> Expected:
        """Of each of `tokens` after those before it, with the weights of `update`: in its format, or `exact`, which is
        with all layers in float32, kept ones included."""
        rounded = {name: self._rounded(name, value) for name, value in update.weights.items()}
        set_format(self._model, update.number_format)
        with self._exactly() if exact else nullcontext():
            caches = self._caches(update.kv_format)
            logprobs = [self._scores(dict(update.weights), cache) for cache in caches]
            others = [self._scores(dict(rounded), cache) for cache in self._caches(update.kv_format)]
        of_batch = BATCH if isinstance(format_named(update.number_format), Fp8Tensor) else 0.0
        least = LEAST_EXACT if exact else LEAST + of_batch
        spreads = [float((one - other).abs().mean()) for one, other in zip(logprobs, others, strict=True)]
        return Expected(
            logprobs=tuple(logprobs),
            tolerances=tuple(least + FACTOR * spread for spread in spreads),
            version=update.version,
            computed=f"{EXACT.name if exact else update.number_format} in {self._dtype}",
        )

    def _caches(self, kv_format: str) -> list[FormattedCache]:
        caches = [self._model.new_cache(1, len(self.tokens), kv_format)]
        if kv_format != "none":
            caches.append(TruncatedCache(config=self._model.causal_lm.config, kv_format=kv_format))
        return caches

    @contextmanager
    def _exactly(self) -> Iterator[None]:
        formats = {name: layer.format for name, layer in self._layers.items()}
        try:
            for layer in self._layers.values():
                layer.format = EXACT
            yield
        finally:
            for name, layer in self._layers.items():
                layer.format = formats[name]

    @torch.inference_mode()
    def _scores(self, weights: dict[str, Tensor], cache: FormattedCache) -> Tensor:
        tokens = torch.tensor([self.tokens], device=next(iter(weights.values())).device)
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
