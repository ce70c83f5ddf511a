"""A sampler in a process of its own, so that sampling and training do not share an interpreter.

The parent talks to it over a pipe, one request at a time; weights that arrive in flight, and the word to break off, are
sent while it samples.
"""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

import torch

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.config import ConfigError
from trimtab.trainer.rollouts.rollout import Rollout
from trimtab.trainer.rollouts.sampler import Arrivals, Sampler, SamplerError, SyncError, Update
from trimtab.trainer.tasks.task import Prompts

Factory = Callable[[], Sampler]
Requests = SimpleQueue[tuple[str, Any]]
POLL_SECONDS = 0.002
"""Between two looks for weights in flight while the process samples."""
CLOSE_SECONDS = 5.0
SILENT_SECONDS = 60.0
"""Without an answer after which a person is told, unless the process has taken longer before."""
_log = logging.getLogger("trimtab")


class SamplerProcess:
    """A `Sampler` whose work a child process does.

    Args:
        factory: makes the sampler, in the child; must be picklable, as `functools.partial` of a function is.

    Raises:
        SamplerError: the sampler could not be made.
    """

    def __init__(self, factory: Factory) -> None:
        # Spawned, not forked: a fork of a process with threads and compiled kernels may hang.
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, factory), name="trimtab-sampler", daemon=True)
        self._process.start()
        child.close()
        self._lock = threading.Lock()
        self._patience = SILENT_SECONDS
        self.version = -1
        with self._watched():
            self._receive()

    def sync(self, update: Update) -> None:
        """Take over `update`; see `Sampler.sync`."""
        with self._lock, self._watched():
            self._send("sync", update)
            self._receive()
            self.version = update.version

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
        """Sample responses; see `Sampler.generate`."""
        how = {"samples": samples, "head": head, "temperature": temperature}
        with self._lock, self._watched():
            self._send("generate", (prompts, length, how, generator.get_state()))
            if arrivals is not None:
                try:
                    self._hand_over(arrivals)
                except BaseException:
                    self._break_off()
                    raise
            rollout, state = self._receive()
        generator.set_state(state)
        return rollout  # type: ignore[no-any-return]

    def contract(self) -> dict[str, TensorContract]:
        """What each weight is computed in."""
        with self._lock, self._watched():
            self._send("contract", None)
            return self._receive()  # type: ignore[no-any-return]

    def close(self) -> None:
        """End the process."""
        if self._process.is_alive():
            with suppress(SamplerError):
                self._send("close", None)
            self._process.join(CLOSE_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Say so where there is no answer for long: a process that hangs, or was stopped, looks like one at work."""
        began = time.monotonic()
        timer = threading.Timer(self._patience, self._tell_silence, (self._patience,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._patience = max(self._patience, 2 * (time.monotonic() - began))

    def _tell_silence(self, seconds: float) -> None:
        _log.warning(
            "trimtab: the sampler process (pid %d) has not answered for %.0f s; waiting on", self._process.pid, seconds
        )

    def _hand_over(self, arrivals: Arrivals) -> None:
        """Send what arrives until there is an answer; look once at least, however soon that comes."""
        answered = False
        while not answered:
            update = arrivals()
            if update is not None:
                self._send("arrival", update)
                self.version = update.version
            answered = self._poll()

    def _break_off(self) -> None:
        """End the batch, and take its answer from the pipe: the next one is to the next request."""
        with suppress(SamplerError, ConfigError):  # whatever went wrong is already being told
            self._send("stop", None)
            self._receive()

    def _send(self, what: str, content: Any) -> None:
        try:
            self._pipe.send_bytes(pickle.dumps((what, content)))
        except (OSError, ValueError) as error:
            raise self._died() from error

    def _poll(self) -> bool:
        """Whether an answer is there, or the process is gone and none will be."""
        return self._pipe.poll(POLL_SECONDS)

    def _receive(self) -> Any:
        try:
            answer = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._died() from error
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _died(self) -> SamplerError:
        self._process.join(CLOSE_SECONDS)
        return SamplerError(f"sampler: its process ended (exit code {self._process.exitcode}); what it said is above")


def _serve(pipe: Connection, factory: Factory) -> None:
    """The child: make the sampler, then do what is asked until the pipe closes."""
    torch.set_num_threads(1)
    try:
        sampler = factory()
    except Exception as error:
        _answer(pipe, _told(error))
        return
    _answer(pipe, None)
    requests: Requests = SimpleQueue()
    threading.Thread(target=_receive_into, args=(pipe, requests), daemon=True).start()
    try:
        _Child(pipe, sampler, requests).run()
    except (_Closed, OSError, KeyboardInterrupt):
        pass
    finally:
        sampler.close()


def _receive_into(pipe: Connection, requests: Requests) -> None:
    """Keep the pipe empty, so that parent and child never wait for each other to read."""
    try:
        while True:
            requests.put(pickle.loads(pipe.recv_bytes()))
    except (EOFError, OSError):
        requests.put(("close", None))


class _Closed(Exception):  # noqa: N818
    """The parent wants no more."""


class _Stopped(Exception):  # noqa: N818
    """The parent wants no more of this batch."""


class _Child:
    """What the child does with each request."""

    def __init__(self, pipe: Connection, sampler: Sampler, requests: Requests) -> None:
        self._pipe = pipe
        self._sampler = sampler
        self._requests = requests
        self._failed: SamplerError | ConfigError | None = None
        """What became of an update that nobody waited for."""

    def run(self) -> None:
        """Answer requests until `_Closed`."""
        while True:
            what, content = self._requests.get()
            if what == "close":
                raise _Closed
            if what == "arrival":  # it came when the batch that it was sent into was just done
                self._take_over(content)
                continue
            if what == "stop":  # as late
                continue
            try:
                answer = self._done(what, content)
            except _Stopped:
                answer = None
            except Exception as error:
                answer = _told(error)
            _answer(self._pipe, answer)

    def _done(self, what: str, content: Any) -> Any:
        if what == "contract":
            return self._sampler.contract()
        if what == "sync":
            self._failed = None
            return self._sampler.sync(content)
        if self._failed is not None:
            raise self._failed
        prompts, length, how, state = content
        generator = torch.Generator()
        generator.set_state(state)
        rollout = self._sampler.generate(prompts, length, **how, generator=generator, arrivals=self._arrival)
        return rollout, generator.get_state()

    def _arrival(self) -> Update | None:
        try:
            what, content = self._requests.get_nowait()
        except Empty:
            return None
        if what == "close":
            raise _Closed
        if what == "stop":
            raise _Stopped
        return content  # type: ignore[no-any-return]

    def _take_over(self, update: Update) -> None:
        try:
            self._sampler.sync(update)
        except Exception as error:
            self._failed = _told(error)


def _answer(pipe: Connection, answer: Any) -> None:
    pipe.send_bytes(pickle.dumps(answer))


def _told(error: Exception) -> SamplerError | ConfigError:
    """The error as the parent can raise it."""
    if type(error) in (SamplerError, SyncError, ConfigError):
        return error  # type: ignore[return-value]
    return SamplerError(f"sampler: {type(error).__name__}: {error}")
