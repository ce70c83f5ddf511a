"""Adapter for TRL's GRPOTrainer and AsyncGRPOTrainer (extra `trl`).

from trimtab.hooks.trl import attach

attach(trainer, "http://127.0.0.1:8787", job="my-run")
"""

from trimtab.hooks.trl.attach import attach
from trimtab.hooks.trl.panel import CONTROL_TABLE
from trimtab.hooks.trl.seams import SeamError

__all__ = ["CONTROL_TABLE", "SeamError", "attach"]
