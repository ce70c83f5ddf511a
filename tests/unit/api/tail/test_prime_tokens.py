"""prime-rl's token exports, built by the columns of its writer (prime-rl 0.8.0, `token_export.py`)."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.api.tail.frameworks import detected
from trimtab.api.tail.frameworks.prime_rl import PRIME_RL
from trimtab.api.tail.prime_tokens import PrimeTokens
from trimtab.api.tail.source import TailError
from trimtab.api.tail.sources import open_source
from trimtab.api.tail.summaries import mapped

RNG = np.random.default_rng(0)


def sequence(tokens: int, **columns: list[Any]) -> dict[str, Any]:
    """A sequence whose second half carries loss."""
    trainer = RNG.normal(-1, 0.2, tokens)
    sampler = trainer + RNG.normal(0, 0.1, tokens)
    log_ratio = trainer - sampler
    return {
        "schema_version": 1,
        "position_ids": list(range(tokens)),
        "loss_mask": [i >= tokens // 2 for i in range(tokens)],
        "trainer_logprobs": trainer.tolist(),
        "inference_logprobs": sampler.tolist(),
        "entropy": RNG.uniform(0, 2, tokens).tolist(),
        "log_importance_ratio": log_ratio.tolist(),
        "mismatch_kl": (np.exp(log_ratio) - log_ratio - 1).tolist(),
        **columns,
    }


def export(folder: Path, step: int, ranks: list[list[dict[str, Any]]], *, at: int, whole: bool = True) -> None:
    where = folder / f"step_{step}"
    where.mkdir(parents=True, exist_ok=True)
    for rank, sequences in enumerate(ranks):
        (where / f"rank_{rank}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in sequences))
    if whole:
        (where / "STABLE").touch()
        os.utime(where / "STABLE", (at, at))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "token_exports"


def test_a_step_is_the_means_of_its_live_tokens(folder: Path) -> None:
    ranks = [[sequence(10), sequence(7)], [sequence(12)]]
    export(folder, 3, ranks, at=1_796_000_000)
    (row,) = open_source(folder).read({}).rows
    live = [(one, i) for rank in ranks for one in rank for i, kept in enumerate(one["loss_mask"]) if kept]
    assert (row.step, row.time) == (3, 1_796_000_000.0)
    for column, name in [("entropy", "entropy/mean"), ("mismatch_kl", "mismatch_kl/mean")]:
        assert row.values[name] == pytest.approx(np.mean([one[column][i] for one, i in live]), rel=1e-12)
    assert row.values["token_export/tokens"] == len(live)
    assert detected(row.values) is PRIME_RL
    found = mapped(dict(row.values), PRIME_RL)
    assert set(found.core) == {"entropy", "mismatch_kl", "mismatch_mean"}


def test_the_first_token_is_made_up_and_null_is_counted(folder: Path) -> None:
    one = sequence(4, loss_mask=[True] * 4, entropy=[math.log(32000), 0.5, None, 1.5])
    one["trainer_logprobs"][3] = None
    export(folder, 0, [[one]], at=1_796_000_000)
    values = PrimeTokens(folder).read({}).rows[0].values
    assert values["entropy/mean"] == 1.0
    assert values["token_export/entropy_missing"] == values["token_export/trainer_logprobs_missing"] == 1.0


def test_steps_come_one_by_one_once_they_are_whole(folder: Path) -> None:
    for step in range(3):
        export(folder, step, [[sequence(4)]], at=1_796_000_000 + step)
    export(folder, 3, [[sequence(4)]], at=0, whole=False)
    source, place, steps = PrimeTokens(folder), {}, []
    for _ in range(5):
        piece = source.read(place)
        place = dict(piece.place)
        steps += [row.step for row in piece.rows]
    assert steps == [0, 1, 2]
    assert source.end() == place
    export(folder, 1, [[sequence(4)]], at=1_796_000_100)  # resumed from 0
    again = source.read(place)
    assert [(row.step, row.restart) for row in again.rows] == [(None, True), (1, False)]
    assert source.read(again.place).rows == ()  # step 2 is of the attempt before
    export(folder, 2, [[sequence(4)]], at=1_796_000_200)
    assert [row.step for row in source.read(again.place).rows] == [2]


def test_what_is_no_sequence_is_counted(folder: Path) -> None:
    export(folder, 0, [[sequence(4)]], at=1_796_000_000)
    with (folder / "step_0" / "rank_1.jsonl").open("w") as file:
        file.write('{"loss_mask": [true]}\n[]\nno JSON\n' + json.dumps(sequence(6, position_ids=[0])) + "\n")
    piece = PrimeTokens(folder).read({})
    assert piece.skipped.damaged == 4
    assert piece.rows[0].values["token_export/tokens"] == 2.0
    with pytest.raises(TailError, match="is not there"):
        PrimeTokens(folder / "none").read({})


def test_a_number_that_no_float_holds_costs_its_sequence_alone(folder: Path) -> None:
    export(folder, 0, [[sequence(4), sequence(6, entropy=[10**350] * 6)]], at=1_796_000_000)
    piece = PrimeTokens(folder).read({})
    assert piece.skipped.damaged == 1
    assert piece.rows[0].values["token_export/tokens"] == 2.0  # none of the second's


def test_a_folder_with_another_name_is_no_step(folder: Path) -> None:
    export(folder, 3, [[sequence(4)]], at=1_796_000_000)
    for name in ("step_\N{SUPERSCRIPT TWO}", "step_04", "step_", "step_-1", "step_1e3", f"step_{2**53}", "step_\u0665"):
        (folder / name).mkdir()
        (folder / name / "STABLE").touch()
    source = PrimeTokens(folder)
    piece = source.read({})
    assert ([row.step for row in piece.rows], piece.more) == ([3], False)
    assert source.end() == piece.place
