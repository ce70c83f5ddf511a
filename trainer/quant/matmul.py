"""y = Q(x) Q(W)^T + b as an autograd function: the forward pass, and three ways back.

Q is quantise and dequantise; rounding itself passes the gradient straight through in all three, which are those of
Transformer Engine (`backward_override`, without one: quantized):

    quantized         dx = Q(dy) Q(W^T)^T,  dW = Q(dy^T) Q(x^T)^T     every matmul in the format
    dequantized       dx = dy Q(W),         dW = dy^T Q(x)            the operands that were multiplied
    high_precision    dx = dy W,            dW = dy^T x               the gradient of the unquantised layer

A quantised matmul has its blocks along the dimension that it contracts: the output channels in dx, the tokens in dW.
That dimension is padded with zeros to whole blocks, which changes no other code or scale and adds nothing to the
product, so that any number of tokens and of output channels will do. FP8 gradients are E4M3 (as in DeepSeek-V3, in
MXFP8 and in torchao's rowwise recipe) unless the format has them in E5M2. Formats that say so round gradients
stochastically and rotate both operands of dW.

The matmuls are float32, but for the forward pass where `native` has a kernel, and for every matmul of quantised
operands in a format that accumulates otherwise (`accumulate`).
"""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from typing_extensions import override

from trimtab.hooks.controls import Backward
from trimtab.trainer.quant import accumulate, native
from trimtab.trainer.quant.format import NumberFormat, Quantized
from trimtab.trainer.quant.hadamard import rotate


def product(x: Tensor, weight_q: Tensor | Quantized, bias: Tensor | None, fmt: NumberFormat) -> Tensor:
    """Q(x) Q(W)^T + b, float32 [..., N], without gradient; of codes where the weight comes in codes."""
    if isinstance(weight_q, Quantized):
        multiply = accumulate.multiply if fmt.short_accumulator else native.multiply
        y = multiply(fmt.quantize(x, "activation"), weight_q)
        return y if bias is None else y + bias
    return F.linear(fmt.fake(x, "activation"), weight_q, bias)


class QuantisedMatmul(Function):
    """y = Q(x s) Q(W / s)^T + b, with s the rescale of the input channels or None.

    Undoing the rescale on both operands would multiply every product by s / s = 1: it is left out, exactly, since s
    holds powers of two. The gradients are those with respect to x and W, so there it appears.
    """

    @staticmethod
    @override
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        weight_q: Tensor | Quantized,
        fmt: NumberFormat,
        scale: Tensor | None,
        backward: Backward,
        amax: Tensor | None,
    ) -> Tensor:
        """[..., K] by [N, K] to [..., N], all float32; `weight_q` is Q(W / s), `amax` what W's quantiser was given."""
        ctx.fmt, ctx.mode, ctx.amax = fmt, backward, amax
        scaled = x if scale is None else x * scale
        if backward != "dequantized":
            ctx.save_for_backward(x, weight, scale if backward == "quantized" else None)
            return product(scaled, weight_q, bias, fmt)
        x_q = fmt.fake(scaled, "activation")
        if isinstance(weight_q, Quantized):
            ctx.save_for_backward(x_q, fmt.dequantize(weight_q, "weight"), scale)
            return product(scaled, weight_q, bias, fmt)
        ctx.save_for_backward(x_q, weight_q, scale)
        return F.linear(x_q, weight_q, bias)

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, weight, scale = ctx.saved_tensors
        fmt: NumberFormat = ctx.fmt
        quantized = ctx.mode == "quantized"
        rows = grad.reshape(-1, grad.shape[-1])
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = _quantised_grad_x(grad, weight, scale, fmt, ctx.amax) if quantized else grad @ weight
            grad_x = grad_x if scale is None else grad_x.mul_(scale)
        if ctx.needs_input_grad[1]:
            x = x.reshape(-1, x.shape[-1])
            grad_weight = _quantised_grad_weight(rows, x, scale, fmt) if quantized else rows.t() @ x
            grad_weight = grad_weight if scale is None else grad_weight.div_(scale)
        if ctx.needs_input_grad[2]:
            grad_bias = rows.sum(0)
        return grad_x, grad_weight, grad_bias, None, None, None, None, None


def _quantised_grad_x(
    grad: Tensor, weight: Tensor, scale: Tensor | None, fmt: NumberFormat, amax: Tensor | None
) -> Tensor:
    """[..., N] by [N, K] to [..., K], contracted over N."""
    transposed = (weight if scale is None else weight / scale).t()
    grad, transposed = _padded(grad, fmt.block("gradient")[1]), _padded(transposed, fmt.block("weight")[1])
    if fmt.short_accumulator:
        return accumulate.multiply(fmt.quantize(grad, "gradient"), fmt.quantize(transposed, "weight", amax))
    return F.linear(fmt.fake(grad, "gradient"), fmt.fake(transposed, "weight", amax))


def _quantised_grad_weight(rows: Tensor, x: Tensor, scale: Tensor | None, fmt: NumberFormat) -> Tensor:
    """[T, N] and [T, K] to [N, K], contracted over the tokens."""
    rows_t = _padded(rows.t(), fmt.block("gradient")[1])
    x_t = _padded((x if scale is None else x * scale).t(), fmt.block("activation")[1])
    if fmt.rotates:
        rows_t, x_t = rotate(rows_t), rotate(x_t)
    if fmt.short_accumulator:
        return accumulate.multiply(fmt.quantize(rows_t, "gradient"), fmt.quantize(x_t, "activation"))
    return F.linear(fmt.fake(rows_t, "gradient"), fmt.fake(x_t, "activation"))


def _padded(x: Tensor, block: int) -> Tensor:
    """`x` with zeros after its last dimension, to whole blocks."""
    missing = -x.shape[-1] % block
    return F.pad(x, (0, missing)) if missing else x
