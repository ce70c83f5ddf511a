"""vLLM's engine, started in this process so that a sampler can step it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from trimtab.trainer.config import ConfigError
from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.rollouts.sampler import InFlight
from trimtab.trainer.rollouts.served import EXTENSION, KV_TYPES, MAX_HEAD, quantisation
from trimtab.trainer.sampler_sections import VllmConfig

INSTALL = "on a machine without a GPU, `make vllm`; with one, pip install 'trimtab[vllm]'"
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine is in this process, to be stepped
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
CPU_ENVIRONMENT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1"}
"""Threads are not pinned to cores, since the trainer has some on them too."""


def set_environment() -> None:
    """What vLLM reads when it is imported, where nobody has said otherwise."""
    for name, value in {**ENVIRONMENT, **({} if torch.cuda.is_available() else CPU_ENVIRONMENT)}.items():
        os.environ.setdefault(name, value)


def started(folder: Path, model: HuggingFaceLM, settings: VllmConfig, in_flight: InFlight, kv_format: str) -> Any:
    """The engine, without weights.

    Raises:
        ConfigError: vLLM is not installed, or refuses the model.
    """
    overrides = {"quantization_config": quantisation(model)}
    set_environment()
    try:
        from vllm import EngineArgs, LLMEngine
        from vllm.config import WeightTransferConfig
    except ImportError as error:
        raise ConfigError(f"sampler.kind: 'vllm' needs vLLM: {INSTALL} ({error})") from error
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        raise ConfigError(
            "sampler.kind: 'vllm' cannot start beside torch.distributed, which it uses itself; set asynchrony.mode to "
            "'process', or use kind = 'server'"
        )
    from trimtab.trainer.rollouts.vllm_plugin import register

    register()  # the entry point says the same, to the processes that vLLM starts
    arguments = EngineArgs(
        model=str(folder),
        dtype=settings.dtype,
        quantization="trimtab",
        hf_overrides=overrides,
        load_format="dummy",  # the first set of weights is on its way
        skip_tokenizer_init=True,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs + 1,  # one for the probe
        kv_cache_memory_bytes=int(settings.kv_cache_gib * 2**30),
        kv_cache_dtype=KV_TYPES[kv_format],
        # A request that starts after weights arrived must not find the keys of the old ones.
        enable_prefix_caching=in_flight != "keep",
        logprobs_mode="processed_logprobs",  # of the distribution that is sampled from
        max_logprobs=MAX_HEAD,
        enforce_eager=True,  # formats change live
        async_scheduling=False,  # a step that is under way when weights arrive would mix them
        weight_transfer_config=WeightTransferConfig(backend="trimtab"),
        worker_extension_cls=EXTENSION,
        disable_log_stats=True,
        generation_config="vllm",
    )
    try:
        return LLMEngine.from_engine_args(arguments)
    except (ValueError, RuntimeError, NotImplementedError) as error:
        raise ConfigError(f"sampler: vLLM cannot serve {folder}: {error}") from error
