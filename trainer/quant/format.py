"""What every number format is: codes on a grid, scales, and the way back to float32."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from trimtab.trainer.quant import kernels
from trimtab.trainer.quant.grids import absmax

Role = Literal["weight", "activation", "gradient"]
"""A weight is [N, K] = [out_features, in_features]; an activation or the gradient of an output is [..., K], tokens by
channels. The matmul contracts the last dimension. A gradient is blocked as an activation is; a format may round it
differently."""
Family = Literal["fp32", "bf16", "fp8", "mxfp8", "nvfp4"]
"""Formats with the same elements and the same kind of scale."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quantized:
    """A quantised tensor, unpacked: one code a value.

    >>> from trimtab.trainer.quant import FORMATS
    >>> q = FORMATS["fp8-row"].quantize(torch.tensor([[448.0, 1.0]]), "activation")
    >>> q.codes.dtype, q.scale.tolist()
    (torch.float8_e4m3fn, [[1.0]])
    """

    codes: Tensor
    """Values on the element grid, in the shape of the input: float8_e4m3fn, float8_e5m2, bfloat16, or float32
    restricted to the E2M1 grid (torch has no arithmetic on four-bit floats)."""
    scale: Tensor | None = None
    """What codes are multiplied by, one for each block: [...] broadcastable after blocking (see each format); None
    without blocks."""
    global_scale: Tensor | None = None
    """Second, float32 scale of the formats that have two: [1, 1] for a weight, [..., 1] (one a row) for an
    activation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat(ABC):
    """One number format: a frozen value without state.

    All arithmetic is float32 in the order that each format documents, so that two engines that name the same format
    agree to the bit. A non-finite input never becomes a finite output: where values share a scale, one NaN or infinity
    makes all of them NaN.
    """

    name: str
    """Key in `FORMATS`."""
    identity: ClassVar[bool] = False
    """True if nothing is rounded."""
    scale_free: ClassVar[bool] = False
    """True if multiplying the input by a power of two only multiplies the output (no range smaller than float32's, no
    blocks)."""
    family: ClassVar[Family]
    tensor_wide: ClassVar[bool] = False
    """True if a weight has one scale for all of its values, which weights that are merged then share: see `merged`."""
    rotates: ClassVar[bool] = False
    """True if both operands of a quantised weight gradient go through a Hadamard transform first: see `hadamard`."""

    @property
    @abstractmethod
    def scale_mode(self) -> str:
        """Which values share a scale, and the grid of each scale. Two engines agree only if this and `tie_rule` do."""

    @property
    def tie_rule(self) -> str:
        """How a block with two candidate scales chooses, ties included; "none" if there is one candidate."""
        return "none"

    @property
    def short_accumulator(self) -> bool:
        """True if matmuls add up products of codes in less than float32: see `accumulate`."""
        return False

    def block(self, role: Role) -> tuple[int, int]:  # noqa: ARG002 - what it depends on is up to the format
        """Rows and columns of the blocks that the last two dimensions must divide into; (1, 1) if any shape will do."""
        return (1, 1)

    @abstractmethod
    def quantize(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Quantized:
        """Codes and scales of `x`, float32, [N, K] for a weight and [..., K] for anything else.

        `amax`, float32 [1, 1], as `absolute_maximum` gives it, takes the place of the largest magnitude of a weight in
        a format that is `tensor_wide`.

        Raises:
            ValueError: the shape does not divide into blocks, `x` is not float32, or `amax` has no place.
        """

    @abstractmethod
    def dequantize(self, q: Quantized, role: Role) -> Tensor:
        """The float32 values that `q` stands for, in the shape of `q.codes`."""

    def _native(self, library: kernels.Library, x: Tensor, out: Tensor, role: Role, amax: int | None) -> None:
        """Write `dequantize(quantize(x))` to `out` with the compiled kernels; both are contiguous float32 on the CPU.
        `amax` is an address."""
        raise NotImplementedError(f"{self.name}: no compiled kernel")

    def fake(self, x: Tensor, role: Role, amax: Tensor | None = None) -> Tensor:
        """`dequantize(quantize(x, role, amax))` in one go, without gradient: float32 in, float32 out. May return `x`
        itself (fp32).

        The compiled kernels, where they are available, give the same bits as the torch code.

        Raises:
            ValueError: the shape does not divide into blocks, `x` is not float32, or `amax` has no place.
        """
        library = kernels.library()
        if library is None or x.device.type != "cpu" or x.numel() == 0:
            with torch.no_grad():
                return self.dequantize(self.quantize(x, role, amax), role)
        self.check_input(x, role, amax)
        x = x.contiguous()
        out = torch.empty_like(x)
        self._native(library, x, out, role, None if amax is None else amax.data_ptr())
        return out

    def check_input(self, x: Tensor, role: Role, amax: Tensor | None = None) -> None:
        """Raise ValueError unless `x` is float32, its shape divides into this format's blocks, and `amax` has a
        place."""
        if amax is not None:
            if not self.tensor_wide or role != "weight":
                raise ValueError(f"amax: {self.name} takes none for a {role}; leave it out")
            if amax.shape != (1, 1) or amax.dtype != torch.float32:
                raise ValueError(f"amax: {amax.dtype} {list(amax.shape)} is not torch.float32 [1, 1]")
        if x.dtype != torch.float32:
            raise ValueError(
                f"{role}: dtype {x.dtype} cannot be quantised to {self.name}; convert it to torch.float32 first"
            )
        if x.dim() < 1 or (role == "weight" and x.dim() != 2):
            wanted = "[out_features, in_features]" if role == "weight" else "[..., in_features]"
            raise ValueError(f"{role}: shape {list(x.shape)} cannot be quantised to {self.name}; give {wanted}")
        self._check_blocks(role, x.shape, role)

    def check_shape(self, name: str, shape: Sequence[int]) -> None:
        """Raise ValueError, naming the weight, the dimension and the block, unless a weight of `shape` [N, K] can be
        used.

        The activations that meet the weight have its K, so this check covers them too.
        """
        if len(shape) != 2:
            raise ValueError(f"{name}: shape {list(shape)} is not [out_features, in_features], as {self.name} needs")
        self._check_blocks(name, shape, "weight")
        self._check_blocks(name, shape, "activation")

    def _check_blocks(self, name: str, shape: Sequence[int], role: Role) -> None:
        for dim, block in zip((-2, -1), self.block(role), strict=True):
            if block > 1 and shape[dim] % block:
                what = "in_features" if dim == -1 else "out_features"
                raise ValueError(
                    f"{name}: dimension {len(shape) + dim} ({what}) is {shape[dim]}, not divisible by {block}, "
                    f"the {role} block of {self.name}; choose a format with smaller blocks, or keep "
                    "this layer out (model.keep in a run's configuration)"
                )


@torch.no_grad()
def absolute_maximum(x: Tensor) -> Tensor:
    """max |x| over a float32 weight [N, K], [1, 1]; NaN where anything is NaN or infinite, 0 where nothing is."""
    library = kernels.library()
    if library is None or x.device.type != "cpu":
        return absmax(x, (0, 1))
    x = x.contiguous()
    out = torch.empty(1, 1)
    library.absmax(x.data_ptr(), out.data_ptr(), x.numel())
    return out
