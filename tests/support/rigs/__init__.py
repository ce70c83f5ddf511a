"""One small trainer for each adapter, with the adapter in it: what the safety contract is checked on.

To add an adapter, write a `Rig` and name it in `RIGS`. TRL is itself. Those of frameworks that are not installed here
are stand-ins: the calls, names and shapes of the real one, as read in the version that the adapter names, around a loss
of four responses of six tokens.
"""

from __future__ import annotations

from rigs.areal import ArealRig
from rigs.base import Rig
from rigs.nemo_rl import NemoRlRig
from rigs.openrlhf import OpenRlhfRig
from rigs.prime_rl import PrimeRlRig
from rigs.skyrl import SkyRlRig
from rigs.slime import MilesRig, SlimeRig
from rigs.trl import TrlRig
from rigs.verl import VerlRig

RIGS: dict[str, type[Rig]] = {
    "verl": VerlRig,
    "prime_rl": PrimeRlRig,
    "slime": SlimeRig,
    "miles": MilesRig,
    "openrlhf": OpenRlhfRig,
    "skyrl": SkyRlRig,
    "nemo_rl": NemoRlRig,
    "areal": ArealRig,
    "trl": TrlRig,
}
