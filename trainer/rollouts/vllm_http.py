"""The HTTP side of servers of vLLM: requests in turn, sent again where that helps, with errors that say what to do."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

from trimtab.trainer.rollouts.sampler import SamplerError
from trimtab.trainer.sampler_sections import ServerConfig

FIRST_WAIT = 0.2
"""Seconds before a request is sent again; twice as long each further time."""
START = "python -m trimtab.trainer.rollouts.vllm_serve"


class Servers:
    """Several addresses that serve the same model.

    Raises:
        ImportError: httpx is not installed.
    """

    def __init__(self, settings: ServerConfig) -> None:
        import httpx

        self.urls = settings.urls
        self._errors = httpx.TransportError
        self._retries = settings.retries
        limits = httpx.Limits(max_connections=settings.concurrency + len(settings.urls))
        self._client = httpx.Client(timeout=settings.timeout, limits=limits)
        self._turn, self._lock = itertools.cycle(self.urls), threading.Lock()

    def next(self) -> str:
        """The address whose turn it is."""
        with self._lock:
            return next(self._turn)

    def ask(self, url: str, path: str, body: Any = None, *, method: str = "POST", again: bool = True) -> Any:
        """What the server at `url` answers, as JSON; None if it answers nothing.

        Args:
            url: one of `urls`.
            path: of the request.
            body: sent as JSON.
            method: of HTTP.
            again: sending it twice does no harm, so it is sent again when the server or the network fails.

        Raises:
            SamplerError: no answer, or a refusal; it says where and why.
        """
        times = self._retries if again else 0
        for attempt in itertools.count():
            try:
                response = self._client.request(method, url + path, json=body)
            except self._errors as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if response.is_success:
                    return response.json() if response.content else None
                problem = f"HTTP {response.status_code}: {response.text[:300]}"
                if response.status_code < 500:
                    raise SamplerError(f"sampler.urls: {url}{path} refused: {problem}. {_hint(response.status_code)}")
            if attempt >= times:
                raise SamplerError(f"sampler.urls: {url}{path} failed {attempt + 1} times: {problem}")
            time.sleep(FIRST_WAIT * 2**attempt)
        raise AssertionError  # it counts without end

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _hint(status: int) -> str:
    if status in (403, 404):
        return f"The server lacks what rollouts need; start it with {START} (see docs/rollouts.md)"
    return "What was asked does not fit the server"
