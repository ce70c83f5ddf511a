"""vLLM in this process as the sampler: its engine is stepped here, so that weights can arrive between two tokens.

Install it with `make vllm` (CPU) or `pip install 'trimtab[vllm]'`. What it samples from is the trainer's own grid (see
`vllm_quant`); each set of weights is verified before a token that was sampled with it is given away (see `probe`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.config import ConfigError
from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Arrivals, InFlight, SyncError, Update
from trimtab.trainer.rollouts.served import (
    Answer,
    assembled,
    checkpoint_weights,
    second_names,
    seeds,
    unpadded,
)
from trimtab.trainer.rollouts.verified import Scorer, Verification
from trimtab.trainer.rollouts.vllm_engine import started
from trimtab.trainer.sampler_sections import VllmConfig
from trimtab.trainer.tasks.task import Prompts

if TYPE_CHECKING:
    from vllm import RequestOutput


class VllmSampler:
    """Samples with vLLM's engine in this process.

    Args:
        folder: the Hugging Face folder of the model; its weights are not read.
        model: the trainer's, converted for the format that sampling starts in; what is kept in it is kept here.
        settings: of the engine.
        end: the token that ends a response.
        pad: the token that fills up after it.
        in_flight: what becomes of the keys and values of half-done responses when weights arrive.
        kv_format: of the key-value cache, for good.

    Raises:
        ConfigError: vLLM is not installed, or refuses the model.
    """

    def __init__(
        self,
        folder: Path,
        model: HuggingFaceLM,
        settings: VllmConfig,
        *,
        end: int,
        pad: int,
        in_flight: InFlight = "keep",
        kv_format: str = "none",
        refresh_tied_head: bool = True,
    ) -> None:
        self.end = end
        self.pad = pad
        self.in_flight = in_flight
        self.version = -1
        self._tied = second_names(model)
        self._number = 0
        self._answers: dict[str, RequestOutput | None] = {}
        """Of the requests that are being answered, by name; None while it is not there."""
        self._vocabulary = model.vocabulary
        scorers = {"vllm": Scorer(scores=self.scores, compute_exactly=self._compute_exactly)}
        self._verification = Verification(model, scorers, dtype=settings.dtype, kv_format=kv_format)
        self._engine = started(folder, model, settings, in_flight, kv_format)
        self._tell("init_weight_transfer_engine", init_info={"refresh_tied_head": refresh_tied_head})

    def sync(self, update: Update) -> None:
        """Take over `update`, and verify that the engine computes with it.

        Raises:
            SyncError: it was not taken over whole, or the engine computes with something else. Nothing is sampled until
                a later update is taken over.
        """
        with self._verification.taking_over(update, idle=not self._answers):
            self._take_over(update)

    @property
    def probed(self) -> float:
        """Mean |difference| of the last probe, nats; see `Verification.probed`."""
        return self._verification.probed.get("vllm", float("nan"))

    def _take_over(self, update: Update) -> None:
        running = bool(self._answers)
        if not self._engine.reset_prefix_cache(reset_running_requests=self.in_flight == "drop") and not running:
            raise SyncError("sampler: vLLM did not let go of the keys and values that old weights made")
        try:
            self._tell("start_weight_update")
            weights = checkpoint_weights(update.weights, self._tied)
            self._tell("update_weights", update_info={"weights": weights, "number_format": update.number_format})
            self._tell("finish_weight_update")
        except Exception as error:
            raise SyncError(f"sampler: version {update.version} was not taken over: {error}") from error
        self._engine.set_weight_version(str(update.version))
        self.version = update.version

    def _compute_exactly(self, exactly: bool) -> None:
        self._tell("compute_exactly", exactly=exactly)
        self._engine.reset_prefix_cache()

    def scores(self, tokens: list[int]) -> Tensor:
        """[n - 1] log-prob of each of the n tokens after those before it, by the engine; for verification."""
        from vllm import SamplingParams

        name = self._add(tokens, SamplingParams(max_tokens=1, prompt_logprobs=0, flat_logprobs=True, detokenize=False))
        while self._answers[name] is None:
            self._step()
        return torch.tensor(self._answers.pop(name).prompt_logprobs.logprobs)  # type: ignore[union-attr]

    def generate(
        self,
        prompts: Prompts,
        length: int,
        *,
        samples: int = 1,
        head: int,
        temperature: float,
        generator: torch.Generator,
        arrivals: Arrivals | None = None,
    ) -> Rollout:
        """Sample responses; see `Sampler.generate`.

        Raises:
            SyncError: there are no verified weights to sample with, or those that arrived in flight are not.
            ConfigError: the longest prompt and `length` are more than the engine was made for.
        """
        self._verification.require()
        self._check_length(prompts.tokens.shape[1] + length)
        repeated, head = prompts.repeated(samples), min(head, self._vocabulary)
        engine = self.engine
        try:
            names = self._add_all(repeated, length, head, temperature, generator)
            while None in self._answers.values():
                update = None if arrivals is None else arrivals()
                if update is not None:
                    self.sync(update)
                self._step()
            self._verification.settle()
            answers = [_answer(self._answers[name], head) for name in names]
        finally:
            self._abandon()
        return assembled(repeated, answers, length=length, head=head, pad=self.pad, engine=engine)

    @property
    def engine(self) -> str:
        """What the quantised layers compute with."""
        from trimtab.trainer.rollouts.vllm_quant import engine_of

        return str(self._engine.apply_model(engine_of)[0])

    def contract(self) -> dict[str, TensorContract]:
        """What each weight is computed in."""
        return self._verification.contract()

    def close(self) -> None:
        """End the engine."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.engine_core.shutdown()
            from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

            cleanup_dist_env_and_memory()

    def _check_length(self, tokens: int) -> None:
        most = self._engine.model_config.max_model_len
        if tokens > most:
            raise ConfigError(
                f"task.response_length: the longest prompt and response are {tokens} tokens, more than the {most} of "
                "vLLM's engine; give shorter ones, or a larger sampler.max_model_len if the model allows it"
            )

    def _add_all(
        self, prompts: Prompts, length: int, head: int, temperature: float, generator: torch.Generator
    ) -> list[str]:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = {
            "temperature": temperature,
            "max_tokens": length,
            "stop_token_ids": [self.end],
            "ignore_eos": True,  # the task's end is the only one
            "logprobs": head,
            "flat_logprobs": True,
            "detokenize": False,  # else most of the time goes into text that nobody reads
            "output_kind": RequestOutputKind.FINAL_ONLY,
        }
        every_seed = seeds(len(prompts.tokens), generator)
        rows = zip(unpadded(prompts), every_seed, strict=True)
        return [self._add(tokens, SamplingParams(**params, seed=seed)) for tokens, seed in rows]

    def _add(self, tokens: list[int], params: Any) -> str:
        self._number += 1
        name = str(self._number)
        self._engine.add_request(name, {"prompt_token_ids": tokens}, params)
        self._answers[name] = None
        return name

    def _step(self) -> None:
        for output in self._engine.step():
            if output.finished:
                self._answers[output.request_id] = output

    def _abandon(self) -> None:
        """Forget what was asked for, and stop what is still being answered."""
        self._engine.abort_request([name for name, answer in self._answers.items() if answer is None])
        self._answers.clear()

    def _tell(self, method: str, **arguments: Any) -> None:
        self._engine.collective_rpc(method, kwargs=arguments)


def _answer(output: Any, head: int) -> Answer:
    """The response of a finished request."""
    completion = output.outputs[0]
    # Of each position: what was sampled, then the most probable, in order.
    ids = np.array(completion.logprobs.token_ids, dtype=np.int64).reshape(-1, 1 + head)
    values = np.array(completion.logprobs.logprobs, dtype=np.float32).reshape(-1, 1 + head)
    return Answer(
        tokens=ids[:, 0],
        logprobs=values[:, 0],
        head_ids=ids[:, 1:],
        head_logprobs=values[:, 1:],
        versions=[(int(span.version), span.start) for span in completion.weight_versions],
    )
