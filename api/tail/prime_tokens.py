"""prime-rl's token exports: a folder `step_N` for each step, in it a file `rank_R.jsonl` for each rank, and `STABLE`
once all of them are whole.

A line is a sequence, and holds a column for each number of a token. Here they become means over the tokens of the loss
mask, under the names that prime-rl logs. The first token of a sequence is left out: its log-prob and entropy are made
up. A number that was not finite is null, and counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from trimtab.api.tail.files import reading, unreadable
from trimtab.api.tail.source import Piece, Place, Row, Skipped
from trimtab.api.tail.values import parsed, step_of

WHOLE = "STABLE"
"""The file that says that a step is whole."""
LONGEST = 32 << 20
"""Bytes of a line."""
_STEP = "step_"
_MEANS = {
    "entropy": "entropy/mean",
    "mismatch_kl": "mismatch_kl/mean",
    "log_importance_ratio": "mismatch_log_ratio/mean",
}
"""Columns whose mean is taken, and what it is called."""
_COUNTED = ("trainer_logprobs", "inference_logprobs", "entropy")


@dataclass(slots=True)
class _Sums:
    """Over the live tokens of a step."""

    tokens: int = 0
    total: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_MEANS, 0.0))
    count: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_MEANS, 0))
    missing: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0))

    def add(self, record: Mapping[str, Any]) -> None:
        """A sequence. Raises what there is to raise where it is none, and is as it was then."""
        positions = record["position_ids"]
        live = [i for i, kept in enumerate(record["loss_mask"]) if kept and positions[i] != 0]
        found = {name: [float(record[name][i]) for i in live if record[name][i] is not None] for name in _MEANS}
        totals = {name: math.fsum(values) for name, values in found.items()}
        missing = {name: sum(record[name][i] is None for i in live) for name in _COUNTED}
        self.tokens += len(live)
        for name in _MEANS:
            self.total[name] += totals[name]
            self.count[name] += len(found[name])
        for name in _COUNTED:
            self.missing[name] += missing[name]

    def values(self) -> dict[str, float]:
        """What is told of the step."""
        means = {told: self.total[name] / self.count[name] for name, told in _MEANS.items() if self.count[name]}
        counts = {f"token_export/{name}_missing": float(count) for name, count in self.missing.items()}
        return {**means, **counts, "token_export/tokens": float(self.tokens)}


class PrimeTokens:
    """A folder `token_exports`."""

    kind: ClassVar[str] = "prime_tokens"
    quiet_s: ClassVar[float] = 1.0

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, place: Place) -> Piece:
        """The next step that is whole. One that was written again is where a resume begins."""
        steps, skipped = self._whole(), Skipped()
        last, stamp = int(place.get("step", -1)), int(place.get("stamp", 0))
        again = [step for step, written in steps.items() if step <= last and written > stamp]
        # Steps that lie behind a resume and were written before it are of the attempt that is over.
        due = again or [step for step, written in steps.items() if step > last and written >= stamp]
        if not due:
            return Piece(rows=(), place=place)
        step = min(due)
        written = steps[step]
        row = Row(step=step, time=written / 1e9, values=self._sums(step, skipped).values())
        rows = (Row(step=None, restart=True), row) if again else (row,)
        more = any(each > step and when >= written for each, when in steps.items())
        return Piece(rows=rows, place={"step": step, "stamp": written}, more=more, skipped=skipped)

    def end(self) -> Place:
        """Behind the newest step."""
        steps = self._whole()
        return {"step": max(steps), "stamp": max(steps.values())} if steps else {}

    def _whole(self) -> dict[int, int]:
        """When each step was whole, nanoseconds, by its number."""
        try:
            folders = [each for each in self.path.iterdir() if each.name.startswith(_STEP)]
            steps = {step_of(each.name[len(_STEP) :]): each for each in folders}
            return {
                step: (each / WHOLE).stat().st_mtime_ns
                for step, each in steps.items()
                if step is not None and each.name == f"{_STEP}{step}" and (each / WHOLE).exists()
            }
        except OSError as error:
            raise unreadable(self.path, error) from error

    def _sums(self, step: int, skipped: Skipped) -> _Sums:
        sums = _Sums()
        for path in sorted((self.path / f"{_STEP}{step}").glob("rank_*.jsonl")):
            with reading(path) as file:
                while line := file.readline(LONGEST):
                    if len(line) == LONGEST and not line.endswith(b"\n"):
                        skipped.damaged += 1
                        while (rest := file.readline(LONGEST)) and not rest.endswith(b"\n"):
                            pass
                        continue
                    try:
                        sums.add(parsed(line))
                    except (ValueError, KeyError, TypeError, IndexError, OverflowError):
                        skipped.damaged += 1
        return sums
