"""The `[sampler]` table of a run's TOML file: one for each engine that samples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, Tag, field_validator

from trimtab.trainer.section import Section, kind_or


class TorchSamplerConfig(Section):
    """The trainer's own sampler: any model, any format, outliers, in the trainer's process."""

    kind: Literal["torch"] = "torch"


class VllmConfig(Section):
    """vLLM's engine, in the process of the trainer, or in one beside it where `asynchrony.mode` is process."""

    kind: Literal["vllm"]
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """What activations are kept in between layers; the layers themselves compute in the sampler's format."""
    max_model_len: int | None = Field(default=None, ge=2)
    """Most tokens of a prompt and its response; by default what the model was made for."""
    max_num_seqs: int = Field(default=128, ge=1)
    """Responses that are sampled at a time."""
    kv_cache_gib: float = Field(default=1.0, gt=0)
    """Memory for keys and values."""


class ServerConfig(Section):
    """Processes of `vllm serve` that were started beforehand: see docs/rollouts.md."""

    kind: Literal["server"]
    urls: tuple[str, ...] = Field(min_length=1)
    """Where they listen, such as `http://127.0.0.1:8000`; requests go to each in turn."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """What they were started with."""
    weights_folder: Path = Path("/dev/shm")
    """Where weights are handed over as a file; every server must see the same."""
    concurrency: int = Field(default=64, ge=1)
    """Requests under way at a time."""
    timeout: float = Field(default=600.0, gt=0)
    """Most seconds for one response, and for taking over weights."""
    retries: int = Field(default=3, ge=0)
    """Times that a request is sent again after a failure of the server or of the network."""

    @field_validator("urls")
    @classmethod
    def _http(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"{url!r} is no http:// or https:// address")
        return tuple(url.rstrip("/") for url in urls)


SamplerConfig = Annotated[
    Annotated[TorchSamplerConfig, Tag("torch")]
    | Annotated[VllmConfig, Tag("vllm")]
    | Annotated[ServerConfig, Tag("server")],
    kind_or("torch"),
]
KINDS = ("torch", "vllm", "server")
"""Every `kind` of them."""
