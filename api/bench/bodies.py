"""What a job reports, ready to be sent: drawn steps, each told as that of any step of any job."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zstandard

from trimtab.agent.signals import read_all
from trimtab.api.backtest.conditions import Setup, Size
from trimtab.api.backtest.faults import nothing
from trimtab.api.backtest.run import summary_at
from trimtab.api.bench.load import Call, Target
from trimtab.hooks.records import StepSummary
from trimtab.storage.codec import SUMMARY

DRAWN_STEPS = 64
"""Different steps; a job reports them over and over."""
ENCODINGS = ("identity", "gzip", "zstd")


def drawn_steps(count: int = DRAWN_STEPS) -> list[StepSummary]:
    """Steps of a healthy run: 64 responses of up to 512 tokens each."""
    return [summary_at(Setup(), Size(), 0, step, fault=nothing, onset=count) for step in range(count)]


def scalars_of(summary: StepSummary) -> dict[str, float]:
    """What a logger of scalars would be told of a step: the signals that were observed, and the trainer's scalars."""
    signals = {name: value for name, value in read_all(summary).items() if value is not None}
    return {**summary.scalars, **signals}


@dataclass(frozen=True, slots=True, kw_only=True)
class Summaries(Target):
    """Step summaries for `/v1/summaries`, or `together` of them at a time for `/v1/summaries/batch`."""

    run: str
    """What the names of the jobs begin with."""
    rests: tuple[str, ...]
    """JSON of drawn steps, but for their job and step."""
    together: int = 1
    encoding: str = "identity"

    @classmethod
    def of(cls, run: str, steps: list[StepSummary], *, together: int = 1, encoding: str = "identity") -> Summaries:
        """Of drawn steps."""
        return cls(run=run, rests=tuple(map(_rest, steps)), together=together, encoding=encoding)

    def name(self, job: int) -> str:
        """Of a job."""
        return f"{self.run}-{job:04}"

    def calls(self, job: int) -> Iterator[Call]:
        """Its steps from 0 on."""
        headers = {} if self.encoding == "identity" else {"content-encoding": self.encoding}
        path = "/v1/summaries" if self.together == 1 else "/v1/summaries/batch"
        for first in itertools.count(step=self.together):
            texts = [self._text(job, first + i) for i in range(self.together)]
            body = (texts[0] if self.together == 1 else f"[{','.join(texts)}]").encode()
            yield Call(path=path, body=_packed(body, self.encoding), headers=headers, summaries=self.together)

    def refusal(self, answer: bytes) -> str:
        """Every summary has to be stored."""
        told = json.loads(answer)
        results = [item["result"] for item in told.get("results", [told])]
        return "" if results == ["stored"] * self.together else f"results {sorted(set(results))}"

    def _text(self, job: int, step: int) -> str:
        return f'{{"job":"{self.name(job)}","step":{step},{self.rests[step % len(self.rests)]}'


def _rest(summary: StepSummary) -> str:
    data: dict[str, Any] = json.loads(SUMMARY.encode(summary))
    del data["job"], data["step"]
    return json.dumps(data, separators=(",", ":"))[1:]


def _packed(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.compress(body, compresslevel=1)
    return zstandard.compress(body, level=1) if encoding == "zstd" else body
