"""What the sampler records is what it sampled from."""

from __future__ import annotations

from typing import Any

import pytest
import scipy.stats
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trimtab.trainer.config import ConfigError, RunConfig
from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.quant import Recipe, convert
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Update
from trimtab.trainer.rollouts.torch_sampler import TorchSampler, drawn, entropies
from trimtab.trainer.tasks.characters import CharacterTokenizer
from trimtab.trainer.tasks.reasoning_gym import ReasoningGym
from trimtab.trainer.tasks.running_sum import END, PAD, RunningSum
from trimtab.trainer.tasks.task import Prompts
from trimtab.trainer.warm_start import build_decoder, warm_weights


@pytest.mark.parametrize("number_format", ["fp32", "bf16", "fp8-row", "nvfp4", "nvfp4-46"])
def test_recorded_logprobs_are_those_of_a_plain_forward_pass_in_the_same_format(
    tiny: RunConfig, number_format: str
) -> None:
    """Formats whose scales are per token give the same numbers with a cache, token by token, as all at once."""
    weights = warm_weights(tiny)
    sampler = _sampler(tiny, number_format, weights)
    task = RunningSum(digits=tiny.task.digits)
    prompts = task.prompts(40, torch.Generator().manual_seed(1))
    rollout = sampler.generate(
        prompts, task.response_length, head=5, temperature=0.7, generator=torch.Generator().manual_seed(2)
    )
    logits = sampler.model(rollout.inputs, keep_last=task.response_length)
    expected = torch.log_softmax(logits / 0.7, -1)
    mask = task.grade(prompts, rollout.responses).mask > 0
    recorded = expected.gather(2, rollout.responses.unsqueeze(2)).squeeze(2)
    # An activation that lands on a rounding boundary may fall to either side of it, in an engine as here; few do.
    close = (recorded - rollout.logprobs)[mask].abs() < 1e-4
    assert close.float().mean() > (0.999 if number_format == "fp32" else 0.9)
    head = expected.gather(2, rollout.head_ids)
    assert ((head - rollout.head_logprobs)[mask].abs() < 1e-4).float().mean() > (
        0.999 if number_format == "fp32" else 0.9
    )


def test_head_is_the_most_probable_tokens_in_order(tiny: RunConfig) -> None:
    sampler = _sampler(tiny, "bf16", warm_weights(tiny))
    task = RunningSum(digits=tiny.task.digits)
    prompts = task.prompts(8, torch.Generator().manual_seed(1))
    rollout = sampler.generate(
        prompts, task.response_length, head=5, temperature=1.0, generator=torch.Generator().manual_seed(2)
    )
    mask = task.grade(prompts, rollout.responses).mask > 0
    head = rollout.head_logprobs[mask]
    assert (head[:, :-1] >= head[:, 1:]).all()
    assert (head.exp().sum(-1) <= 1 + 1e-6).all()
    assert all(len(set(ids)) == 5 for ids in rollout.head_ids[mask].tolist())


def test_what_follows_the_end_is_padding(tiny: RunConfig) -> None:
    sampler = _sampler(tiny, "bf16", warm_weights(tiny))
    task = RunningSum(digits=tiny.task.digits)
    prompts = task.prompts(64, torch.Generator().manual_seed(1))
    responses = sampler.generate(
        prompts, task.response_length, head=0, temperature=1.0, generator=torch.Generator().manual_seed(2)
    ).responses
    for row in responses.tolist():
        after = row[row.index(END) + 1 :] if END in row else []
        assert set(after) <= {PAD}


def test_sync_takes_weights_format_and_version(tiny: RunConfig) -> None:
    weights = warm_weights(tiny)
    sampler = _sampler(tiny, "nvfp4", weights)
    task = RunningSum(digits=tiny.task.digits)
    prompts = task.prompts(8, torch.Generator().manual_seed(1))

    def logprobs() -> torch.Tensor:
        generator = torch.Generator().manual_seed(2)
        return sampler.generate(prompts, task.response_length, head=0, temperature=1.0, generator=generator).logprobs

    in_nvfp4 = logprobs()
    sampler.sync(Update(weights=weights, version=7, number_format="bf16"))
    assert not logprobs().equal(in_nvfp4)
    sampler.sync(
        Update(weights={name: value * 0.5 for name, value in weights.items()}, version=8, number_format="nvfp4")
    )
    assert not logprobs().equal(in_nvfp4)
    sampler.sync(Update(weights=weights, version=9, number_format="nvfp4"))
    assert logprobs().equal(in_nvfp4)
    assert sampler.version == 9


def _sampler(config: RunConfig, number_format: str, weights: dict[str, torch.Tensor]) -> TorchSampler:
    model = build_decoder(config)
    convert(model, Recipe(name="test", format=number_format))
    sampler = TorchSampler(model, end=END, pad=PAD)
    sampler.sync(Update(weights=weights, version=0, number_format=number_format))
    return sampler


def test_rows_of_different_lengths_are_sampled_as_if_alone() -> None:
    """The recorded log-probs of a left-padded batch are those of each row by itself, without cache or padding."""
    sampler, task = _text_sampler()
    prompts = task.prompts(6, torch.Generator().manual_seed(1)).repeated(2)
    assert prompts.padding is not None
    assert len(set(prompts.padding.tolist())) > 2
    rollout = sampler.generate(prompts, 10, head=4, temperature=0.8, generator=torch.Generator().manual_seed(2))
    assert torch.equal(rollout.prompts.tokens, prompts.tokens)
    mask = task.grade(prompts, rollout.responses).mask > 0
    for row, skip in enumerate(prompts.padding.tolist()):
        alone = sampler.model(rollout.inputs[row : row + 1, skip:], keep_last=10)
        expected = torch.log_softmax(alone[0] / 0.8, -1)
        recorded = expected.gather(1, rollout.responses[row, :, None])[:, 0]
        torch.testing.assert_close(rollout.logprobs[row][mask[row]], recorded[mask[row]], rtol=0, atol=1e-5)
        top = expected.topk(4).values
        torch.testing.assert_close(rollout.head_logprobs[row][mask[row]], top[mask[row]], rtol=0, atol=1e-5)


def test_the_caches_format_is_that_of_the_last_sync() -> None:
    sampler, task = _text_sampler()
    prompts = task.prompts(4, torch.Generator().manual_seed(1))
    weights = sampler.model.state_dict()

    def first_and_later() -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(2)
        logprobs = sampler.generate(prompts, 6, head=0, temperature=1.0, generator=generator).logprobs
        return logprobs[:, 0], logprobs[:, 1:]

    exact = first_and_later()
    sampler.sync(Update(weights=weights, version=1, number_format="fp32", kv_format="fp8"))
    rounded = first_and_later()
    assert not rounded[0].equal(exact[0])  # the prompt's own keys and values are read from the cache as well
    assert not rounded[1].equal(exact[1])
    sampler.sync(Update(weights=weights, version=2, number_format="fp32"))
    assert all(after.equal(before) for after, before in zip(first_and_later(), exact, strict=True))
    sampler.sync(Update(weights=weights, version=3, number_format="fp32", kv_format="fp7"))
    with pytest.raises(ValueError, match="kv_format: 'fp7' is none of none, fp8, fp8-e5m2"):
        first_and_later()


def _text_sampler() -> tuple[TorchSampler, ReasoningGym]:
    tokenizer = CharacterTokenizer()
    task = ReasoningGym("chain_sum", tokenizer, response_length=10, instruction="", config={"max_terms": 5})
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
    )
    model = HuggingFaceLM(Qwen3ForCausalLM(config))
    convert(model, Recipe(name="test", format="fp32"))
    sampler = TorchSampler(model, end=task.end, pad=task.pad)
    sampler.sync(Update(weights=model.state_dict(), version=0, number_format="fp32"))
    return sampler, task


def test_samples_of_a_prompt_are_consecutive_rows_and_drawn_as_if_it_stood_there_so_often(tiny: RunConfig) -> None:
    """Formats whose scales span a batch see the same largest values, so nothing but the work changes."""
    model = build_decoder(tiny)
    convert(model, Recipe(name="mine", format="nvfp4"))
    sampler, task = TorchSampler(model, end=END, pad=PAD), RunningSum(digits=3)
    prompts = task.prompts(5, torch.Generator().manual_seed(1))
    settings: dict[str, Any] = {"head": 4, "temperature": 1.0}
    together = sampler.generate(prompts, 6, samples=3, generator=torch.Generator().manual_seed(2), **settings)
    apart = sampler.generate(prompts.repeated(3), 6, generator=torch.Generator().manual_seed(2), **settings)
    assert torch.equal(together.prompts.tokens, apart.prompts.tokens)
    assert torch.equal(together.responses, apart.responses)
    torch.testing.assert_close(together.logprobs, apart.logprobs, rtol=0, atol=1e-5)
    torch.testing.assert_close(together.head_logprobs, apart.head_logprobs, rtol=0, atol=1e-5)


def test_the_entropy_is_that_of_the_distribution_that_was_sampled_from(tiny: RunConfig) -> None:
    model = build_decoder(tiny)
    convert(model, Recipe(name="mine", format="bf16"))
    sampler, task = TorchSampler(model, end=END, pad=PAD), RunningSum(digits=3)
    prompts = task.prompts(4, torch.Generator().manual_seed(1))
    rollout = sampler.generate(prompts, 6, head=16, temperature=0.7, generator=torch.Generator().manual_seed(2))
    assert rollout.head_logprobs.shape == (4, 6, 16)  # the whole vocabulary
    expected = -(rollout.head_logprobs.exp() * rollout.head_logprobs).sum(-1)
    reached = rollout.head_logprobs.exp().sum(-1) > 0.5
    expected = torch.where(reached, expected, 0.0)
    torch.testing.assert_close(rollout.entropy[rollout.logprobs != 0], expected[rollout.logprobs != 0])


def test_rollouts_of_prompts_of_different_widths_become_one(tiny: RunConfig) -> None:
    model = build_decoder(tiny)
    convert(model, Recipe(name="mine", format="bf16"))
    sampler = TorchSampler(model, end=END, pad=PAD)
    rows = ([[1, 2, 10], [3, 10]], [[4, 10]])
    parts = []
    for part in rows:
        prompts = Prompts.left_padded(part, part, PAD)
        parts.append(sampler.generate(prompts, 4, head=2, temperature=1.0, generator=torch.Generator().manual_seed(3)))
    whole = Rollout.concatenated(parts, PAD)
    assert whole.prompts.tokens.tolist() == [[1, 2, 10], [PAD, 3, 10], [PAD, 4, 10]]
    assert whole.prompts.padding is not None
    assert whole.prompts.padding.tolist() == [0, 1, 1]
    assert torch.equal(whole.responses, torch.cat([part.responses for part in parts]))
    chosen = whole.rows(torch.tensor([2, 0]))
    assert chosen.prompts.problems == ([4, 10], [1, 2, 10])
    assert torch.equal(chosen.logprobs, whole.logprobs[[2, 0]])


def test_tokens_are_drawn_in_proportion_to_their_probabilities_and_never_at_zero() -> None:
    p = torch.tensor([0.0, 0.2, 0.5, 0.0, 0.3, 0.0])
    levels = torch.rand(200_000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    tokens = drawn(p.expand(200_000, 6), levels)
    counts = torch.bincount(tokens, minlength=6)
    assert counts[[0, 3, 5]].tolist() == [0, 0, 0]
    assert scipy.stats.chisquare(counts[[1, 2, 4]].numpy(), [40_000, 100_000, 60_000]).pvalue > 1e-3


def test_what_exceeds_the_models_context_is_refused_in_numbers() -> None:
    sampler, task = _text_sampler()
    sampler.model.causal_lm.config.max_position_embeddings = 20
    prompts = Prompts.left_padded([[50] * 12], [None], task.pad)
    generator = torch.Generator().manual_seed(0)
    assert sampler.generate(prompts, 8, head=0, temperature=1.0, generator=generator).responses.shape == (1, 8)
    told = "task.response_length: 9 tokens after a prompt of 12 are more than the 20 of the model's context"
    with pytest.raises(ConfigError, match=told):
        sampler.generate(prompts, 9, head=0, temperature=1.0, generator=generator)


def test_a_token_of_probability_zero_adds_no_entropy() -> None:
    logits = torch.tensor([[0.3, -0.2, -torch.inf, 1.1], [0.0, -torch.inf, -torch.inf, -torch.inf]])
    expected = torch.tensor(scipy.stats.entropy(logits.softmax(-1), axis=-1))
    torch.testing.assert_close(entropies(logits.log_softmax(-1)), expected)
