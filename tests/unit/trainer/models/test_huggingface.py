"""Any Hugging Face causal language model: padding, cache, gradients and names, on tiny random ones."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from padded_rows import padded_tokens
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from trimtab.trainer.models.huggingface import HuggingFaceLM, load_huggingface
from trimtab.trainer.quant.linear import QuantLinear

VOCABULARY = 48
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}


def llama(seed: int = 0, *, tied: bool = False) -> PreTrainedModel:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=tied, attention_dropout=0.5))


def qwen3(seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**SIZES))


def qwen3_moe(seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = Qwen3MoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
    model = Qwen3MoeForCausalLM(config)
    for layer in model.model.layers:  # routers start at zero, and with them every expert is as good as another
        torch.nn.init.normal_(layer.mlp.gate.weight)
    return model


def mistral(seed: int = 0) -> PreTrainedModel:
    """Its layers see, and its cache keeps, the last five tokens only."""
    torch.manual_seed(seed)
    return MistralForCausalLM(MistralConfig(**SIZES, sliding_window=5))


MODELS = pytest.mark.parametrize("build", [llama, qwen3, qwen3_moe, mistral], ids=lambda build: build.__name__)


@MODELS
@pytest.mark.parametrize("seed", [1, 2])
def test_cached_left_padded_logits_equal_each_row_alone(build, seed: int) -> None:
    model = HuggingFaceLM(build(seed)).eval()
    tokens, padding = padded_tokens(seed, vocabulary=VOCABULARY, length=14)
    with torch.no_grad():
        full = model(tokens, padding=padding)
        cache = model.new_cache(4, 14)
        parts = [model(tokens[:, :8], cache=cache, padding=padding)]
        parts += [model(tokens[:, at : at + 1], cache=cache, padding=padding) for at in range(8, 14)]
        cached = torch.cat(parts, 1)
        for row, skip in enumerate(padding.tolist()):
            alone = model(tokens[row : row + 1, skip:])[0]
            torch.testing.assert_close(full[row, skip:], alone, rtol=0, atol=1e-5)
            torch.testing.assert_close(cached[row, skip:], alone, rtol=0, atol=1e-5)


@MODELS
def test_keep_last_is_the_tail_of_the_logits(build) -> None:
    model = HuggingFaceLM(build())
    tokens, padding = padded_tokens(3, vocabulary=VOCABULARY, length=10)
    full = model(tokens, padding=padding)
    assert full.shape == (4, 10, model.vocabulary)
    torch.testing.assert_close(model(tokens, padding=padding, keep_last=4), full[:, -4:])


@MODELS
def test_without_padding_it_is_the_model_itself(build) -> None:
    causal_lm = build()
    tokens = torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(4))
    expected = causal_lm.eval()(input_ids=tokens).logits
    # In training mode, as HuggingFaceLM leaves it: its dropout of one half would show.
    assert HuggingFaceLM(causal_lm)(tokens).equal(expected)


@MODELS
def test_gradient_checkpointing_gives_the_same_gradients(build) -> None:
    tokens, padding = padded_tokens(5, vocabulary=VOCABULARY, length=10)
    kept = torch.arange(10) >= padding[:, None]
    gradients = []
    for gradient_checkpointing in (False, True):
        # A copy, since the trainer and the sampler train and sample with copies.
        model = copy.deepcopy(HuggingFaceLM(build(), gradient_checkpointing=gradient_checkpointing))
        calls = []
        model.causal_lm.model.layers[0].mlp.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        model(tokens, padding=padding)[kept].square().mean().backward()
        assert len(calls) == 1 + gradient_checkpointing
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient.isfinite().all(), name
        torch.testing.assert_close(gradients[1][name], gradient, rtol=1e-6, atol=1e-8)


def test_a_cache_that_checkpointing_would_ignore_is_refused() -> None:
    model = HuggingFaceLM(llama(), gradient_checkpointing=True)
    tokens = torch.zeros(1, 3, dtype=torch.long)
    with pytest.raises(ValueError, match="cache: is not used in training mode"):
        model(tokens, cache=model.new_cache(1, 3))
    assert model.eval()(tokens, cache=model.new_cache(1, 3)).equal(model(tokens))


@MODELS
def test_names_are_those_of_the_model_behind_one_prefix(build) -> None:
    causal_lm = build()
    names = set(causal_lm.state_dict())
    assert set(HuggingFaceLM(causal_lm).state_dict()) == {f"causal_lm.{name}" for name in names}


def test_the_router_is_no_linear_layer_and_the_experts_are_whole() -> None:
    """Conversion by type never reaches a router, and finds the experts as one parameter for each projection."""
    model = HuggingFaceLM(qwen3_moe())
    linears = {name for name, module in model.named_modules() if type(module) is torch.nn.Linear}
    projections = {f"layers.{layer}.self_attn.{kind}_proj" for layer in range(2) for kind in "qkvo"}
    assert linears == {f"causal_lm.model.{name}" for name in projections} | {"causal_lm.lm_head"}
    assert "causal_lm.model.layers.1.mlp.gate.weight" in dict(model.named_parameters())
    assert model.get_parameter("causal_lm.model.layers.1.mlp.experts.gate_up_proj").shape == (4, 32, 32)


def test_every_expert_that_is_chosen_is_trained() -> None:
    model = HuggingFaceLM(qwen3_moe())
    tokens, padding = padded_tokens(6, vocabulary=VOCABULARY, length=12)
    model(tokens, padding=padding, keep_last=6).logsumexp(-1).sum().backward()
    for layer in range(2):
        gate = model.get_parameter(f"causal_lm.model.layers.{layer}.mlp.gate.weight")
        assert gate.grad is not None
        assert gate.grad.abs().sum() > 0


def test_tied_embeddings_stay_tied() -> None:
    model = copy.deepcopy(HuggingFaceLM(llama(tied=True)))
    assert model.causal_lm.lm_head.weight is model.causal_lm.model.embed_tokens.weight
    model.causal_lm.lm_head = QuantLinear(model.causal_lm.lm_head, _bf16(), backward="dequantized", kept=True)
    copied = copy.deepcopy(model)
    assert copied.causal_lm.lm_head.weight is copied.causal_lm.model.embed_tokens.weight


def test_an_fp8_cache_holds_what_e4m3_can() -> None:
    model = HuggingFaceLM(qwen3()).eval()
    tokens = torch.randint(0, VOCABULARY, (3, 12), generator=torch.Generator().manual_seed(8))
    with torch.no_grad():
        exact, rounded = (model.new_cache(3, 12, kv_format) for kv_format in ("none", "fp8"))
        expected, got = (model(tokens, cache=cache) for cache in (exact, rounded))
    first = exact.layers[0].keys.to(torch.float8_e4m3fn).float()
    assert rounded.layers[0].keys.equal(first)
    assert not exact.layers[0].keys.equal(first)
    assert 0 < (got - expected).abs().max().item() < 0.5


def test_dropout_modules_are_off() -> None:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=1, n_head=2, n_positions=16)
    model = HuggingFaceLM(GPT2LMHeadModel(config))
    tokens = torch.arange(10)[None]
    assert model.training
    assert model(tokens).equal(model(tokens))


def test_a_saved_folder_is_loaded_with_its_tokenizer(tmp_path: Path) -> None:
    causal_lm = llama(tied=True)
    causal_lm.save_pretrained(tmp_path)
    _tokenizer(VOCABULARY).save_pretrained(tmp_path)
    model, tokenizer = load_huggingface(tmp_path, gradient_checkpointing=True)
    assert tokenizer.encode("3 4") == [3, 4]
    assert model.gradient_checkpointing
    assert model.causal_lm.lm_head.weight is model.causal_lm.model.embed_tokens.weight
    tokens = torch.arange(12)[None]
    assert model(tokens).equal(HuggingFaceLM(causal_lm)(tokens))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere is no folder"):
        load_huggingface(tmp_path / "nowhere")
    _tokenizer(VOCABULARY + 1).save_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        load_huggingface(tmp_path)
    causal_lm = llama()
    causal_lm.config.save_pretrained(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no weights \(\*\.safetensors"):
        load_huggingface(tmp_path)
    causal_lm.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="a tokenizer of 49 ids and a model of 48"):
        load_huggingface(tmp_path)
    causal_lm.save_pretrained(tmp_path / "mute")
    with pytest.raises(FileNotFoundError, match="has no tokenizer"):
        load_huggingface(tmp_path / "mute")


def test_missing_weights_are_not_made_up(tmp_path: Path) -> None:
    causal_lm = llama()
    weights = {name: value for name, value in causal_lm.state_dict().items() if "layers.1.mlp" not in name}
    causal_lm.save_pretrained(tmp_path, state_dict=weights)
    _tokenizer(VOCABULARY).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"has no weights for model\.layers\.1\.mlp\.down_proj\.weight"):
        load_huggingface(tmp_path)


def _tokenizer(size: int) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(WordLevel({str(number): number for number in range(size)}, unk_token="0"))
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="1", pad_token="0")


def _bf16():
    from trimtab.trainer.quant import format_named

    return format_named("bf16", field="format_name")
