"""Layers whose weights and activations pass through a number format, for training and for sampling.

What they compute, forward and back, is in `matmul`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from trimtab.hooks.controls import Backward
from trimtab.trainer.quant import native
from trimtab.trainer.quant.format import NumberFormat, Quantized, absolute_maximum
from trimtab.trainer.quant.matmul import QuantisedMatmul, product
from trimtab.trainer.quant.native import Execution

_Quantised = tuple[Tensor | Quantized, Tensor | None]
"""Q(W / scale), float32, or its codes where those are multiplied, and the largest magnitude that came from the
layers that share the scale of the weight."""


class QuantLayer(nn.Module, ABC):
    """What layers that multiply in a number format share: the format and the way back, live, and frozen weights.

    `input_scale`, [in_features], powers of two, multiplies the activation's channels before the quantiser and divides
    the weight's columns, undone after: without rounding the layer's function is unchanged, but the quantiser sees the
    outlier channels that real language models have. It is configuration and therefore not part of the state dict.
    """

    input_scale: Tensor | None

    def __init__(self, in_features: int, fmt: NumberFormat, *, backward: Backward, kept: bool) -> None:
        super().__init__()
        self.in_features = in_features
        self.register_buffer("input_scale", None, persistent=False)
        self.backward_mode = backward
        self._execution: Execution = "auto"
        self.kept = kept
        """The layer was kept out of the conversion: `set_format` leaves it in its format."""
        self.format = fmt
        self.merged: dict[str, QuantLinear] = {}
        """The layers that a serving engine merges into one matrix, this one included, by name; empty if it merges none
        with this one. See `merged`."""
        self._frozen = False
        self._cached: dict[int, tuple[tuple[object, ...], _Quantised]] = {}

    @property
    def backward_mode(self) -> Backward:
        """What the backward pass multiplies by, from the next forward pass on; see `matmul`."""
        return self._backward_mode

    @backward_mode.setter
    def backward_mode(self, mode: Backward) -> None:
        if mode not in get_args(Backward):
            raise ValueError(f"backward: {mode!r} is none of {', '.join(get_args(Backward))}")
        self._backward_mode: Backward = mode

    @property
    def execution(self) -> Execution:
        """Whether the forward pass uses the machine's own low-precision matmul, from the next one on; see `native`.

        Where native cannot be, as the format, the device and the shapes then are, a forward pass raises ValueError with
        the reason.
        """
        return self._execution

    @execution.setter
    def execution(self, execution: Execution) -> None:
        if execution not in get_args(Execution):
            raise ValueError(f"execution: {execution!r} is none of {', '.join(get_args(Execution))}")
        self._execution = execution

    @property
    def engine(self) -> str:
        """Family of the format and how the forward pass computes in it: `fp8-native`, `nvfp4-emulated`. Float32, and
        only that, is native everywhere.

        Raises:
            ValueError: `execution` is native, and that cannot be.
        """
        device, shapes = next(self.parameters()).device, self.matrices().values()
        native_everywhere = all(native.runs(self._execution, self.format, device, shape) for shape in shapes)
        how = "native" if native_everywhere or self.format.family == "fp32" else "emulated"
        return f"{self.format.family}-{how}"

    @property
    def sharing(self) -> dict[str, QuantLinear]:
        """Those of `merged` with which the weight has one scale now, this layer included: all of them or none."""
        one_format = all(layer.format == self.format for layer in self.merged.values())
        return self.merged if self.format.tensor_wide and one_format else {}

    @abstractmethod
    def matrices(self) -> dict[str, torch.Size]:
        """Shape [N, K] of the matrices that the layer multiplies by, under the names of the Parameters that hold
        them."""

    def set_input_scale(self, scale: Tensor | None) -> None:
        """Set the rescale of the input channels, or remove it.

        Raises:
            ValueError: `scale` is not [in_features], or one of its values is not a power of two.
        """
        if scale is not None:
            if scale.shape != (self.in_features,):
                raise ValueError(f"input_scale: shape {list(scale.shape)} is not [in_features] = [{self.in_features}]")
            mantissa, _ = torch.frexp(scale)
            if not bool((mantissa == 0.5).all()):
                wrong = scale[mantissa != 0.5][0].item()
                raise ValueError(
                    f"input_scale: {wrong!r} is not a power of two; only powers of two rescale without rounding"
                )
            scale = scale.to(next(self.parameters()).device, torch.float32)
        self.input_scale = scale
        self._forget()

    def freeze(self) -> None:
        """Quantise the weight once and reuse it from now on.

        In-place changes that torch counts (optimizer steps, `load_state_dict`, `copy_` under `no_grad`) are noticed and
        quantise again; writes through `weight.data` are not counted by torch: call `freeze` again after them.
        """
        self._frozen = True
        self._forget()

    def _forget(self) -> None:
        """Quantise again what depends on this layer's weight."""
        for layer in (self, *self.merged.values()):
            layer._cached.clear()

    @property
    def frozen(self) -> bool:
        """The quantised weight is being reused."""
        return self._frozen

    def _multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None, scale: Tensor | None, slot: int = 0) -> Tensor:
        """[..., K] by `weight` [N, K] to [..., N] in the dtype of `x`; `slot` numbers the layer's matrices.

        Raises:
            ValueError: the matrix does not divide into the format's blocks.
        """
        fmt = self.format
        out_dtype = x.dtype
        if fmt.identity and out_dtype == weight.dtype == torch.float32:
            return F.linear(x, weight, bias)  # all three ways back are torch's own where nothing is rounded
        x = x.float()
        bias = None if bias is None else bias.float()
        scale = None if fmt.scale_free else scale
        weight_q, amax = self._quantised_weight(weight, scale, slot)
        trains = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
        if trains and torch.is_grad_enabled():
            arguments = (x, weight.float(), bias, weight_q, fmt, scale, self._backward_mode, amax)
            y: Tensor = QuantisedMatmul.apply(*arguments)  # type: ignore[no-untyped-call]
        else:
            y = product(x if scale is None else x * scale, weight_q, bias, fmt)
        return y.to(out_dtype)

    def _quantised_weight(self, weight: Tensor, scale: Tensor | None, slot: int) -> _Quantised:
        multiplied_natively = native.runs(self._execution, self.format, weight.device, weight.shape)
        codes = multiplied_natively or self.format.short_accumulator
        if not self._frozen:
            return self._quantise_weight(weight, scale, codes=codes)
        weights = (weight, *(layer.weight for layer in self.sharing.values()))
        key = (self.format.name, codes, *((each._version, each.data_ptr()) for each in weights))
        cached = self._cached.get(slot)
        if cached is None or cached[0] != key:
            with torch.inference_mode(False):
                cached = key, self._quantise_weight(weight, scale, codes=codes)
            self._cached[slot] = cached
        return cached[1]

    def _quantise_weight(self, weight: Tensor, scale: Tensor | None, *, codes: bool) -> _Quantised:
        shared = [absolute_maximum(_rescaled(layer.weight, layer.input_scale)) for layer in self.sharing.values()]
        amax = functools.reduce(torch.maximum, shared) if shared else None
        quantise = self.format.quantize if codes else self.format.fake
        return quantise(_rescaled(weight, scale), "weight", amax), amax


class QuantLinear(QuantLayer):
    """Takes the place of an `nn.Linear` and owns the same Parameters, so optimizers and state-dict keys go on
    working."""

    weight: Tensor
    bias: Tensor | None

    def __init__(
        self, linear: nn.Linear, fmt: NumberFormat, *, backward: Backward = "dequantized", kept: bool = False
    ) -> None:
        super().__init__(linear.in_features, fmt, backward=backward, kept=kept)
        self.out_features = linear.out_features
        self.register_parameter("weight", cast(nn.Parameter, linear.weight))
        self.register_parameter("bias", cast("nn.Parameter | None", linear.bias))
        self.train(linear.training)

    @override
    def matrices(self) -> dict[str, torch.Size]:
        return {"weight": self.weight.shape}

    def forward(self, x: Tensor) -> Tensor:
        """[..., in_features] to [..., out_features] in the dtype of `x`; the computation is float32.

        Raises:
            ValueError: the layer does not divide into the format's blocks.
        """
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        assert weight is not None
        return self._multiply(x, weight, bias, self._buffers["input_scale"])

    @override
    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"format={self.format.name}, backward={self.backward_mode}"
        )


def _rescaled(weight: Tensor, scale: Tensor | None) -> Tensor:
    """What the quantiser is given, float32, without gradient."""
    weight = weight.detach().float()
    return weight if scale is None else weight / scale
