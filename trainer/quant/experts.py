"""The experts of a mixture of experts, fused into 3-D Parameters, whose matmuls pass through a number format."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from typing_extensions import override

from trimtab.hooks.controls import Backward
from trimtab.trainer.quant.format import NumberFormat
from trimtab.trainer.quant.linear import QuantLayer

LAYOUT = {"has_gate": True, "has_bias": False, "is_transposed": False, "is_concatenated": True}
"""What a fused-experts module of transformers 5 says of itself, where it has the layout that `QuantExperts` computes
in."""


class QuantExperts(QuantLayer):
    """Takes the place of a fused-experts module of transformers 5 (`Qwen3MoeExperts` and alike) and owns the same
    Parameters: `gate_up_proj` [E, 2 I, H], gate above up, and `down_proj` [E, H, I].

    Every expert is quantised by itself. Its gate and up are one matrix to the quantiser, so they share the scale of a
    format that has one for a weight; where blocks of FP8 do not divide I, one runs across both. `input_scale`, [H],
    stands before that matrix.

    Raises:
        ValueError: the module has another layout, or gates in its own way; the message names its class.
    """

    gate_up_proj: Tensor
    down_proj: Tensor

    def __init__(
        self, experts: nn.Module, fmt: NumberFormat, *, backward: Backward = "dequantized", kept: bool = False
    ) -> None:
        _check_layout(experts)
        gate_up = cast(nn.Parameter, experts.gate_up_proj)
        super().__init__(gate_up.shape[-1], fmt, backward=backward, kept=kept)
        self.num_experts = gate_up.shape[0]
        self.register_parameter("gate_up_proj", gate_up)
        self.register_parameter("down_proj", cast(nn.Parameter, experts.down_proj))
        self.act_fn = cast(Callable[[Tensor], Tensor], experts.act_fn)
        self.train(experts.training)

    @override
    def matrices(self) -> dict[str, torch.Size]:
        return {"gate_up_proj": self.gate_up_proj.shape[1:], "down_proj": self.down_proj.shape[1:]}

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """[tokens, H] to [tokens, H]: the sum of every token's experts, in the dtype of `hidden_states`.

        Args:
            hidden_states: [tokens, H].
            top_k_index: [tokens, k] the experts of each token; E stands for an expert that is elsewhere.
            top_k_weights: [tokens, k] what their outputs are multiplied by.

        Raises:
            ValueError: a matrix does not divide into the format's blocks.
        """
        output = torch.zeros_like(hidden_states)
        # One unbind rather than a slice an expert: a slice's gradient is as large as all experts together.
        gate_ups, downs = self.gate_up_proj.unbind(), self.down_proj.unbind()
        for expert in torch.unique(top_k_index).tolist():
            if expert == self.num_experts:
                continue
            position, token = torch.where(top_k_index.t() == expert)
            x = hidden_states[token]
            gate, up = self._multiply(x, gate_ups[expert], None, self.input_scale, slot=2 * expert).chunk(2, dim=-1)
            y = self._multiply(self.act_fn(gate) * up, downs[expert], None, None, slot=2 * expert + 1)
            output.index_add_(0, token, (y * top_k_weights[token, position, None]).to(output.dtype))
        return output

    @override
    def extra_repr(self) -> str:
        return (
            f"num_experts={self.num_experts}, in_features={self.in_features}, format={self.format.name}, "
            f"backward={self.backward_mode}"
        )


def has_fused_experts(name: str, module: nn.Module) -> bool:
    """Whether `module`, called `name`, holds the weights of several experts in Parameters of its own."""
    called_so = name.rpartition(".")[2] == "experts" or type(module).__name__.endswith("Experts")
    return called_so and any(parameter.dim() == 3 for parameter in module.parameters(recurse=False))


def _check_layout(experts: nn.Module) -> None:
    shapes = {name: parameter.shape for name, parameter in experts.named_parameters(recurse=False)}
    flags = {flag: getattr(experts, flag, None) for flag in LAYOUT}
    fits = set(shapes) == {"gate_up_proj", "down_proj"} and flags == LAYOUT
    if fits:
        count, gate_up, hidden = shapes["gate_up_proj"]
        fits = shapes["down_proj"] == (count, hidden, gate_up // 2)
    # transformers gives its own gating to the classes that do not define one.
    gate = getattr(type(experts), "_apply_gate", None)
    if not fits or getattr(gate, "__qualname__", "") != "_default_apply_gate":
        raise ValueError(
            f"{type(experts).__name__}: cannot be quantised; only fused experts with gate_up_proj [E, 2 I, H] and "
            f"down_proj [E, H, I], without biases and with the default gate, can: {LAYOUT}"
        )
