"""Servers of vLLM in processes of their own as the sampler, over HTTP: tokens in, tokens and log-probs out.

They are started beforehand (`python -m trimtab.trainer.rollouts.vllm_serve`, see docs/rollouts.md) and take requests in
turn. Weights are written to a file once, and each server reads it through vLLM's own weight-transfer requests while
generation is paused; each is verified before a token that it sampled with them is given away (see `probe`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.config import ConfigError
from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.quant import format_named
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Arrivals, InFlight, SamplerError, SyncError, Update, Weights, check_length
from trimtab.trainer.rollouts.served import (
    Answer,
    assembled,
    checkpoint_weights,
    quantisation,
    second_names,
    seeds,
    unpadded,
)
from trimtab.trainer.rollouts.verified import Scorer, Verification
from trimtab.trainer.rollouts.vllm_http import START, Servers
from trimtab.trainer.sampler_sections import ServerConfig
from trimtab.trainer.tasks.task import Prompts

POLL_SECONDS = 0.02
"""Between two looks for weights in flight."""
GENERATE = "/inference/v1/generate"


class ServerSampler:
    """Samples with servers of vLLM.

    Args:
        model: the trainer's, converted for the format that sampling starts in.
        settings: where the servers are.
        end: the token that ends a response.
        pad: the token that fills up after it.
        in_flight: what becomes of the keys and values of half-done responses when weights arrive.
        kv_format: what the servers' key-value caches were started in.
        refresh_tied_head: see `vllm_transfer`.

    Raises:
        ConfigError: a server does not answer, or lacks what rollouts need.
    """

    def __init__(
        self,
        model: HuggingFaceLM,
        settings: ServerConfig,
        *,
        end: int,
        pad: int,
        in_flight: InFlight = "keep",
        kv_format: str = "none",
        refresh_tied_head: bool = True,
    ) -> None:
        quantisation(model)  # what vLLM cannot compute is refused here as by the engine in the trainer's process
        self.end = end
        self.pad = pad
        self.in_flight = in_flight
        self.version = -1
        self._settings = settings
        self._vocabulary, self._context = model.vocabulary, model.context
        scorers = {
            url: Scorer(scores=partial(self.scores, url), compute_exactly=partial(self._compute_exactly, url))
            for url in settings.urls
        }
        self._verification = Verification(model, scorers, dtype=settings.dtype, kv_format=kv_format)
        self._tied = second_names(model)
        self._sampling = False
        self._format = ""
        try:
            self._servers = Servers(settings)
        except ImportError as error:
            raise ConfigError("sampler.kind: 'server' needs httpx: pip install 'httpx>=0.27'") from error
        self._pool = ThreadPoolExecutor(settings.concurrency, thread_name_prefix="trimtab-requests")
        try:
            for url in settings.urls:
                self._servers.ask(url, "/health", method="GET")
                body = {"init_info": {"refresh_tied_head": refresh_tied_head}}
                self._servers.ask(url, "/init_weight_transfer_engine", body)
        except SamplerError as error:
            self.close()
            raise ConfigError(f"{error}. Start it with {START}") from error

    def sync(self, update: Update) -> None:
        """Hand `update` to every server, and verify that it computes with it.

        Raises:
            SyncError: a server did not take it over whole, or computes with something else. Nothing is sampled until a
                later update is taken over.
        """
        with self._verification.taking_over(update, idle=not self._sampling):
            self._take_over(update)
            if self.version < 0:
                for url in self._settings.urls:
                    self._check_mode(url)
            self.version, self._format = update.version, update.number_format

    @property
    def probed(self) -> dict[str, float]:
        """Mean |difference| of the last probe of each server, nats; see `Verification.probed`."""
        return self._verification.probed

    def _take_over(self, update: Update) -> None:
        try:
            with self._written(update.weights, update.version) as path:
                for url in self._settings.urls:
                    self._hand_over(url, path, update)
        except (SamplerError, OSError) as error:
            raise SyncError(f"sampler: version {update.version} was not taken over: {error}") from error

    def _compute_exactly(self, url: str, exactly: bool) -> None:
        self._servers.ask(url, "/collective_rpc", {"method": "compute_exactly", "kwargs": {"exactly": exactly}})
        self._servers.ask(url, "/reset_prefix_cache")

    def scores(self, url: str, tokens: list[int]) -> Tensor:
        """[n - 1] log-prob of each of the n tokens after those before it, by the server at `url`."""
        params = {"max_tokens": 1, "prompt_logprobs": 0, "temperature": 1.0}
        answer = self._servers.ask(url, GENERATE, {"token_ids": tokens, "sampling_params": params})
        entries = zip(tokens[1:], answer["prompt_logprobs"][1:], strict=True)
        return torch.tensor([entry[str(token)]["logprob"] for token, entry in entries])

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
            SamplerError: a server failed, and went on failing when asked again.
            ConfigError: the longest prompt and `length` are more than the model was made for.
        """
        self._verification.require()
        check_length(prompts.tokens.shape[1], length, self._context)
        repeated, head, engine = prompts.repeated(samples), min(head, self._vocabulary), self.engine
        params = {
            "temperature": temperature,
            "max_tokens": length,
            "stop_token_ids": [self.end],
            "ignore_eos": True,  # the task's end is the only one
            "logprobs": min(head + 1, self._vocabulary),  # on the wire, what was sampled takes the place of the last
        }
        every_seed = seeds(len(repeated.tokens), generator)
        futures = [
            self._pool.submit(self._answer, tokens, params | {"seed": seed}, head)
            for tokens, seed in zip(unpadded(repeated), every_seed, strict=True)
        ]
        self._sampling = True
        try:
            while wait(futures, None if arrivals is None else POLL_SECONDS, FIRST_EXCEPTION).not_done:
                if any(future.done() and future.exception() for future in futures):
                    break
                update = None if arrivals is None else arrivals()
                if update is not None:
                    self.sync(update)
            answers = [future.result() for future in futures]
        except BaseException:
            self._abandon(futures)
            raise
        finally:
            self._sampling = False
        self._verification.settle()
        return assembled(repeated, answers, length=length, head=head, pad=self.pad, engine=engine)

    @property
    def engine(self) -> str:
        """What the quantised layers compute in; how the servers' machine does it is theirs to know."""
        return f"{format_named(self._format).family}-server"

    def contract(self) -> dict[str, TensorContract]:
        """What each weight is computed in."""
        return self._verification.contract()

    def close(self) -> None:
        """Close the connections; the servers go on."""
        self._pool.shutdown(cancel_futures=True)
        self._servers.close()

    def _answer(self, tokens: list[int], params: dict[str, Any], head: int) -> Answer:
        body = {"token_ids": tokens, "sampling_params": params}
        (choice,) = self._servers.ask(self._servers.next(), GENERATE, body)["choices"]
        if choice["finish_reason"] not in ("stop", "length"):
            raise SamplerError(f"sampler.urls: a response ended with {choice['finish_reason']!r}")
        content = choice["logprobs"]["content"]
        tops = [sorted(entry["top_logprobs"], key=_rank)[:head] for entry in content]
        shape = (len(content), head)
        return Answer(
            tokens=np.array(choice["token_ids"], dtype=np.int64),
            logprobs=np.array([entry["logprob"] for entry in content], dtype=np.float32),
            head_ids=np.array([top["token_id"] for row in tops for top in row], dtype=np.int64).reshape(shape),
            head_logprobs=np.array([top["logprob"] for row in tops for top in row], dtype=np.float32).reshape(shape),
            versions=[(int(span["version"]), span["start"]) for span in choice["weight_versions"]],
        )

    def _hand_over(self, url: str, path: Path, update: Update) -> None:
        """Pause the server, give it the weights, and let it go on."""
        ask = self._servers.ask
        dropped = str(self.in_flight == "drop").lower()
        # vLLM drops the keys and values of responses under way unless told not to, whatever its documentation says.
        ask(url, f"/pause?mode=keep&clear_cache={dropped}")
        try:
            ask(url, "/start_weight_update", again=False)
            info = {"path": str(path), "number_format": update.number_format}
            ask(url, "/update_weights", {"update_info": info}, again=False)
            ask(url, "/finish_weight_update", {"weight_version": str(update.version)}, again=False)
            ask(url, f"/reset_prefix_cache?reset_running_requests={dropped}")
        finally:
            ask(url, "/resume")

    @contextmanager
    def _written(self, weights: Weights, version: int) -> Iterator[Path]:
        """The weights in a file, until every server has read it."""
        path = self._settings.weights_folder / f"trimtab-{os.getpid()}-{id(self):x}-{version}.safetensors"
        try:
            save_file(
                {name: value.contiguous().cpu() for name, value in checkpoint_weights(weights, self._tied).items()},
                path,
            )
            yield path
        finally:
            path.unlink(missing_ok=True)

    def _check_mode(self, url: str) -> None:
        """Refuse a server whose log-probs are not those of the distribution that it samples from."""
        tops = []
        for temperature in (1.0, 0.5):
            params = {"max_tokens": 1, "logprobs": 1, "temperature": temperature, "seed": 0}
            body = {"token_ids": self._verification.tokens, "sampling_params": params}
            (choice,) = self._servers.ask(url, GENERATE, body)["choices"]
            tops.append(max(top["logprob"] for top in choice["logprobs"]["content"][0]["top_logprobs"]))
        if tops[0] == tops[1]:
            raise SyncError(
                f"sampler.urls: {url} gives the same log-probs at any temperature; start it with --logprobs-mode "
                "processed_logprobs"
            )

    def _abandon(self, futures: list[Any]) -> None:
        """Stop what is still being answered."""
        for future in futures:
            future.cancel()
        for url in self._settings.urls:
            with suppress(SamplerError):  # whatever went wrong is already being told
                self._servers.ask(url, "/abort_requests", {}, again=False)
        wait(futures)


def _rank(top: dict[str, Any]) -> int:
    return int(top["rank"])
