"""A linear layer whose weight and activations pass through a number format, for training and for sampling.

Forward: y = Q(x) Q(W)^T + b with the matmul in float32, Q = quantise and dequantise. Two ways back, as in Transformer
Engine's `backward_override` (rounding itself passes the gradient straight through in both):

    dequantized       dx = dy Q(W),  dW = dy^T Q(x)       the chain rule through the operands that were multiplied
    high_precision    dx = dy W,     dW = dy^T x          the gradient of the unquantised layer
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from trimtab.trainer.quant.format import NumberFormat

Backward = Literal["dequantized", "high_precision"]


class QuantLayer(nn.Module, ABC):
    """What layers that multiply in a number format share: the format and the way back, live, and frozen weights.

    `input_scale`, [in_features], powers of two, multiplies the activation's channels before the quantiser and divides
    the weight's columns, undone after: without rounding the layer's function is unchanged, but the quantiser sees the
    outlier channels that real language models have. It is configuration and therefore not part of the state dict.
    """

    input_scale: Tensor | None

    def __init__(self, in_features: int, fmt: NumberFormat, *, backward: Backward, kept: bool) -> None:
        super().__init__()
        if backward not in get_args(Backward):
            raise ValueError(f"backward: {backward!r} is none of {', '.join(get_args(Backward))}")
        self.in_features = in_features
        self.register_buffer("input_scale", None, persistent=False)
        self.backward_mode: Backward = backward
        self.kept = kept
        """The layer was kept out of the conversion: `set_format` leaves it in its format."""
        self.format = fmt
        self._frozen = False
        self._cached: dict[int, tuple[tuple[object, ...], Tensor]] = {}

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
        self._cached.clear()

    def freeze(self) -> None:
        """Quantise the weight once and reuse it until `thaw`.

        In-place changes that torch counts (optimizer steps, `load_state_dict`, `copy_` under `no_grad`) are noticed and
        quantise again; writes through `weight.data` are not counted by torch: call `freeze` again after them.
        """
        self._frozen = True
        self._cached.clear()

    def thaw(self) -> None:
        """Quantise the weight in every forward pass again."""
        self._frozen = False
        self._cached.clear()

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
        scale = None if fmt.scale_free else scale
        weight_q = self._quantised_weight(weight, scale, slot)
        x, weight = x.float(), weight.float()
        bias = None if bias is None else bias.float()
        trains = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
        if torch.is_grad_enabled() and trains:
            arguments = (x, weight, bias, weight_q, fmt, scale, self.backward_mode)
            y: Tensor = _QuantisedMatmul.apply(*arguments)  # type: ignore[no-untyped-call]
        else:
            x_q = fmt.fake(x if scale is None else x * scale, "activation")
            y = F.linear(x_q, weight_q, bias)
        return y.to(out_dtype)

    def _quantised_weight(self, weight: Tensor, scale: Tensor | None, slot: int) -> Tensor:
        """Q(W / scale), float32, without gradient."""
        if not self._frozen:
            return _quantise_weight(weight, self.format, scale)
        key = (self.format.name, weight._version, weight.data_ptr())
        cached = self._cached.get(slot)
        if cached is None or cached[0] != key:
            with torch.inference_mode(False):
                cached = key, _quantise_weight(weight, self.format, scale)
            self._cached[slot] = cached
        return cached[1]


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
        return self._multiply(x, self.weight, self.bias, self.input_scale)

    @override
    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"format={self.format.name}, backward={self.backward_mode}"
        )


def _quantise_weight(weight: Tensor, fmt: NumberFormat, scale: Tensor | None) -> Tensor:
    weight = weight.detach().float()
    return fmt.fake(weight if scale is None else weight / scale, "weight")


class _QuantisedMatmul(torch.autograd.Function):
    """y = Q(x s) Q(W / s)^T + b.

    Undoing the rescale on both operands would multiply every product by s / s = 1: it is left out, exactly, since s
    holds powers of two. The gradients are those with respect to x and W, so there it appears.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        weight_q: Tensor,
        fmt: NumberFormat,
        scale: Tensor | None,
        backward: Backward,
    ) -> Tensor:
        x_q = fmt.fake(x if scale is None else x * scale, "activation")
        if backward == "dequantized":
            ctx.save_for_backward(x_q, weight_q, scale)
        else:
            ctx.save_for_backward(x, weight, None)
        return F.linear(x_q, weight_q, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight, scale = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        rows = grad.reshape(-1, grad.shape[-1])
        if ctx.needs_input_grad[0]:
            grad_x = grad @ weight
            grad_x = grad_x if scale is None else grad_x.mul_(scale)
        if ctx.needs_input_grad[1]:
            grad_weight = rows.t() @ x.reshape(-1, x.shape[-1])
            grad_weight = grad_weight if scale is None else grad_weight.div_(scale)
        if ctx.needs_input_grad[2]:
            grad_bias = rows.sum(0)
        return grad_x, grad_weight, grad_bias, None, None, None, None
