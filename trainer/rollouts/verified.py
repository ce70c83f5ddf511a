"""No engine samples with weights that it was not seen to compute with.

Each set of weights is probed (see `probe`) with every layer in float32, and in the format that is sampled in. The first
would change what responses under way are computed in, since engines step all requests together; so where weights arrive
in flight, it waits until those responses are there, and is made before they are given away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from trimtab.hooks.contract import TensorContract
from trimtab.trainer.models.huggingface import HuggingFaceLM
from trimtab.trainer.rollouts.probe import Expected, Probe
from trimtab.trainer.rollouts.sampler import SyncError, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """How one engine is probed."""

    scores: Callable[[list[int]], Tensor]
    """[n - 1] log-prob of each of n tokens after those before it."""
    compute_exactly: Callable[[bool], None]
    """Compute in float32 in all layers from now on, or in their formats again; asked only where nothing is under way.
    Keys and values of before are not to be found afterwards."""


class Verification:
    """What is known of the weights that a sampler's engines took over last.

    Args:
        model: the trainer's, converted as the sampler's is.
        scorers: of the engines, by name.
        dtype: what they keep activations in.
        kv_format: what their key-value caches were started in.
    """

    def __init__(self, model: HuggingFaceLM, scorers: Mapping[str, Scorer], *, dtype: str, kv_format: str) -> None:
        self._probe = Probe(model, dtype=dtype)
        self._scorers = scorers
        self._kv_format = kv_format
        self._passed = False
        self._owed = False
        self._expected: tuple[Expected, Expected] | None = None
        """By the trainer, of the last weights: with all layers in float32, and in their formats."""
        self.probed: dict[str, float] = {}
        """Mean |difference| of the last probe of each engine, nats: with all layers in float32 once that was made."""

    @property
    def tokens(self) -> list[int]:
        """The fixed tokens."""
        return self._probe.tokens

    @contextmanager
    def taking_over(self, update: Update, *, idle: bool) -> Iterator[None]:
        """Within, the engines take over `update`; afterwards they are verified, except for what is left to `settle`
        because they are not `idle`.

        Raises:
            SyncError: they do not compute with it; or it has another `kv_format`, which is said before.
        """
        self._passed, self._owed = False, False
        if update.kv_format != self._kv_format:
            raise SyncError(
                f"kv_format: {update.kv_format!r} is not what vLLM was started with, {self._kv_format!r}; start it anew"
            )
        yield
        self._expected = self._probe.expected(update, exact=True), self._probe.expected(update)
        self._check(exactly=idle)
        self._owed, self._passed = not idle, True

    def settle(self) -> None:
        """Make the probe in float32 if it is still to be made; nothing may be under way.

        Raises:
            SyncError: an engine does not compute with its weights.
        """
        if self._owed:
            self._passed = False
            self._check(exactly=True)
            self._owed, self._passed = False, True

    def _check(self, *, exactly: bool) -> None:
        """Probe in the format that is sampled in last, so that it is seen to be on again."""
        assert self._expected is not None
        exact, live = self._expected
        for name, scorer in self._scorers.items():
            if exactly:
                try:
                    scorer.compute_exactly(True)
                    measured = scorer.scores(self.tokens)
                finally:
                    scorer.compute_exactly(False)
                self.probed[name] = exact.check(measured)
            difference = live.check(scorer.scores(self.tokens))
            if not exactly:
                self.probed[name] = difference

    def require(self) -> None:
        """Refuse to sample where there are no verified weights.

        Raises:
            SyncError: the last were not taken over, or not all of them.
        """
        if not self._passed:
            raise SyncError("sampler: the last weights were not taken over; sync before sampling")

    def contract(self) -> dict[str, TensorContract]:
        """What each weight is to be computed in, by the last update."""
        return self._probe.contract()
