"""The loss and its gradient by every parameter of a small model, against TRL's own trainer on the same tensors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab.hooks.controls import ClipBounds, Controls
from trimtab.trainer.algorithms import ALGORITHMS
from trimtab.trainer.objective import LossInputs, policy_loss

ROWS, PROMPT, LONGEST, VOCABULARY = 4, 3, 6, 32


@pytest.fixture(scope="module")
def trl_trainer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A real one, on a random Llama of one layer, in float64 but for its norms; warnings are its own business."""
    pytest.importorskip("trl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made_trainer(tmp_path_factory.mktemp("trl"))


def made_trainer(folder: Path) -> Any:
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    torch.manual_seed(0)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=VOCABULARY, num_key_value_heads=2, pad_token_id=0, eos_token_id=1, **shape)
    trainer = GRPOTrainer(
        model=LlamaForCausalLM(config).double(),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(
            output_dir=str(folder),
            use_cpu=True,
            bf16=False,
            report_to=[],
            gradient_checkpointing=False,
            use_bias_correction_kl=False,  # by default TRL multiplies the penalty by the ratio
            per_device_train_batch_size=ROWS,
            num_generations=ROWS,
            max_completion_length=LONGEST,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["w1 w2 w3"] * ROWS}),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w1"),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


@dataclass
class Case:
    """What TRL's trainer is told, and the controls that should come to the same."""

    trl: dict[str, Any]
    controls: Controls


def controls_of(name: str, **changes: Any) -> Controls:
    return Controls().overlaid(ALGORITHMS[name]).overlaid(changes)


CASES: dict[str, Case] = {
    "grpo": Case({"loss_type": "grpo"}, controls_of("grpo")),
    "grpo with a KL penalty": Case({"loss_type": "grpo", "beta": 0.3}, controls_of("grpo", kl_coef=0.3)),
    "dapo": Case({"loss_type": "dapo", "epsilon_high": 0.28}, controls_of("dapo")),
    "bnpo": Case({"loss_type": "bnpo"}, Controls()),
    "dr_grpo": Case({"loss_type": "dr_grpo"}, controls_of("dr_grpo")),
    "cispo": Case({"loss_type": "cispo", "epsilon_high": 5.0}, controls_of("cispo")),
    "gspo": Case(
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 3e-4, "epsilon_high": 4e-4},
        controls_of("gspo"),
    ),
    "gspo that clips some": Case(
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon_low": 0.2, "epsilon_high": 0.2},
        controls_of("gspo", clip_low=0.2, clip_high=0.2),
    ),
    "dapo with truncated importance sampling": Case(
        {"loss_type": "dapo", "use_vllm": True},
        Controls(importance="tis", importance_low=0.0, importance_high=2.0),
    ),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_trl(
    trl_trainer: Any, monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    case = CASES[name]
    settings = {"beta": 0.0, "epsilon_low": 0.2, "epsilon_high": 0.2, "importance_sampling_level": "token"}
    for setting, value in (settings | case.trl).items():
        monkeypatch.setattr(trl_trainer, setting, value)
    model = trl_trainer.model
    generator = torch.Generator().manual_seed(100 * seed + sum(map(ord, name)))
    ids = torch.randint(0, VOCABULARY, (ROWS, PROMPT + LONGEST), generator=generator)
    mask = (torch.rand(ROWS, LONGEST, generator=generator) < 0.7).long()
    mask[:, 0] = 1
    advantages = torch.randn(ROWS, generator=generator, dtype=torch.float64)
    everything = torch.cat([torch.ones(ROWS, PROMPT, dtype=torch.long), mask], 1)
    logprobs = trl_trainer._get_per_token_logps_and_entropies(model, ids, everything, LONGEST)[0]

    def near(scale: float) -> Tensor:
        return logprobs.detach() + scale * torch.randn(ROWS, LONGEST, generator=generator, dtype=torch.float64)

    old, reference = near(0.4), near(0.4)
    rollout = old + 0.5 * torch.randn(ROWS, LONGEST, generator=generator, dtype=torch.float64)
    theirs = trl_trainer._compute_loss(
        model,
        {
            "prompt_ids": ids[:, :PROMPT],
            "prompt_mask": torch.ones(ROWS, PROMPT, dtype=torch.long),
            "completion_ids": ids[:, PROMPT:],
            "completion_mask": mask,
            "advantages": advantages,
            "old_per_token_logps": old,
            "ref_per_token_logps": reference,
            "importance_sampling_ratio": (old - rollout).exp().clamp(max=2.0),
            "num_items_in_batch": mask.sum(),
        },
    )
    inputs = LossInputs(
        train_logprobs=logprobs,
        old_logprobs=old,
        rollout_logprobs=rollout,
        reference_logprobs=reference,
        advantages=advantages[:, None],
        mask=mask.double(),
    )
    ours = policy_loss(inputs, case.controls, ClipBounds.nominal(case.controls)).loss
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)
    parameters = list(model.parameters())
    for own, other in zip(torch.autograd.grad(ours, parameters), torch.autograd.grad(theirs, parameters), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-7)
