"""Number formats of a key-value cache: what attention reads is what was stored.

`fp8` is E4M3 and `fp8-e5m2` is E5M2, with a scale of one, which is what serving engines use unless they were given
scales: values beyond the largest saturate, and nothing is calibrated.
"""

from __future__ import annotations

from typing import get_args

from torch import Tensor

from trimtab.hooks.controls import KvFormat
from trimtab.trainer.quant.grids import to_e4m3, to_e5m2

_ROUNDED = {"fp8": to_e4m3, "fp8-e5m2": to_e5m2}


def stored(x: Tensor, kv_format: str) -> Tensor:
    """`x`, of any shape and dtype, as a cache in `kv_format` gives it back.

    Raises:
        ValueError: an unknown format.
    """
    if kv_format == "none":
        return x
    if kv_format not in _ROUNDED:
        raise ValueError(f"kv_format: {kv_format!r} is none of {', '.join(get_args(KvFormat))}")
    return _ROUNDED[kv_format](x.float()).to(x.dtype)
