"""Fused experts in a number format, against the module they replace and against explicit loops."""

from __future__ import annotations

import copy
from typing import get_args

import pytest
import torch
from torch import Tensor, nn
from transformers import GptOssConfig, Qwen2MoeConfig, Qwen3MoeConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeExperts
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

from trimtab.hooks.controls import Backward
from trimtab.trainer.quant import FORMATS, QuantExperts

EXPERTS, HIDDEN, INNER, TOKENS, TOP = 5, 64, 32, 24, 2
SIZES = {"hidden_size": HIDDEN, "moe_intermediate_size": INNER, "num_experts": EXPERTS, "num_experts_per_tok": TOP}
BLOCKED = ["bf16", "fp8-row", "mxfp8", "nvfp4", "nvfp4-46"]
"""Formats in which a token does not depend on the others, so that a loop over tokens is a reference."""


def fused(experts_class: type[nn.Module] = Qwen3MoeExperts, seed: int = 0) -> nn.Module:
    config = (Qwen3MoeConfig if experts_class is Qwen3MoeExperts else Qwen2MoeConfig)(**SIZES)
    config._experts_implementation = "eager"
    experts = experts_class(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in experts.parameters():
        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5, generator=generator)
    return experts


def routed(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, their experts, of which expert 3 is never one, and the weights."""
    generator = torch.Generator().manual_seed(100 + seed)
    x = torch.randn(TOKENS, HIDDEN, generator=generator)
    hit = torch.tensor([expert for expert in range(EXPERTS) if expert != 3])
    index = torch.stack([hit[torch.randperm(len(hit), generator=generator)[:TOP]] for _ in range(TOKENS)])
    weights = torch.rand(TOKENS, TOP, generator=generator)
    return x, index, weights


def run(experts: nn.Module, seed: int) -> list[Tensor]:
    """Output, then gradients of the tokens, of the routing weights and of the Parameters."""
    x, index, weights = routed(seed)
    x.requires_grad_()
    weights.requires_grad_()
    parameters = list(experts.parameters())
    y = experts(x, index, weights)
    loss = (y * torch.linspace(-1, 1, y.numel()).view_as(y)).sum()
    return [y.detach(), *torch.autograd.grad(loss, [x, weights, *parameters])]


def straight_through(value: Tensor, rounded: Tensor) -> Tensor:
    return value + (rounded - value).detach()


class LoopExperts(nn.Module):
    """Token by token and expert by expert; the gradient goes straight through the rounding and meets the rounded
    operands."""

    def __init__(self, experts: nn.Module, number_format: str) -> None:
        super().__init__()
        self.gate_up_proj, self.down_proj = experts.gate_up_proj, experts.down_proj
        self.fmt = FORMATS[number_format]

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        x_q = straight_through(x, self.fmt.fake(x.detach()[None], "activation")[0])
        return straight_through(weight, self.fmt.fake(weight.detach(), "weight")) @ x_q

    def forward(self, x: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        rows = []
        for token in range(len(x)):
            row = torch.zeros(HIDDEN)
            for position, expert in enumerate(index[token].tolist()):
                both = self.product(x[token], self.gate_up_proj[expert])
                inner = nn.functional.silu(both[:INNER]) * both[INNER:]
                row = row + weights[token, position] * self.product(inner, self.down_proj[expert])
            rows.append(row)
        return torch.stack(rows)


@pytest.mark.parametrize("experts_class", [Qwen3MoeExperts, Qwen2MoeExperts])
@pytest.mark.parametrize("backward", get_args(Backward))
@pytest.mark.parametrize("seed", [0, 1])
def test_in_fp32_output_and_gradients_are_those_of_the_original_to_the_bit(experts_class, backward, seed):
    original = fused(experts_class, seed)
    quantised = QuantExperts(copy.deepcopy(original), FORMATS["fp32"], backward=backward)
    for ours, theirs in zip(run(quantised, seed), run(original, seed), strict=True):
        assert torch.equal(ours, theirs)


def test_the_parameters_are_the_original_ones_under_the_same_keys():
    original = fused()
    quantised = QuantExperts(original.eval(), FORMATS["nvfp4"])
    assert list(quantised.state_dict()) == list(original.state_dict())
    assert quantised.gate_up_proj is original.gate_up_proj
    assert quantised.down_proj is original.down_proj
    assert not quantised.training
    assert quantised.matrices() == {"gate_up_proj": (2 * INNER, HIDDEN), "down_proj": (HIDDEN, INNER)}


@pytest.mark.parametrize("number_format", BLOCKED)
@pytest.mark.parametrize("seed", [0, 1])
def test_output_and_gradients_are_those_of_a_loop_over_tokens(number_format, seed):
    original = fused(seed=seed)
    quantised = QuantExperts(original, FORMATS[number_format])
    for ours, theirs in zip(run(quantised, seed), run(LoopExperts(original, number_format), seed), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_an_expert_that_no_token_chose_gets_no_gradient():
    _, _, _, gate_up, down = run(QuantExperts(fused(), FORMATS["nvfp4-46"]), 0)
    for gradient in (gate_up, down):
        assert gradient.shape[0] == EXPERTS
        assert [bool(expert.any()) for expert in gradient] == [True, True, True, False, True]


def test_gate_and_up_share_the_scale_of_the_weight():
    original = fused()
    with torch.no_grad():
        original.gate_up_proj[:, :INNER] *= 100.0  # its own scale would serve up better
    x, _, _ = routed()
    index, weights = torch.zeros(TOKENS, 1, dtype=torch.long), torch.ones(TOKENS, 1)
    fmt = FORMATS["nvfp4"]

    def expected(gate_up: Tensor) -> Tensor:
        gate, up = (fmt.fake(x, "activation") @ gate_up.t()).chunk(2, dim=-1)
        inner = fmt.fake(nn.functional.silu(gate) * up, "activation")
        return inner @ fmt.fake(original.down_proj[0].detach(), "weight").t()

    with torch.no_grad():
        y = QuantExperts(original, fmt)(x, index, weights)
    gate_up = original.gate_up_proj[0].detach()
    together = expected(fmt.fake(gate_up, "weight"))
    apart = expected(torch.cat([fmt.fake(part.contiguous(), "weight") for part in gate_up.split(INNER)]))
    torch.testing.assert_close(y, together, rtol=1e-5, atol=1e-6 * float(together.abs().max()))
    assert not torch.allclose(y, apart, rtol=1e-3, atol=0)


def test_an_expert_that_is_elsewhere_adds_nothing():
    experts = QuantExperts(fused(), FORMATS["nvfp4"])
    x, index, weights = routed()
    elsewhere = index.clone()
    elsewhere[:, 1] = EXPERTS
    with torch.no_grad():
        assert torch.equal(experts(x, elsewhere, weights), experts(x, index[:, :1], weights[:, :1]))


def test_frozen_weights_are_reused_until_they_change():
    original = fused()
    experts, fresh = QuantExperts(original, FORMATS["nvfp4-46"]), QuantExperts(original, FORMATS["nvfp4-46"])
    tokens = routed()
    with torch.no_grad():
        unfrozen = experts(*tokens)
        experts.freeze()
        assert torch.equal(experts(*tokens), unfrozen)
        kept = dict(experts._cached)
        assert sorted(kept) == [0, 1, 2, 3, 4, 5, 8, 9]  # two matrices of each expert but number 3
        assert torch.equal(experts(*tokens), unfrozen)
        assert all(experts._cached[slot] is value for slot, value in kept.items())
        with torch.inference_mode():
            assert torch.equal(experts(*tokens), unfrozen)
        original.down_proj.mul_(0.5)
        changed = experts(*tokens)
        assert torch.equal(changed, fresh(*tokens))
        assert not torch.equal(changed, unfrozen)
        experts.format = fresh.format = FORMATS["fp8-row"]
        assert torch.equal(experts(*tokens), fresh(*tokens))
    experts.freeze()
    for ours, theirs in zip(run(experts, 0), run(fresh, 0), strict=True):
        assert torch.equal(ours, theirs)


def test_outlier_channels_leave_the_function_alone_without_rounding_and_meet_the_quantiser():
    experts = QuantExperts(fused(), FORMATS["bf16"])
    scale = torch.ones(HIDDEN)
    scale[:2] = 64.0
    tokens = routed()
    with torch.no_grad():
        plain = experts(*tokens)
        experts.set_input_scale(scale)
        assert torch.equal(experts(*tokens), plain)
        experts.format = FORMATS["nvfp4"]
        with_outliers = experts(*tokens)
        experts.set_input_scale(None)
        assert not torch.equal(experts(*tokens), with_outliers)


def test_a_bfloat16_module_computes_in_float32_between_its_matmuls():
    experts = QuantExperts(fused().to(torch.bfloat16), FORMATS["nvfp4-46"])
    x, index, weights = routed()
    y = experts(x.bfloat16(), index, weights.bfloat16())
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert experts.down_proj.grad.dtype == torch.bfloat16


def test_other_layouts_are_refused_by_name():
    gpt_oss = GptOssExperts(GptOssConfig(hidden_size=32, intermediate_size=32, num_local_experts=2))
    with pytest.raises(ValueError, match=r"GptOssExperts: cannot be quantised; only fused experts with gate_up_proj"):
        QuantExperts(gpt_oss, FORMATS["nvfp4"])

    class OwnGate(Qwen3MoeExperts):
        def _apply_gate(self, gate_up: Tensor) -> Tensor:
            return gate_up[..., :INNER]

    with pytest.raises(ValueError, match=r"OwnGate: cannot be quantised; .* with the default gate"):
        QuantExperts(OwnGate(Qwen3MoeConfig(**SIZES)), FORMATS["nvfp4"])
    odd = fused()
    odd.down_proj = nn.Parameter(torch.zeros(EXPERTS, HIDDEN, INNER + 1))
    with pytest.raises(ValueError, match=r"Qwen3MoeExperts: cannot be quantised"):
        QuantExperts(odd, FORMATS["nvfp4"])
    with pytest.raises(ValueError, match=r"backward: 'none' is none of"):
        QuantExperts(fused(), FORMATS["nvfp4"], backward="none")
