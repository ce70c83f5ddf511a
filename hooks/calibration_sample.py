"""What one calibration of the clip bounds sees: the ratio and its BF16 twin over the same tokens, as histograms.

Three sums by bin of `trimtab.hooks.sketch`, for each sign of the advantage and each of the two ratios r: the tokens,
the weight g that the loss gives their surrogate (aggregation times importance), and the update g |A| r that they make
where they are not clipped. Sums merge by addition, over minibatches and ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from trimtab.hooks.sketch import BINS, MAX_LOG_RATIO, MIDDLES, Sign, Sketch, bins_of_cells

SIGNS = (Sign.NEGATIVE, Sign.POSITIVE)
RATIOS = ("update", "shadow")
SUMS = ("tokens", "weight", "update")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSample:
    """The three sums.

    >>> CalibrationSample.of_sketches(Sketch(), Sketch()).of(Sign.NEGATIVE, "shadow").shape == (3, BINS)
    True
    """

    sums: NDArray[np.float64]
    """[signs, ratios, sums, BINS], each in the order given above."""

    @classmethod
    def of_cells(cls, cells: NDArray[np.float64]) -> Self:
        """From [signs, ratios, sums, CELLS], which `trimtab.hooks.calibration_torch` sums up on a device."""
        return cls(sums=bins_of_cells(cells))

    @classmethod
    def of_sketches(cls, update: Sketch, shadow: Sketch) -> Self:
        """From a step's sketches, which hold counts alone: as if every token had the same weight and the same |A|."""
        sums = np.zeros((len(SIGNS), len(RATIOS), len(SUMS), BINS))
        ratio = np.exp(np.clip(MIDDLES, -MAX_LOG_RATIO, MAX_LOG_RATIO))
        for s, sign in enumerate(SIGNS):
            for r, sketch in enumerate((update, shadow)):
                part = sketch.sign(sign)
                bins, counts = list(part.bins), np.asarray(part.counts, dtype=np.float64)
                sums[s, r][:, bins] = counts, counts, counts * ratio[bins]
        return cls(sums=sums)

    def of(self, sign: Sign, ratio: str) -> NDArray[np.float64]:
        """[sums, BINS] of one sign and one ratio."""
        part: NDArray[np.float64] = self.sums[SIGNS.index(sign), RATIOS.index(ratio)]
        return part
