"""vLLM in the trainer's own number formats: a quantisation method called `trimtab`.

vLLM's own FP8 and NVFP4 round on other grids than the trainer (scales of other granularity, another rule where two
candidates tie), and change only with a restart. Here every linear layer and the head keep their weight in high
precision, quantise it once after each set of weights, and compute exactly what `QuantLinear` computes: natively where
the machine has a kernel for the format (see `trainer.quant.native`), else emulated in float32. The format changes live.

The `quantization_config` that vLLM is started with:

    {"quant_method": "trimtab", "format": "nvfp4", "execution": "auto",
     "quantised": ["model.layers.0.self_attn.q_proj", ...], "kept": {"lm_head": "bf16", ...}}

with the layers under their Hugging Face names. vLLM merges q, k and v, and gate and up; the merged matrix has one scale
for all of them, which is what the trainer's parts share: see `trainer.quant.merged`. It loads as a plug-in (see
`vllm_plugin`), in every process of vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override
from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
from vllm.model_executor.layers.quantization import register_quantization_config
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig, QuantizeMethodBase
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, UnquantizedEmbeddingMethod

from trimtab.trainer.quant import NumberFormat, Quantized, format_named, native
from trimtab.trainer.quant.matmul import product

METHOD = "trimtab"
EXACT = format_named("fp32")


@dataclass(slots=True)
class Live:
    """What all quantised layers of one engine share, and change with the next set of weights."""

    format: NumberFormat
    execution: native.Execution
    exactly: bool = False
    """Compute in float32 everywhere, also in what is kept, for the time being; see `verified`."""


class _Computed:
    """One layer's matmul, in the engine's live format or in the one that the layer is kept in."""

    def __init__(self, live: Live, kept: NumberFormat | None) -> None:
        self.live = live
        self.kept = kept

    @property
    def format(self) -> NumberFormat:
        if self.live.exactly:
            return EXACT
        return self.live.format if self.kept is None else self.kept

    @property
    def execution(self) -> native.Execution:
        return self.live.execution if self.kept is None else "auto"

    def engine(self, weight: Tensor) -> str:
        """As `QuantLayer.engine`."""
        is_native = native.runs(self.execution, self.format, weight.device, weight.shape)
        return f"{self.format.family}-{'native' if is_native or self.format.family == 'fp32' else 'emulated'}"

    def multiply(self, layer: nn.Module, x: Tensor, bias: Tensor | None) -> Tensor:
        """[..., K] to [..., N], float32 unless `x` and the format are BF16."""
        fmt = self.format
        if fmt.family == "bf16" and x.dtype == torch.bfloat16:
            return F.linear(x, self._quantised(layer, x.dtype), None if bias is None else bias.to(x.dtype))
        x, bias = x.float(), None if bias is None else bias.float()
        if fmt.identity:
            return F.linear(x, weight_of(layer).float(), bias)
        return product(x, self._quantised(layer, x.dtype), bias, fmt)

    def _quantised(self, layer: nn.Module, dtype: torch.dtype) -> Any:
        """Q(W), from when the layer last received weights or the format last changed."""
        fmt, weight = self.format, weight_of(layer)
        codes = native.runs(self.execution, fmt, weight.device, weight.shape)
        key = (fmt.name, codes, dtype)
        cached = getattr(layer, "trimtab_quantised", None)
        if cached is None or cached[0] != key:
            quantised: Tensor | Quantized = (fmt.quantize if codes else fmt.fake)(weight.float(), "weight")
            cached = key, quantised if isinstance(quantised, Quantized) else quantised.to(dtype)
            layer.trimtab_quantised = cached  # type: ignore[assignment]
        return cached[1]


def weight_of(layer: nn.Module) -> Tensor:
    """[N, K]"""
    return cast(Tensor, layer.weight)


class TrimtabLinear(UnquantizedLinearMethod):  # type: ignore[misc]
    """A linear layer whose weight stays in float32, whatever the engine's type."""

    def __init__(self, computed: _Computed) -> None:
        super().__init__()
        self.computed = computed

    @override
    def create_weights(self, *args: Any, **kwargs: Any) -> None:
        """The weight, [N, K] float32: quantised from what the trainer has, and not from its rounding to BF16."""
        names = ("layer", "input_size_per_partition", "output_partition_sizes", "input_size", "output_size")
        super().create_weights(**dict(zip(names, args, strict=False)), **{**kwargs, "params_dtype": torch.float32})
        layer = kwargs["layer"] if "layer" in kwargs else args[0]
        self.computed.format.check_shape("weight", layer.weight.shape)

    @override
    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """Quantise anew when next used; vLLM would pack the weight for its own matmul here, and drop it."""
        layer.trimtab_quantised = None  # type: ignore[assignment]

    @override
    def apply(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """[..., K] to [..., N] in the type of `x`."""
        return self.computed.multiply(layer, x, bias).to(x.dtype)


class TrimtabHead(UnquantizedEmbeddingMethod):  # type: ignore[misc]
    """The head: logits stay float32, since rounding them to BF16 alone would cost more than the format of most."""

    def __init__(self, computed: _Computed) -> None:
        super().__init__()
        self.computed = computed

    @override
    def process_weights_after_loading(self, layer: nn.Module) -> None:
        """As for `TrimtabLinear`."""
        layer.trimtab_quantised = None  # type: ignore[assignment]

    @override
    def apply(self, layer: nn.Module, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """[..., K] to [..., vocabulary] float32."""
        return self.computed.multiply(layer, x.float(), bias)


@register_quantization_config(METHOD)
class TrimtabConfig(QuantizationConfig):  # type: ignore[misc]
    """Which layers are computed in what."""

    def __init__(self, *, live: Live, quantised: frozenset[str], kept: dict[str, NumberFormat]) -> None:
        super().__init__()
        self.live = live
        self.quantised = quantised
        self.kept = kept

    @classmethod
    @override
    def from_config(cls, config: dict[str, Any]) -> TrimtabConfig:
        """Read the dictionary in the module's docstring.

        Raises:
            ValueError: an unknown format.
        """
        return cls(
            live=Live(format=format_named(config["format"]), execution=config.get("execution", "auto")),
            quantised=frozenset(config["quantised"]),
            kept={name: format_named(fmt, field="kept") for name, fmt in config["kept"].items()},
        )

    @override
    def get_quant_method(self, layer: nn.Module, prefix: str) -> QuantizeMethodBase | None:
        """What computes the layer at `prefix`; None for what has no format, such as embeddings.

        Raises:
            ValueError: a merged layer of which only a part is kept, or a layer that the trainer does not convert.
        """
        if isinstance(layer, ParallelLMHead):
            return TrimtabHead(self._computed(prefix))
        if isinstance(layer, LinearBase):
            return TrimtabLinear(self._computed(prefix))
        return None

    def _computed(self, prefix: str) -> _Computed:
        parts = self._parts(prefix)
        formats = {self.kept.get(part) for part in parts}
        if len(formats) > 1:
            kept = [part for part in parts if part in self.kept]
            raise ValueError(
                f"keep: vLLM multiplies {', '.join(parts)} as one matrix, of which only {', '.join(kept)} "
                "is kept; keep all of them or none"
            )
        return _Computed(self.live, formats.pop())

    def _parts(self, prefix: str) -> list[str]:
        """The trainer's names of the layers that vLLM has at `prefix`."""
        parent, dot, name = prefix.rpartition(".")
        parts = [f"{parent}{dot}{part}" for part in self.packed_modules_mapping.get(name, [name])]
        unknown = [part for part in parts if part not in self.quantised and part not in self.kept]
        if unknown:
            raise ValueError(f"model: vLLM has a layer {', '.join(unknown)}, which the trainer's model has not")
        return parts

    @override
    def get_name(self) -> str:
        return METHOD

    @override
    def get_supported_act_dtypes(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16, torch.float32]

    @classmethod
    @override
    def get_min_capability(cls) -> int:
        return 0

    @staticmethod
    @override
    def get_config_filenames() -> list[str]:
        return []


def set_format(model: nn.Module, format_name: str) -> None:
    """Change the format of every layer of a vLLM model that is not kept, from its next forward pass on.

    Raises:
        ValueError: an unknown format, one that a layer does not divide into, or an engine with a quantisation of its
            own, which cannot change.
    """
    fmt, layers = format_named(format_name), dict(_quantised_layers(model))
    for name, layer in layers.items():
        fmt.check_shape(f"{name}.weight", layer.weight.shape)
    for layer in layers.values():
        layer.quant_method.computed.live.format = fmt


def compute_exactly(model: nn.Module, exactly: bool) -> None:
    """Compute in float32 in every layer of a vLLM model and the head, or in their formats again.

    Raises:
        ValueError: as for `set_format`.
    """
    for _, layer in _quantised_layers(model):
        layer.quant_method.computed.live.exactly = exactly


class Extension:
    """What a worker of vLLM can be asked for by its name, over HTTP too; see `served.EXTENSION`."""

    def compute_exactly(self, exactly: bool) -> None:
        """As the function of this name."""
        compute_exactly(self.get_model(), exactly)  # type: ignore[attr-defined]  # of vLLM's Worker, its other base


def engine_of(model: nn.Module) -> str:
    """What the layers that are not kept compute with, as the trainer says it: see `trainer.quant.engine_of`."""
    layers = (layer for _, layer in _quantised_layers(model))
    return "+".join(sorted({layer.quant_method.computed.engine(layer.weight) for layer in layers}))


def _quantised_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Those that are not kept: at least one."""
    found = False
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if isinstance(method, TrimtabLinear) and method.computed.kept is None:
            found = True
            yield name, module
    if not found:
        raise ValueError(
            f"sampler_format: this engine was not started with quantization = {METHOD!r} and cannot change its format"
        )
