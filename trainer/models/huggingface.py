"""Any Hugging Face causal language model as the trainer's and the sampler's `LanguageModel`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trimtab.trainer.quant.kv_cache import stored

try:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel
except ImportError as error:  # pragma: no cover
    raise ImportError("Hugging Face models need transformers: pip install 'transformers>=5'") from error

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


class FormattedCache(DynamicCache):
    """A `DynamicCache` that holds keys and values as they are after rounding to `kv_format`."""

    def __init__(self, *, config: Any, kv_format: str) -> None:
        super().__init__(config=config)
        self.kv_format = kv_format

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store [B, heads, T, head_dim] behind what the layer holds, and return all that it holds then."""
        key, value = stored(key_states, self.kv_format), stored(value_states, self.kv_format)
        return super().update(key, value, layer_idx, *args, **kwargs)


class HuggingFaceLM(nn.Module):
    """Adapts a causal language model of transformers, without dropout.

    Its modules and parameters are those of the Hugging Face model behind the prefix `causal_lm.`, so a Llama's first
    query projection is `causal_lm.model.layers.0.self_attn.q_proj` and its head is `causal_lm.lm_head`.

    Args:
        causal_lm: the model; it is not copied, and is in training mode afterwards, as a fresh `nn.Module` is.
        gradient_checkpointing: compute each layer again in the backward pass instead of keeping its activations. As
            everywhere in transformers this holds in training mode only, where a cache is then refused.

    Raises:
        ValueError: gradient checkpointing of a model that has none.
    """

    def __init__(self, causal_lm: PreTrainedModel, *, gradient_checkpointing: bool = False) -> None:
        super().__init__()
        self.causal_lm = causal_lm
        self.gradient_checkpointing = gradient_checkpointing
        if gradient_checkpointing:
            # transformers keeps this among its modules, so copies of this model have it too
            causal_lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        _without_dropout(causal_lm)
        self.train()

    @property
    def vocabulary(self) -> int:
        """Logits per position."""
        return int(self.causal_lm.config.get_text_config().vocab_size)

    @property
    def context(self) -> int | None:
        """Most tokens that a sequence may have, by the model's configuration; None if it does not say."""
        return getattr(self.causal_lm.config.get_text_config(), "max_position_embeddings", None)

    def forward(
        self,
        tokens: Tensor,
        *,
        cache: FormattedCache | None = None,
        keep_last: int | None = None,
        padding: Tensor | None = None,
    ) -> Tensor:
        """[B, T] token ids -> [B, T or keep_last, vocabulary] logits; see `LanguageModel`.

        Raises:
            ValueError: a cache in training mode with gradient checkpointing, which would be ignored.
        """
        if cache is not None and self.training and self.gradient_checkpointing:
            raise ValueError("cache: is not used in training mode with gradient checkpointing; call eval() first")
        start = 0 if cache is None else cache.get_seq_length()
        end = start + tokens.shape[1]
        where: dict[str, Tensor] = {}
        if padding is not None:
            place = torch.arange(end, device=tokens.device) - padding[:, None]
            where = {"attention_mask": (place >= 0).long(), "position_ids": place[:, start:].clamp_min(0)}
        output = self.causal_lm(
            input_ids=tokens,
            past_key_values=cache,
            use_cache=cache is not None,
            logits_to_keep=keep_last or 0,  # 0 is all of them
            **where,
        )
        return output.logits  # type: ignore[no-any-return]

    def new_cache(self, batch: int, capacity: int, kv_format: str = "none") -> FormattedCache:  # noqa: ARG002
        """An empty cache; it grows with what it holds."""
        return FormattedCache(config=self.causal_lm.config, kv_format=kv_format)


def _without_dropout(model: PreTrainedModel) -> None:
    """Rates are in `nn.Dropout` modules, or numbers on attention modules that the attention function is given."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def load_huggingface(path: str | Path, *, gradient_checkpointing: bool = False) -> tuple[HuggingFaceLM, Any]:
    """The causal language model, in float32, and the tokenizer in a local folder, as `save_pretrained` writes them.

    Nothing is downloaded, and no code in the folder is run.

    Raises:
        FileNotFoundError: no such folder, or one without a configuration, weights or a tokenizer; the message says
            which.
        ValueError: no causal language model, or one that cannot be told its tokenizer's ids.
    """
    folder = Path(path).expanduser()
    _check_folder(folder, {"a tokenizer": TOKENIZER_FILES})
    adapted = load_model(folder, gradient_checkpointing=gradient_checkpointing)
    tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
    if len(tokenizer) > adapted.vocabulary:
        raise ValueError(
            f"model: {folder} has a tokenizer of {len(tokenizer)} ids and a model of {adapted.vocabulary}; they do not "
            "belong together"
        )
    return adapted, tokenizer


def load_model(path: str | Path, *, gradient_checkpointing: bool = False) -> HuggingFaceLM:
    """The causal language model alone.

    Raises:
        FileNotFoundError, ValueError: as for `load_huggingface`.
    """
    folder = Path(path).expanduser()
    _check_folder(folder, {"config.json": ("config.json",), "weights": WEIGHT_FILES})
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, **LOCAL
        )
    except SafetensorError as error:
        raise ValueError(f"model: {folder} has weights that cannot be read, as of a copy cut short: {error}") from error
    model, loading = loaded
    absent = sorted(loading["missing_keys"])
    if absent:
        raise ValueError(f"model: {folder} has no weights for {', '.join(absent[:5])}{' ...' if absent[5:] else ''}")
    return HuggingFaceLM(model, gradient_checkpointing=gradient_checkpointing)


def _check_folder(folder: Path, wanted: dict[str, tuple[str, ...]]) -> None:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"model: {folder} is no folder; give one that holds config.json, weights and a tokenizer (models are not "
            "downloaded)"
        )
    for what, patterns in wanted.items():
        if not any(any(folder.glob(pattern)) for pattern in patterns):
            raise FileNotFoundError(f"model: {folder} has no {what.removeprefix('a ')} ({', '.join(patterns)})")
