"""What a reward is worth to each sequence: group advantages, DAPO's shaping and its choice of groups.

Groups are consecutive rows of the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.hooks.controls import Advantage

ADVANTAGE_FLOOR = 1e-4
"""Added to the group's standard deviation, as in TRL."""


def group_advantages(rewards: Tensor, group_size: int, advantage: Advantage = "group_std") -> Tensor:
    """[B] reward less the group's mean; by `group_std`, divided by the group's standard deviation plus a floor.

    The standard deviation is the unbiased one. Sources: `group_std`, GRPO (arXiv 2402.03300); `group_mean`, Dr.GRPO
    (arXiv 2503.20783).

    Args:
        rewards: [B].
        group_size: rows of a group, at least 2.
        advantage: which of the two.

    Raises:
        ValueError: the groups are of one row, or do not fill the batch.
    """
    if group_size < 2:
        raise ValueError(f"group_size: {group_size} leaves nothing to compare a reward with; give at least 2")
    groups = _groups(rewards, group_size)
    centred = groups - groups.mean(1, keepdim=True)
    if advantage == "group_std":
        centred = centred / (groups.std(1, keepdim=True) + ADVANTAGE_FLOOR)
    return centred.reshape(-1)


def uninformative_groups(rewards: Tensor, group_size: int) -> Tensor:
    """[B / group_size] True where all rewards are the same, so that no advantage is left; dynamic sampling replaces
    these groups (DAPO, arXiv 2503.14476).

    Raises:
        ValueError: the groups do not fill the batch.
    """
    groups = _groups(rewards, group_size)
    return (groups == groups[:, :1]).all(1)


def overlong_penalties(lengths: Tensor, *, response_length: int, buffer: int, penalty: float) -> Tensor:
    """[B] what to add to the rewards, 0 or less: 0 up to `response_length - buffer` tokens, then falling linearly to
    `-penalty` at `response_length` (DAPO's soft overlong punishment, arXiv 2503.14476).

    Args:
        lengths: [B] tokens of each response.
        response_length: the longest that a response can be, tokens.
        buffer: tokens over which the penalty grows.
        penalty: reward lost at full length.

    Raises:
        ValueError: the buffer is not within the response length.
    """
    if not 1 <= buffer <= response_length:
        raise ValueError(f"buffer: {buffer} tokens is not in 1..{response_length}, the length of a response")
    excess = lengths.to(torch.get_default_dtype()) - (response_length - buffer)
    return -penalty * (excess / buffer).clamp(0.0, 1.0)


def _groups(rewards: Tensor, group_size: int) -> Tensor:
    if len(rewards) % group_size:
        raise ValueError(f"group_size: {group_size} does not divide {len(rewards)} rewards; pass whole groups")
    return rewards.view(-1, group_size)
