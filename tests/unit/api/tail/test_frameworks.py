"""What keys mean, and what they do not: semantics, not names."""

import math

import pytest

from trimtab.agent.signals import SIGNALS
from trimtab.api.tail.frameworks import FRAMEWORKS, GENERIC, detected, framework_of
from trimtab.api.tail.frameworks.nemo_rl import NEMO_RL
from trimtab.api.tail.frameworks.openrlhf import OPENRLHF
from trimtab.api.tail.frameworks.prime_rl import PRIME_RL
from trimtab.api.tail.frameworks.slime import SLIME
from trimtab.api.tail.frameworks.trl import TRL
from trimtab.api.tail.frameworks.verl import VERL
from trimtab.api.tail.source import TailError
from trimtab.api.tail.summaries import READ, mapped

KNOWN = set(SIGNALS) | {"loss", "reward_std", "mask_tokens_excess", "centering_size"}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_name_is_one_that_the_agent_knows(name: str) -> None:
    framework = FRAMEWORKS[name]
    assert {meaning.name for meaning in framework.keys.values() if meaning.name} <= KNOWN
    assert set(framework.marks) <= set(framework.keys) | {"actor_lr", "critic/score/mean", "decode_len/mean"}
    assert all(meaning.says and framework.title and framework.blind for meaning in framework.keys.values())


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        (("train/loss", "train/completions/clipped_ratio", "train/reward"), "trl"),
        (("actor/pg_clipfrac", "critic/score/mean", "perf/mfu"), "verl"),
        (("mismatch_kl/mean", "optim/grad_norm"), "prime_rl"),
        (("train/train_rollout_logprob_abs_diff", "rollout/raw_reward"), "slime"),
        (("train/token_mult_prob_error", "train/gen_kl_error"), "nemo_rl"),
        (("train/ppo_clip_ratio", "train/vllm_kl"), "openrlhf"),
        (("loss", "accuracy"), None),
    ],
)
def test_keys_tell_whose_they_are(keys: tuple[str, ...], name: str | None) -> None:
    found = detected(keys)
    assert (found and found.name) == name


def test_a_framework_can_be_named() -> None:
    assert framework_of("NeMo-RL") is NEMO_RL
    with pytest.raises(TailError, match="--framework: 'x' is none of trl, verl"):
        framework_of("x")


def test_trl_shares_are_of_all_tokens_and_ratios_are_censored() -> None:
    found = mapped(
        {
            "train/reward": 0.5,
            "train/entropy": 0.25,
            "train/kl": 0.125,
            "train/frac_reward_zero_std": 1.0,
            "train/completions/clipped_ratio": 0.75,
            "train/clip_ratio/low_mean": 0.5,
            "train/sampling/importance_sampling_ratio/max": 3.0,
            "eval_reward": 0.25,
        },
        TRL,
    )
    assert found.scalars == {
        "reward_mean": 0.5,
        "entropy": 0.25,
        "train/kl": 0.125,  # to the reference policy: no mismatch_kl
        "zero_variance_fraction": 1.0,
        "truncated_fraction": 0.75,  # no clip fraction
        "train/clip_ratio/low_mean": 0.5,  # no clip_fraction_negative
        "train/sampling/importance_sampling_ratio/max": 3.0,
        "eval_reward": 0.25,
    }
    assert found.censored == {"train/sampling/importance_sampling_ratio/max": "above"}
    assert set(found.core) == {"reward_mean", "entropy", "zero_variance_fraction", "truncated_fraction"}


def test_verl_names_are_traps() -> None:
    values = {
        "actor/ppo_kl": 0.5,
        "actor/pg_clipfrac_lower": 0.25,
        "actor/pg_clipfrac": 31.0,  # a share of 31
        "actor/pg_loss": 2.0,
        "actor/loss": 3.0,
        "response_length/clip_ratio": 0.5,
        "critic/rewards/mean": -1.0,
        "critic/score/mean": 0.75,
        "rollout_corr/kl": 0.125,
        "rollout_corr/k3_kl": 0.0625,
        "rollout_corr/chi2_seq": 2.0,
        "rollout_corr/rollout_rs_masked_fraction": 0.25,
        "rollout_corr/rollout_is_eff_sample_size": 0.5,
        "rollout_corr/rollout_is_max": 2.0,
    }
    found = mapped(values, VERL)
    assert found.scalars == {
        "actor/ppo_kl": 0.5,
        "actor/pg_clipfrac_lower": 0.25,
        "actor/pg_loss": 2.0,
        "loss": 3.0,
        "truncated_fraction": 0.5,
        "critic/rewards/mean": -1.0,
        "reward_mean": 0.75,
        "mismatch_mean": -0.125,
        "mismatch_kl": 0.0625,
        "chi2_sequence": 2.0,
        "retained_fraction": 0.75,
        "rollout_corr/rollout_is_eff_sample_size": 0.5,
        "rollout_corr/rollout_is_max": 2.0,
    }
    assert found.censored == {
        "rollout_corr/rollout_is_eff_sample_size": "below",
        "rollout_corr/rollout_is_max": "above",
    }
    assert found.impossible == 1
    assert mapped({"actor/pg_loss": 2.0}, VERL).scalars == {"loss": 2.0}


@pytest.mark.parametrize(
    ("framework", "values", "scalars", "censored"),
    [
        (
            PRIME_RL,
            {"mismatch_kl/mean": 0.5, "unmasked_mismatch_kl/mean": 0.25, "seq_len/mean": 9.0, "is_masked/mean": 0.5},
            {"mismatch_kl": 0.5, "unmasked_mismatch_kl/mean": 0.25, "seq_len/mean": 9.0, "is_masked/mean": 0.5},
            {"unmasked_mismatch_kl/mean": "above"},
        ),
        (
            SLIME,
            {"train/entropy_loss": 0.5, "train/tis": 4.0, "rollout/repetition_frac": 0.5, "rollout/rewards": 0.0},
            {"entropy": 0.5, "train/tis": 4.0, "rollout/repetition_frac": 0.5, "rollout/rewards": 0.0},
            {},
        ),
        (
            NEMO_RL,
            {"train/gen_kl_error": 0.5, "train/approx_entropy": 9.0, "train/sampling_importance_ratio": 0.0},
            {"mismatch_kl": 0.5, "train/approx_entropy": 9.0, "train/sampling_importance_ratio": 0.0},
            {"train/sampling_importance_ratio": "above"},
        ),
        (
            OPENRLHF,
            {"train/vllm_kl": 0.5, "train/kl": 0.25, "train/ppo_clip_ratio": 0.125, "train/response_length": 9.0},
            {"mismatch_mean": -0.5, "train/kl": 0.25, "train/ppo_clip_ratio": 0.125, "length_mean": 9.0},
            {},
        ),
    ],
)
def test_the_others_mean_what_they_say(framework, values, scalars, censored) -> None:  # type: ignore[no-untyped-def]
    found = mapped(values, framework)
    assert (found.scalars, found.censored) == (scalars, censored)


def test_no_key_of_another_meaning_gets_a_name_that_the_agent_reads() -> None:
    values = dict.fromkeys(READ, 0.5)
    found = mapped(values, VERL)
    assert set(found.scalars) == {f"log/{name}" for name in READ}
    named = mapped(values, GENERIC)  # here the name is all that is known
    assert {"loss", "entropy", "mismatch_kl", "reward_mean"} <= set(named.scalars)
    assert "log/ess" in named.scalars


def test_what_cannot_be_is_left_out_and_counted() -> None:
    values = {"truncated_fraction": 1.5, "own_fraction": -0.5, "x" * 129: 1.0, "loss": math.nan, "entropy": math.inf}
    found = mapped(values, GENERIC)
    assert set(found.scalars) == {"loss", "entropy"}
    assert (found.impossible, found.too_many) == (2, 1)
    many = mapped({**{f"key{i}": 1.0 for i in range(600)}, "loss": 1.0}, GENERIC)
    assert (len(many.scalars), many.too_many, many.scalars["loss"]) == (512, 89, 1.0)
