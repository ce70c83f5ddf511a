"""A person pauses a trainer over HTTP and lets it go again; the service itself answers its questions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import trimtab
from trimtab.api.client import Client
from trimtab.api.service import Service
from trimtab.hooks.controls import Capabilities, Controls, Liveness
from trimtab.hooks.emitter import Emitter
from trimtab.hooks.pause import Patience
from trimtab.storage.values import EntryKind

CAN = Capabilities(controls={"paused": Liveness.LIVE, "clip_low": Liveness.LIVE})
QUICK = Patience(every=0.05, tries=200)


def trained_until_paused(emitter: Emitter, client: Client, steps: count[int]) -> int:
    """The last step before it is to wait."""
    for step in steps:
        paused = emitter.end_step(step=step).paused
        if paused:
            return step
        while not client.jobs():  # which the first summary makes
            pass
        if not client.controls("run").overrides:
            client.patch_controls("run", {"paused": True}, reason="have a look")
    raise AssertionError


def test_a_pause_by_hand_and_its_end(client: Client, service: Service, url: str) -> None:
    with (
        trimtab.attach(url, job="run", attempt=1, capabilities=CAN, patience=QUICK, spool=None) as emitter,
        ThreadPoolExecutor(1) as pool,
    ):
        last = trained_until_paused(emitter, client, count())
        waiting = pool.submit(emitter.wait_while_paused)
        view = client.patch_controls("run", {"paused": None, "clip_low": 0.1}, reason="seen enough")
        assert waiting.result(60) == Controls(clip_low=0.1)
        assert (emitter.generation, view.generation) == (2, 2)
        emitter.end_step(step=last + 1)
    entries = [one for one in service.store.recorded("run").entries if one.kind is EntryKind.SUMMARY]
    assert [one.step for one in entries] == list(range(last + 2))  # each step once, however often it asked
    assert emitter.dropped == 0
    assert client.controls("run").in_sync
