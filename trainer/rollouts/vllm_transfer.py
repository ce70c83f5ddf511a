"""Weights into a running vLLM, through its own registry of weight transfers: a backend called `trimtab`.

vLLM's built-in backends move weights between GPUs. This one takes them from the same process, as tensors, or from a
safetensors file (in /dev/shm, say) that a server's processes can read, and says exactly what went wrong: an update that
misses a weight, or has one of another shape, is an error, and never half a model that goes on sampling in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from safetensors import safe_open
from torch import Tensor, nn
from typing_extensions import override
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from trimtab.trainer.rollouts.vllm_quant import set_format

BACKEND = "trimtab"


@dataclass
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """What the backend is set up with."""

    refresh_tied_head: bool = True
    """Let a head that shares its weight with the embedding take up new weights; see `refreshed_tied_head`."""


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """One whole set of weights, by Hugging Face names."""

    weights: Mapping[str, Tensor] | None = None
    """The tensors, in the engine's own process."""
    path: str | None = None
    """Or a safetensors file with them."""
    number_format: str | None = None
    """What to compute in from now on; None leaves it as it is."""


class TrimtabTransfer(WeightTransferEngine[InitInfo, UpdateInfo]):  # type: ignore[misc]
    """Takes over a whole set of weights at a time."""

    init_info_cls, update_info_cls = InitInfo, UpdateInfo

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refresh = True
        self._expected = frozenset(checkpoint_names(self.model))

    @override
    def init_transfer_engine(self, init_info: InitInfo) -> None:
        self._refresh = init_info.refresh_tied_head

    @override
    def start_weight_update(self) -> None:
        initialize_layerwise_reload(self.model)

    @override
    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Take over `update_info`, an `UpdateInfo`.

        Raises:
            ValueError: a weight is missing, unknown or of another shape, or the format is none that fits; the engine
                takes the next whole set all the same.
        """
        # Not the base class's: it waits for an accelerator, and a CPU has none.
        try:
            self.receive_weights(self.parse_update_info(update_info))
        except Exception:
            # vLLM ends the session without `finish`; without this the next one would count on from here.
            finalize_layerwise_reload(self.model, self.model_config)
            raise

    @override
    def receive_weights(self, update_info: UpdateInfo) -> None:
        given = _Given(update_info)
        missing = sorted(self._expected - given.names)
        if missing:
            raise ValueError(f"weights: {len(missing)} are missing, {', '.join(missing[:3])} first")
        try:
            self.model.load_weights(iter(given))
        except (AssertionError, KeyError, RuntimeError, ValueError) as error:
            raise ValueError(f"weights: {given.current}: {error or 'shape differs'}") from error
        if update_info.number_format is not None:
            set_format(self.model, update_info.number_format)

    @override
    def finish_weight_update(self) -> None:
        finalize_layerwise_reload(self.model, self.model_config)
        if self._refresh:
            refreshed_tied_head(self.model)

    @override
    def shutdown(self) -> None:
        """Nothing is held."""


class _Given:
    """The weights of an update, one at a time; `current` is the one being loaded."""

    def __init__(self, info: UpdateInfo) -> None:
        self._info = info
        self.current = ""
        if (info.weights is None) == (info.path is None):
            raise ValueError("weights: give either weights or path")
        self.names = frozenset(info.weights if info.weights is not None else self._file_names())

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        if self._info.weights is not None:
            for name, tensor in self._info.weights.items():
                self.current = name
                yield name, tensor
        else:
            with safe_open(self._info.path, "pt") as file:
                for name in file.keys():  # noqa: SIM118 - it is no dictionary
                    self.current = name
                    yield name, file.get_tensor(name)

    def _file_names(self) -> list[str]:
        with safe_open(self._info.path, "pt") as file:
            return list(file.keys())


def checkpoint_names(model: nn.Module) -> Iterator[str]:
    """The Hugging Face names of what a vLLM model's parameters are loaded from; a tied head has none of its own."""
    merged = getattr(model, "packed_modules_mapping", {})
    for name, _ in model.named_parameters():  # the embedding and a head tied to it are one, and come once
        layer, _, leaf = name.rpartition(".")
        parent, dot, kind = layer.rpartition(".")
        if leaf in ("weight", "bias"):
            for part in merged.get(kind, [kind]):
                yield f"{parent}{dot}{part}.{leaf}"


def refreshed_tied_head(model: nn.Module) -> None:
    """Let the head see the weight that it shares with the embedding.

    A layer-wise reload works on layers that receive a weight, and a tied head receives none: what was made of the old
    one (vLLM packs it for its matmul on a CPU; `TrimtabHead` rounds it) would be computed with for ever. Nothing in
    vLLM says so, its checksums included, since the weight itself is new.
    """
    head = getattr(model, "lm_head", None)
    method = getattr(head, "quant_method", None)
    if method is not None and getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        method.process_weights_after_loading(head)
