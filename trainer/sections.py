"""The tables of a run's TOML file; `trimtab.trainer.config` puts them together.

Unknown keys and values out of range are refused with the field named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Tag, model_validator

from trimtab.trainer.optimizer import OptimizerName
from trimtab.trainer.quant import Execution
from trimtab.trainer.sampler_sections import KINDS as SAMPLER_KINDS
from trimtab.trainer.section import ControlSetting, Section, Seed, kind_or, one_of


class RunningSumConfig(Section):
    """The embedded model's task: running sums."""

    kind: Literal["running_sum"] = "running_sum"
    digits: int = Field(default=8, ge=1, le=64)
    """Numbers to add up."""
    modulus: int = Field(default=10, ge=2, le=1024)
    """They and their sums are below it; each is one token."""


class ReasoningGymConfig(Section):
    """Problems made and verified by a generator of reasoning-gym."""

    kind: Literal["reasoning_gym"]
    dataset: str
    """Name of the generator, such as `countdown` or `basic_arithmetic`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Its own settings."""
    size: int = Field(default=10_000, ge=1)
    """Problems to draw from."""
    seed: Seed = 0
    """Of the problems; which of them a step draws is the run's seed's business."""
    response_length: int = Field(default=128, ge=1)
    """Most tokens of a response."""
    threshold: Annotated[
        Annotated[float, Field(ge=0, le=1)] | Literal["none"], one_of("a number from 0 to 1, or 'none'")
    ] = 0.99
    """Score of its verifier from which on the reward is 1, and 0 below it; `none` takes the score itself."""


class QuestionsConfig(Section):
    """Questions with numeric answers from a file, as GSM8K has them."""

    kind: Literal["questions"]
    path: Path
    """JSON lines of `question` and `answer`, which ends in `#### NUMBER`."""
    response_length: int = Field(default=256, ge=1)
    """Most tokens of a response."""


class TrainedModelConfig(Section):
    """How any model is trained."""

    keep: tuple[str, ...] = ()
    """Linear layers, by name or glob, that compute in BF16 whatever the format, beside what the recipe keeps."""
    keep_head: bool | None = None
    """Keep the layer that writes the logits in BF16; by default what the recipe says, and every recipe keeps it."""
    keep_attention: bool | None = None
    """Keep every linear layer of attention in BF16; by default what the recipe says."""
    keep_shared_experts: bool | None = None
    """Keep the experts that every token passes through; by default what the recipe says."""
    keep_last: float | None = Field(default=None, ge=0, le=1)
    """Keep this fraction of the decoder layers, from the end; by default what the recipe says."""
    moe_only: bool | None = None
    """Quantise the experts alone; by default what the recipe says."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where trainer, twin and the embedded sampler compute; auto is CUDA where torch finds a device."""
    execution: Execution = "auto"
    """Whether a number format computes natively, where the machine has a kernel for it, or is emulated in float32."""
    weights: Literal["float32", "bfloat16"] = "float32"
    """Type of the master weights; the optimizer's moments are float32 either way."""
    gradient_checkpointing: bool = False
    """Compute each layer's activations again in the backward pass instead of keeping them."""


class DecoderConfig(TrainedModelConfig):
    """Sizes of the embedded model."""

    kind: Literal["decoder"] = "decoder"
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    """Where everything computes: the CPU, unless said otherwise, since no device makes so small a model faster."""
    width: int = Field(default=64, ge=8)
    layers: int = Field(default=2, ge=1)
    heads: int = Field(default=4, ge=1)
    hidden: int = Field(default=256, ge=8)

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} is not divisible by heads = {self.heads}")
        return self


class PretrainedConfig(TrainedModelConfig):
    """A Hugging Face causal language model, by the path of its folder, or SmolLM2-135M-Instruct from its package."""

    kind: Literal["huggingface", "smollm2"]
    path: Path | None = None
    """Folder with the model and its tokenizer; for `huggingface` alone."""
    tokenizer: Literal["own", "characters"] = "own"
    """The model's own, or one token a character, for small models that were never given one."""

    @model_validator(mode="after")
    def _path_where_it_is_needed(self) -> Self:
        if (self.path is None) == (self.kind == "huggingface"):
            wanted = "give the model's folder" if self.path is None else "the package holds the model; leave it out"
            raise ValueError(f"path: {self.path}, with kind = {self.kind!r}: {wanted}")
        return self


class WarmStartConfig(Section):
    """Supervised start on chains with random slips, so that the policy knows the method and is often wrong."""

    steps: int = Field(default=1200, ge=0)
    batch: int = Field(default=128, ge=1)
    lr: float = Field(default=3e-3, gt=0, allow_inf_nan=False)
    error_rate: float = Field(default=0.08, ge=0, le=1)
    seed: Seed = 0


class OutlierConfig(Section):
    """Activation outliers as in real LLMs, function-preserving: some channels are scaled up before the activation
    quantiser and their weight columns down before the weight quantiser, both undone after. Without a quantiser nothing
    changes."""

    channels: int = Field(default=0, ge=0)
    """Channels scaled in front of each of the layers; 0 scales none."""
    scale: float = Field(default=16.0, ge=2**-32, le=2**32)
    """A power of two, so that scaling itself never rounds."""
    seed: Seed = 0
    layers: tuple[str, ...] = ("*.qkv", "*.up")
    """Linear layers, by name or glob, whose input channels are scaled."""

    @model_validator(mode="after")
    def _power_of_two(self) -> Self:
        if self.scale.hex().split("p")[0] != "0x1.0000000000000":
            raise ValueError(f"scale: {self.scale} is not a power of two")
        return self


class RolloutConfig(Section):
    """How responses are sampled."""

    prompts: int = Field(default=24, ge=1)
    """Prompts a step."""
    group_size: int = Field(default=8, ge=2)
    """Responses a prompt: the group that the advantage is relative to."""
    lag: int = Field(default=0, ge=0)
    """The sampler's weights are exactly this many steps old, in the deterministic mode; see `asynchrony` for weights
    that are as new as can be."""
    head: int = Field(default=8, ge=0, le=128)
    """Top log-probs recorded for each token; 0 records none, and score centering is refused."""
    temperature: float = Field(default=1.0, ge=0.01, le=100)
    """What logits are divided by, in the sampler and in the trainer."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Must be 1; here to be refused with the reason, since it is asked for."""
    resamplings: int = Field(default=3, ge=0)
    """Most times that a step of dynamic sampling samples anew to replace groups without a signal."""
    overlong_buffer: int = Field(default=0, ge=0)
    """Tokens before the longest response over which `overlong_penalty` grows; 0 takes an eighth of that length."""

    @model_validator(mode="after")
    def _whole_distribution(self) -> Self:
        if self.top_p != 1:
            raise ValueError(
                f"top_p: {self.top_p} renormalises the sampler's log-probs over its nucleus, while the trainer's are "
                "over the whole vocabulary: every ratio would be biased by the log of the nucleus' mass, and look like "
                "a numerical mismatch. Sample with top_p = 1"
            )
        return self


class AsynchronyConfig(Section):
    """Whether the sampler runs ahead of the trainer, and how old its weights may be."""

    mode: Literal["off", "thread", "process"] = "off"
    """Where the sampler runs ahead: in a thread of the trainer's process, which suits engines that have processes of
    their own, or in a process beside it. Off, each step samples when it begins: the deterministic mode."""
    max_staleness: int = Field(default=1, ge=0)
    """Most versions between the weights that sampled a token and those that are trained on it."""
    sync_every: int = Field(default=1, ge=1)
    """Steps between two sets of weights for the sampler; also while the mode is off."""
    in_flight: Literal["wait", "keep", "drop"] = "wait"
    """What weights do that arrive while responses are half done: wait for the batch's end, or be taken over at once,
    and then old keys and values are kept, or dropped and computed anew."""

    @model_validator(mode="after")
    def _within_reach(self) -> Self:
        if self.mode != "off" and self.max_staleness < self.sync_every - 1:
            raise ValueError(
                f"max_staleness: {self.max_staleness} cannot be kept with weights every sync_every = {self.sync_every} "
                f"steps; allow at least {self.sync_every - 1}"
            )
        if self.mode == "off" and self.in_flight != "wait":
            raise ValueError(
                f"in_flight: {self.in_flight!r} says what happens to weights that arrive while the sampler runs ahead; "
                "set mode to thread or process, or leave it out"
            )
        if self.mode == "off" and self.max_staleness != 1:
            raise ValueError(
                f"max_staleness: {self.max_staleness} bounds a sampler that runs ahead; set mode to thread or process, "
                "or give rollout.lag for weights of a fixed age"
            )
        return self


class UpdateConfig(Section):
    """GRPO's update."""

    optimizer: OptimizerName = "adamw"
    """AdamW without weight decay, or plain SGD without momentum, whose update is the learning rate times the
    gradient."""
    lr: float = Field(default=5e-4, gt=0, allow_inf_nan=False)
    minibatches: int = Field(default=2, ge=1)
    """Optimizer updates a pass over the rollouts."""
    passes: int = Field(default=1, ge=1)
    """Passes over the rollouts."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest gradient norm; infinity never clips."""


class ShadowConfig(Section):
    """The BF16 twin of the ratio."""

    every: int = Field(default=6, ge=0)
    """Steps between twins, each of which costs up to a third of a step; 0 computes none, and calibrated clipping is
    refused without a calibration."""
    calibration: Path | None = None
    """File of `trimtab calibrate` that calibrated clipping starts from."""


class EvalConfig(Section):
    """Evaluation of the trained policy at the end."""

    prompts: int = Field(default=384, ge=0)
    seed: Seed = 77


class CheckpointConfig(Section):
    """Checkpoints that a run restarts from, or goes back to."""

    every: int = Field(default=10, ge=0)
    """Steps between checkpoints; 0 writes none, else the last step has one too."""
    keep: int = Field(default=5, ge=1)
    """Newest checkpoints that stay on disk."""


class PauseConfig(Section):
    """For how long the control `paused` may hold a run up."""

    seconds: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    """Longest pause."""
    tries: int = Field(default=60, ge=1)
    """Questions in a row, one a second, that an agent may leave unanswered before the run goes on without it."""


class ScheduledChange(Section):
    """A change that the run itself makes to its controls at the start of a step."""

    step: int = Field(ge=0)
    controls: dict[str, ControlSetting]


TaskConfig = Annotated[
    Annotated[RunningSumConfig, Tag("running_sum")]
    | Annotated[ReasoningGymConfig, Tag("reasoning_gym")]
    | Annotated[QuestionsConfig, Tag("questions")],
    kind_or("running_sum"),
]
ModelConfig = Annotated[
    Annotated[DecoderConfig, Tag("decoder")]
    | Annotated[PretrainedConfig, Tag("huggingface")]
    | Annotated[PretrainedConfig, Tag("smollm2")],
    kind_or("decoder"),
]
KINDS = (
    *("running_sum", "reasoning_gym", "questions"),
    *("decoder", "huggingface", "smollm2"),
    *SAMPLER_KINDS,
)
"""Every `kind`; part of where pydantic says that a problem is, and of no field's name."""
