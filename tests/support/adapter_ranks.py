"""A rig on each of several ranks, and what came of it on one of them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from rigs import RIGS

from trimtab.hooks import worker
from trimtab.hooks.knobs import Knob
from trimtab.hooks.records import Command, StepSummary


@dataclass(frozen=True, kw_only=True)
class Ridden:
    """What one rank saw."""

    highs: list[float]
    """The upper clip width that the loss used, by step."""
    sent: list[StepSummary]
    attached: bool
    failures: int


def ride(name: str, steps: int, *, order: int = -1, broken: tuple[int, int] = (-1, -1), noted: int = -1) -> Ridden:
    """`steps` steps; an order to clip at 1/32 during step `order`; from step `broken[1]` on, rank `broken[0]` fails;
    before step `noted` rank 0 gets a SIGTERM, which it only notes."""
    from torch import distributed as dist

    before = signal.signal(signal.SIGTERM, lambda *_: None)
    rig = RIGS[name]()
    rig.attach()
    highs = []
    for step in range(steps):
        if rig.attachment is not None and step == order and dist.get_rank() == 0:
            attempt = rig.attachment.emitter.attempt
            rig.attachment.emitter.transport.set_command(  # type: ignore[attr-defined]
                Command(
                    job="run",
                    attempt=attempt,
                    generation=1,
                    overrides={"clip_high": 0.03125},
                    reason="test",
                    issuer="person",
                )
            )
        if rig.attachment is not None and (dist.get_rank(), step) == broken:
            rig.attachment.panel.knobs["lr_scale"] = Knob(get=_fail)
        if step == noted and dist.get_rank() == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        rig.step()
        highs.append(rig.used["high"])
    assert rig.attachment is not None
    sent = getattr(rig.attachment.emitter.transport, "sent", [])
    done = Ridden(highs=highs, sent=sent, attached=rig.attachment.attached, failures=rig.attachment.failures)
    rig.close()
    signal.signal(signal.SIGTERM, before)
    return done


def ride_with_order(name: str) -> Ridden:
    """Six steps, with an order in the third."""
    return ride(name, 6, order=2)


def ride_and_note(name: str) -> Ridden:
    """Six, with an order in the third, and a SIGTERM in the fourth that is only noted."""
    return ride(name, 6, order=2, noted=3)


def ride_and_break(name: str) -> Ridden:
    """Twelve, of which rank 1 fails from the sixth on."""
    return ride(name, 12, order=2, broken=(1, 5))


def meet(size: int, seconds: float, name: str) -> str:
    """Meet as one of `size` ranks; what came of it."""
    from torch import distributed as dist

    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
    try:
        worker._meet(store, size, None, seconds)
    except RuntimeError as error:
        return str(error)
    return "met"


def _fail() -> Any:
    raise KeyError("an attribute that another version does not have")
