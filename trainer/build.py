"""The model and the task that a configuration names."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trimtab.trainer.config import ConfigError, RunConfig
from trimtab.trainer.engines import check_fits, check_task
from trimtab.trainer.sections import DecoderConfig, PretrainedConfig, QuestionsConfig, ReasoningGymConfig
from trimtab.trainer.tasks.characters import CharacterTokenizer
from trimtab.trainer.tasks.running_sum import RunningSum
from trimtab.trainer.tasks.task import Task
from trimtab.trainer.tasks.text import Tokenizer
from trimtab.trainer.warm_start import Progress, build_decoder, warm_weights

FIELDS = {
    "model": "model.path",
    "tokenizer": "model.tokenizer",
    "name": "task.dataset",
    "config": "task.settings",
}
"""Where the configuration has the parameters that errors begin with."""


def build(config: RunConfig, on_warm_start: Progress | None = None) -> tuple[nn.Module, Task]:
    """The policy to start from and its task.

    Raises:
        ConfigError: a model, tokenizer, file or package that is not there, a task that the model has no tokens for, or
            a configuration that the model does not fit; the message names the field.
    """
    model, tokenizer = _unwarmed(config)
    if isinstance(config.model, DecoderConfig):
        model.load_state_dict(warm_weights(config, on_warm_start))
    return model.to(_device(config), getattr(torch, config.model.weights)), build_task(config, tokenizer, model)


def _device(config: RunConfig) -> torch.device:
    wanted = config.model.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("model.device: 'cuda', and torch finds no CUDA device; give 'cpu' or 'auto'")
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def check(config: RunConfig) -> None:
    """Refuse what cannot run without training anything, the warm start included.

    Raises:
        ConfigError: as for `build`, and a task whose responses are too short for what is asked of them.
    """
    model, tokenizer = _unwarmed(config)
    check_task(config, build_task(config, tokenizer, model))


def _unwarmed(config: RunConfig) -> tuple[nn.Module, Any]:
    """The model before its warm start, checked, and its tokenizer."""
    model: nn.Module
    tokenizer: Any = None
    if isinstance(config.model, DecoderConfig):
        model = build_decoder(config)
    else:
        if isinstance(config.task, ReasoningGymConfig | QuestionsConfig):
            _named_task(config.task, CharacterTokenizer())  # mistakes in it, before a model that takes long to load
        try:
            model, tokenizer = _pretrained(config.model)
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError(_told(error, "model.kind" if config.model.path is None else "model.path")) from error
    check_fits(config, model)  # before the warm start, which nobody should wait for in vain
    return model, tokenizer


def build_task(config: RunConfig, tokenizer: Tokenizer | None, model: nn.Module) -> Task:
    """The task, in the tokens of the model."""
    task = config.task
    if isinstance(task, ReasoningGymConfig | QuestionsConfig):
        assert tokenizer is not None  # the configuration refuses a text task with a model that has none
        return _named_task(task, tokenizer)
    sums = RunningSum(digits=task.digits, modulus=task.modulus)
    vocabulary = getattr(model, "vocabulary", sums.vocabulary)  # the embedded model's is the task's
    if vocabulary < sums.vocabulary:
        raise ConfigError(
            f"task.modulus: {task.modulus} makes {sums.vocabulary} tokens, and the model has {vocabulary}; give a "
            "smaller one"
        )
    return sums


def _pretrained(config: PretrainedConfig) -> tuple[nn.Module, Any]:
    """The model and its tokenizer."""
    # Here, so that a run of the embedded model does not wait for transformers.
    from trimtab.trainer.models.huggingface import load_huggingface, load_model
    from trimtab.trainer.models.smollm2 import smollm2_folder

    folder = smollm2_folder() if config.path is None else config.path
    if config.tokenizer == "characters":
        model = load_model(folder, gradient_checkpointing=config.gradient_checkpointing)
        tokenizer = CharacterTokenizer()
        if len(tokenizer) > model.vocabulary:
            raise ValueError(
                f"tokenizer: 'characters' has {len(tokenizer)} ids, and the model in {folder} {model.vocabulary}"
            )
        return model, tokenizer
    return load_huggingface(folder, gradient_checkpointing=config.gradient_checkpointing)


def _told(error: Exception, field: str) -> str:
    """What went wrong, behind the name of the field that the error begins with, or else of `field`."""
    parameter, separator, problem = str(error).partition(": ")
    return f"{FIELDS[parameter]}: {problem}" if separator and parameter in FIELDS else f"{field}: {error}"


def _named_task(task: ReasoningGymConfig | QuestionsConfig, tokenizer: Tokenizer) -> Task:
    """The text task, or its mistake by the name of the field."""
    try:
        return _text_task(task, tokenizer)
    except (OSError, ValueError, ImportError) as error:
        raise ConfigError(_told(error, "task.path" if isinstance(task, QuestionsConfig) else "task.kind")) from error


def _text_task(task: ReasoningGymConfig | QuestionsConfig, tokenizer: Tokenizer) -> Task:
    if isinstance(task, QuestionsConfig):
        from trimtab.trainer.tasks.questions_file import QuestionsFile

        return QuestionsFile(task.path, tokenizer, response_length=task.response_length)
    from trimtab.trainer.tasks.reasoning_gym import ReasoningGym

    return ReasoningGym(
        task.dataset,
        tokenizer,
        response_length=task.response_length,
        size=task.size,
        seed=task.seed,
        threshold=None if task.threshold == "none" else task.threshold,
        config=task.settings,
    )
