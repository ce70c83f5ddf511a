"""A service with something in it of every kind: what a client may find."""

from __future__ import annotations

from agent_runs import Plant, step_summary
from api_runs import drive

from trimtab.api.client import Client


def populate(client: Client) -> None:
    """Jobs that are well, ill, killed, archived, and waiting for an answer.

    The one that is ill has the name that the examples of the API's description use.
    """
    client.register("cliff-auto")
    drive(client, Plant(seed=0, noisy_from=0, job="cliff-auto"), 15)
    client.acknowledge("cliff-auto", "mismatch", reason="on it", issuer="ada")
    client.silence("cliff-auto", "asymmetry", reason="known", steps=50)
    client.register("waiting", mode="approve")
    drive(client, Plant(seed=1, noisy_from=0, job="waiting"), 12)
    client.register("steered", mode="auto")
    drive(client, Plant(seed=2, noisy_from=5, job="steered"), 20)
    drive(client, Plant(seed=3, job="well"), 12)
    client.patch_controls("well", {"clip_high": 0.3}, reason="wider")
    drive(client, Plant(seed=4, job="killed"), 3)
    client.kill("killed", reason="hands off")
    client.ingest(step_summary(0, job="done", attempt=3))
    client.archive("done", reason="it has finished")
    client.register("empty")


JOBS = ("cliff-auto", "waiting", "steered", "well", "killed", "done", "empty")
