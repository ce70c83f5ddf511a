"""Trainers that are Ray actors: every worker is set up by a hook, beside the one that the job has, and each actor
attaches as it would anywhere. `python ray_actors.py [URL]`; needs Ray.
"""

from __future__ import annotations

import os
import sys

import ray

from trimtab.hooks.ray_setup import with_trimtab

STEPS = 5


def jobs_own_hook() -> None:
    """What the job sets its workers up with already."""
    os.environ["JOBS_OWN_HOOK"] = "called"


@ray.remote
class Trainer:
    """One actor that trains."""

    def train(self, url: str) -> str:
        """Three lines, as in `plain.py`."""
        import signal

        import torch
        from tiny_policy import Policy, logprobs_of, sampled

        import trimtab

        policy, generator = Policy(), torch.Generator().manual_seed(0)
        emitter = trimtab.attach(url, job="actor")
        for step in range(STEPS):
            rollouts = sampled(policy, generator)
            emitter.observe(
                train_logprobs=logprobs_of(policy, rollouts.tokens),
                rollout_logprobs=rollouts.rollout_logprobs,
                advantages=rollouts.advantages,
                loss_mask=rollouts.loss_mask,
            )
            emitter.end_step(step=step, scalars={"reward_mean": rollouts.reward_mean})
        emitter.close()
        armed = signal.getsignal(signal.SIGURG) != signal.SIG_DFL
        return f"{STEPS} steps, armed: {armed}, the job's own hook: {os.environ.get('JOBS_OWN_HOOK')}"


def main(url: str) -> None:
    """Start Ray on this machine, with one actor."""
    here = os.path.dirname(os.path.abspath(__file__))
    own = {
        "worker_process_setup_hook": "ray_actors.jobs_own_hook",
        "env_vars": {"PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])},
    }
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, runtime_env=with_trimtab(own))
    print(ray.get(Trainer.remote().train.remote(url)))
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "memory:")
