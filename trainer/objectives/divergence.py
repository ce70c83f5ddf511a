"""Estimates of KL(p || reference) from the sampled tokens.

With d = log reference - log p of the sampled token: k1 = -d, k2 = d^2 / 2, k3 = e^d - 1 - d. k1 and k3 are unbiased as
values where the tokens come from p. d is clamped before the exponential and k3 after it, as in verl and NeMo-RL: a
token beyond the clamps is reported at the clamp and pulls no further.

Source: J. Schulman, Approximating KL Divergence (joschu.net/blog/kl-approx.html); k3 in GRPO, arXiv 2402.03300.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.hooks.controls import KlEstimator
from trimtab.hooks.sketch import MAX_LOG_RATIO

MAX_K3 = 10.0


def kl_divergence(train_logprobs: Tensor, reference_logprobs: Tensor, estimator: KlEstimator) -> Tensor:
    """The estimate of each token, nats, of the shape of both; gradient flows to `train_logprobs`."""
    d = (reference_logprobs - train_logprobs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d.square() / 2
    return (torch.expm1(d) - d).clamp_max(MAX_K3)
