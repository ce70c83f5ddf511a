"""The BF16 twin of a run: the ratio that the loss would have had in BF16, and the clip bounds learnt from it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trimtab.hooks.calibration import ClipCalibration
from trimtab.hooks.calibration_sample import CalibrationSample
from trimtab.hooks.calibration_torch import calibration_sums
from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.trainer.batch import Batch
from trimtab.trainer.objective import Loss
from trimtab.trainer.rollouts.published import Published
from trimtab.trainer.rollouts.sampler import Weights
from trimtab.trainer.scoring import Scorer
from trimtab.trainer.world import World


class Twin:
    """A copy of the model that computes in BF16 with whatever weights it is given.

    Args:
        model: converted, in BF16; the twin owns it.
        scorer: the trainer's.
        every: steps between two ratios; 0 for none.
        world: the processes that learn from it together.
    """

    def __init__(self, model: nn.Module, scorer: Scorer, every: int, world: World) -> None:
        self.calibration = ClipCalibration()
        self._model = model.requires_grad_(False)
        self._scorer = scorer
        self._every = every
        self._world = world
        self._sums: Tensor | None = None
        """Of the present step's minibatches so far; None in a step without a ratio."""

    def due(self, step: int) -> bool:
        """Whether the ratio is computed in `step`."""
        return self._every > 0 and step % self._every == 0

    @torch.no_grad()
    def logprobs(self, weights: Weights, batch: Batch) -> Tensor:
        """[B, T] of the responses under `weights`, which are whole."""
        self._model.load_state_dict(weights)
        return self._scorer.logprobs(self._model, batch.tokens, batch.padding, batch.responses)

    def logprobs_shared(self, weights: Weights, batch: Batch) -> Tensor:
        """The same of a batch that all processes have, each computing its share."""
        return self._world.computed(len(batch.tokens), lambda rows: self.logprobs(weights, batch.rows(rows)))

    def logprobs_by_version(self, published: Published, versions: Tensor, batch: Batch) -> Tensor:
        """The same, each token under the weights of its own of `versions`, [B, T]."""
        logprobs = torch.zeros_like(batch.rollout_logprobs)
        for version in set(versions.flatten().tolist()):
            logprobs = torch.where(versions == version, self.logprobs_shared(published[version], batch), logprobs)
        return logprobs

    def bounds(self, controls: Controls) -> ClipBounds:
        """The bounds to clip by."""
        return self.calibration.bounds(controls) if controls.clip_mode == "calibrated" else ClipBounds.nominal(controls)

    def observe(self, loss: Loss, shadow_log_ratio: Tensor, advantages: Tensor) -> None:
        """Add a minibatch to what the next calibration sees; `shadow_log_ratio`, [B, T], is of the twin."""
        sums = calibration_sums(loss.log_ratio, shadow_log_ratio, advantages, loss.weights)
        self._sums = sums if self._sums is None else self._sums + sums

    def end_step(self) -> None:
        """Learn what BF16 would have clipped in this step, if anything of it was observed."""
        if self._sums is not None:
            sample = CalibrationSample.of_cells(self._world.sum(self._sums).cpu().numpy())
            self.calibration = self.calibration.observed(sample, steps=self._every)
            self._sums = None
