"""Judge drawn runs in as many processes as there are cores."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from trimtab.agent.config import AgentConfig
from trimtab.api.backtest.scenarios import SCENARIOS
from trimtab.api.backtest.trials import Plan, Trial, bases, trials
from trimtab.api.backtest.watching import Alert
from trimtab.api.errors import UserError
from trimtab.api.workers import Ended, Work, perform


class BacktestError(UserError):
    """A backtest that could not be carried out; the message says what to do."""


def judged(
    plan: Plan, chosen: Sequence[str], config: AgentConfig, *, jobs: int, on_end: Callable[[], None] = lambda: None
) -> list[Trial]:
    """Every chosen scenario at every onset and seed, judged under `config`.

    Args:
        plan: what is drawn.
        chosen: names of scenarios; the runs that they begin as, to which nothing happens, come with them.
        config: the agent's settings.
        jobs: processes at a time.
        on_end: called when a part of the work, of `parts(plan, chosen)`, is done.

    Raises:
        BacktestError: a process failed.
    """
    with tempfile.TemporaryDirectory(prefix="trimtab-backtest-") as folder:
        works = [
            Work(
                name=f"{base}, seed {seed}",
                function=_judge,
                arguments=(base, seed, tuple(chosen), plan, config, Path(folder) / f"{number}-{seed}.jsonl"),
                log=Path(folder) / f"{number}-{seed}.txt",
            )
            for seed in range(plan.seeds)
            for number, base in enumerate(_bases(chosen))
        ]

        def ended(one: Ended) -> None:
            if one.error:
                raise BacktestError(f"{one.name}: {one.error}")
            on_end()

        perform(works, jobs, preload=__name__, on_end=ended)
        lines = [line for path in sorted(Path(folder).glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [_trial(line) for line in lines]


def parts(plan: Plan, chosen: Sequence[str]) -> int:
    """Pieces in which the work is done."""
    return plan.seeds * len(_bases(chosen))


def _bases(chosen: Sequence[str]) -> list[str]:
    return bases([SCENARIOS[name] for name in chosen])


def _judge(base: str, seed: int, chosen: Sequence[str], plan: Plan, config: AgentConfig, out: Path) -> None:
    out.write_text("".join(json.dumps(asdict(one)) + "\n" for one in trials(base, seed, chosen, plan, config)))


def _trial(line: str) -> Trial:
    data = json.loads(line)
    return Trial(**{**data, "alerts": tuple(Alert(**alert) for alert in data["alerts"])})
