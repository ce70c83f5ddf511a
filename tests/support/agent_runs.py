"""Synthetic runs for the agent's tests: numbers modelled on measured small GRPO runs, and a plant that obeys commands.

A healthy run, two versions stale: negative-advantage tokens have a lower tail (5 % quantile about -0.25), positive ones
none; the entropy falls from 0.37 to 0.014 nats while the reward rises from 0.35 to 0.99; late, single steps spike.
Low-precision rollouts with outlier channels add a mismatch of standard deviation about 0.54, of which the
sampler-referenced ratio shows everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from trimtab.hooks.calibration import ClipCalibration
from trimtab.hooks.calibration_sample import CalibrationSample
from trimtab.hooks.controls import Capabilities, ClipBounds, Controls, ControlValue, Liveness
from trimtab.hooks.records import Command, NonFinite, SignTotals, StepSummary
from trimtab.hooks.sketch import MAX_LOG_RATIO, SignSketch, Sketch, bin_index

CAPABLE = Capabilities(
    controls={
        "ratio_reference": Liveness.LIVE,
        "clip_low": Liveness.LIVE,
        "clip_high": Liveness.LIVE,
        "clip_mode": Liveness.LIVE,
        "centering": Liveness.LIVE,
        "importance": Liveness.LIVE,
        "sampler_format": Liveness.NEXT_ROLLOUT,
        "train_format": Liveness.RESTART,
    },
    rollout_logprobs=True,
    sampler_head=16,
    shadow=True,
    sampler_formats=("bf16", "nvfp4"),
)


def sign_sketch(log_ratios: Iterable[float]) -> SignSketch:
    """The sketch of some tokens of one sign, from the definition."""
    values = np.asarray(list(log_ratios), dtype=np.float32)
    if not len(values):
        return SignSketch()
    bins, counts = np.unique(bin_index(values), return_counts=True)
    x = np.clip(values.astype(np.float64), -MAX_LOG_RATIO, MAX_LOG_RATIO)
    sums = (x.sum(), (x**2).sum(), np.exp(x).sum(), np.exp(2 * x).sum(), (np.expm1(x) - x).sum())
    return SignSketch(
        bins=tuple(map(int, bins)), counts=tuple(map(int, counts)), sums=tuple(float(value) for value in sums)
    )


def sketch(negative: Iterable[float], positive: Iterable[float]) -> Sketch:
    return Sketch(negative=sign_sketch(negative), positive=sign_sketch(positive))


def totals(tokens: int, entropy: float | None) -> SignTotals:
    if entropy is None:
        return SignTotals(tokens=tokens)
    return SignTotals(tokens=tokens, entropy_tokens=tokens, entropy=entropy * tokens, entropy_sq=entropy**2 * tokens)


def step_summary(
    step: int,
    *,
    update: tuple[Iterable[float], Iterable[float]] | None = None,
    mismatch: tuple[Iterable[float], Iterable[float]] | None = None,
    shadow: tuple[Iterable[float], Iterable[float]] | None = None,
    entropy: float | None = None,
    tokens: int = 1000,
    scalars: dict[str, float] | None = None,
    nonfinite: dict[str, NonFinite] | None = None,
    job: str = "run",
    attempt: int = 1,
    applied: Controls | None = None,
    generation: int = 0,
    overrides: dict[str, ControlValue] | None = None,
    clip_bounds: ClipBounds | None = None,
    capabilities: Capabilities = CAPABLE,
    refusals: tuple[str, ...] = (),
) -> StepSummary:
    """A summary from token-level log-ratios, `(A < 0, A > 0)` for each sketch."""
    given = {"update": update, "mismatch": mismatch, "shadow": shadow}
    return StepSummary(
        job=job,
        attempt=attempt,
        step=step,
        sketches={name: sketch(*signs) for name, signs in given.items() if signs is not None},
        negative=totals(tokens // 2, entropy),
        positive=totals(tokens - tokens // 2, entropy),
        scalars=scalars or {},
        nonfinite=nonfinite or {},
        applied=applied or Controls(ratio_reference="sampler"),
        generation=generation,
        overrides=overrides or {},
        clip_bounds=clip_bounds,
        capabilities=capabilities,
        refusals=refusals,
    )


ESCAPE = 0.05
"""Share of punished tokens escaping, beyond that of the twin, above which a plant fails."""


@dataclass
class Plant:
    """A run that fails as the measured ones do: as long as punished tokens fall below the clip bound in effect, by its
    own sketches, that would not in its BF16 twin. Recomputed ratios keep them above it; so do calibrated bounds, which
    it learns as a trainer does.

    `noisy_from`: first step whose rollouts carry the outlier mismatch; None for never. `spread`: background mismatch.
    `depth`: mean depth of the punished tokens that the noisy sampler over-weights, nats.
    """

    seed: int
    noisy_from: int | None = None
    spread: float = 0.014
    depth: float = 1.2
    shadow: bool = True
    capabilities: Capabilities = CAPABLE
    own: Controls = field(default_factory=lambda: Controls(ratio_reference="sampler"))
    job: str = "run"
    attempt: int = 1
    step: int = -1
    reward: float = 0.35
    entropy: float = 0.37
    overrides: dict[str, ControlValue] = field(default_factory=dict)
    generation: int = 0
    calibration: ClipCalibration = field(default_factory=ClipCalibration)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)

    @property
    def applied(self) -> Controls:
        return self.own.overlaid(self.overrides)

    def obey(self, command: Command | None) -> None:
        """Take a command in, as a trainer does: not of another attempt, not an older generation."""
        if command is not None and command.attempt == self.attempt and command.generation >= self.generation:
            self.generation, self.overrides = command.generation, dict(command.overrides)

    def advance(self) -> StepSummary:
        """Train one step and report it."""
        self.step += 1
        noisy = self.noisy_from is not None and self.step >= self.noisy_from
        summary = self._summary(noisy)
        if self._escaping(summary) > ESCAPE and noisy:
            self.reward += 0.06 * (0.10 - self.reward)
            self.entropy += 0.02 * (0.9 - self.entropy)
        else:
            self.reward += 0.10 * ((0.96 if noisy else 0.99) - self.reward)
            self.entropy += 0.05 * (0.014 - self.entropy)
        return summary

    def _escaping(self, summary: StepSummary) -> float:
        """Share of punished tokens that escape their penalty and would not in the twin; learns the bounds on the way.

        The twin is there even where it is not reported.
        """
        nominal, update, twin = ClipBounds.nominal(self.applied), summary.sketches["update"], self.twin
        bounds = summary.clip_bounds or nominal
        self.calibration = self.calibration.observed(CalibrationSample.of_sketches(update, twin))
        return update.negative.fraction_below(bounds.low) - twin.negative.fraction_below(nominal.low)

    def _summary(self, noisy: bool) -> StepSummary:
        rng = self.random
        spike = 5.0 if self.step > 60 and rng.random() < 0.04 else 1.0
        n_negative = int(80 + 1500 * (1 - self.reward))
        n_positive = int(200 + 1500 * self.reward * (1.2 - self.reward))
        twin = self._stale(n_negative, spike), rng.normal(0.008, 0.004, n_positive)
        noise = self._noise(n_negative, True, noisy, spike), self._noise(n_positive, False, noisy, spike)
        denominator = self.applied.ratio_reference
        update = tuple(x + y if denominator == "sampler" else x for x, y in zip(twin, noise, strict=True))
        sampled = rng.binomial(192, self.reward) / 192
        self.twin = sketch(*twin)
        moved = self.applied.clip_mode == "calibrated" and self.calibration != ClipCalibration()
        summary = step_summary(
            self.step,
            update=update,  # type: ignore[arg-type]
            mismatch=noise,
            shadow=twin if self.shadow else None,
            scalars={
                "loss": float(rng.normal(0, 0.01)),
                "grad_norm": float(rng.lognormal(-1.5, 0.3)),
                "reward_mean": float(sampled),
                "garbage_fraction": 0.003 if self.entropy < 0.6 else 0.06,
                "length_mean": 17.0,
                "zero_variance_fraction": min(0.95, max(0.05, 2 * self.reward - 1)),
            },
            entropy=float(self.entropy * rng.lognormal(0, 0.02)),
            tokens=n_negative + n_positive,
            job=self.job,
            attempt=self.attempt,
            applied=self.applied,
            generation=self.generation,
            overrides=dict(self.overrides),
            clip_bounds=self.calibration.bounds(self.applied) if moved else None,
            capabilities=self.capabilities,
        )
        return replace(summary, staleness=2.0)

    def _stale(self, n: int, spike: float) -> np.ndarray:
        """What two versions of staleness do to punished tokens."""
        tail = self.random.random(n) < 0.15
        return np.where(
            tail, -self.random.exponential(0.227 * math.sqrt(spike), n), self.random.normal(0.006, 0.004, n)
        )

    def _noise(self, n: int, negative: bool, noisy: bool, spike: float) -> np.ndarray:
        """Trainer log-prob - sampler log-prob."""
        rng = self.random
        background = rng.normal(0, self.spread * spike, n)
        if not noisy:
            return background
        hit = rng.random(n)
        wide = np.where(hit < 0.18, rng.normal(0.1, 0.45, n), 0.0)
        if negative:  # the noisy sampler over-weights what turns out wrong
            wide = np.where(hit > 0.85, -rng.exponential(self.depth, n), wide)
        return background + wide


def drift_run(
    seed: int,
    *,
    steps: int,
    onset: int | None = None,
    tail: float = 0.0,
    bulk: float = 0.0,
    ramp: int = 0,
    wander: float = 0.0,
    tokens: int = 8000,
    entropy: float = 0.35,
) -> Iterable[StepSummary]:
    """A stationary run in which negative-advantage tokens drift from `onset` on: the lowest 5 % by -`tail`, all by
    -`bulk`.

    97 % of the log-ratios are N(0, 0.04), 3 % Laplace(0.15); `wander` is the standard deviation of an AR(1) change of
    their common scale, `ramp` the steps over which the drift grows. Rewards are binary. There are `tokens` of each
    sign.
    """
    rng = np.random.default_rng(seed)
    wandering = 0.0
    for step in range(steps):
        wandering = 0.9 * wandering + math.sqrt(1 - 0.9**2) * rng.normal(0, wander) if wander else 0.0
        negative, positive = (_stationary(rng, tokens) * math.exp(wandering) for _ in range(2))
        if onset is not None and step >= onset:
            share = min(1.0, (step - onset + 1) / ramp) if ramp else 1.0
            lowest = negative <= np.quantile(negative, 0.05)
            negative = negative - share * (bulk + tail * lowest)
        yield step_summary(
            step,
            update=(negative, positive),
            entropy=float(entropy * rng.lognormal(0, 0.03)),
            tokens=2 * tokens,
            scalars={"reward_mean": rng.binomial(64, 0.5) / 64, "garbage_fraction": 0.003},
            applied=Controls(),
        )


def _stationary(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.where(rng.random(n) < 0.97, rng.normal(0, 0.04, n), rng.laplace(0, 0.15, n))
