"""Databases as older versions left them: made by their own migrations, filled by statements in their own schema."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

from agent_runs import step_summary
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

import trimtab.storage.migrations
from trimtab.agent.config import AgentConfig
from trimtab.agent.signals import read_all
from trimtab.agent.state import OperatorAction, OperatorVerb
from trimtab.storage.codec import ACTION, CONFIG, SUMMARY
from trimtab.storage.database import Database

RELEASED = ("0001", "0002")
"""Schemas before the present one."""
KINDS = {math.inf: "+inf", -math.inf: "-inf"}


def migrated_to(database: Database, revision: str) -> None:
    """Bring an empty database to the schema of an older version."""
    config = Config()
    config.set_main_option("script_location", str(Path(trimtab.storage.migrations.__file__).parent))
    with database.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def payloads() -> list[tuple[str, str, int | None, int | None]]:
    """Kind, JSON, attempt and step of the ledger's rows."""
    scalars = [{"loss": 0.5, "odd": math.nan}, {"loss": math.inf}, {"loss": -math.inf, "é": 1e-300}]
    summaries = [
        step_summary(step, attempt=attempt, update=([-0.5, 0.1], [0.2]), entropy=0.4, scalars=scalars[step % 3])
        for attempt in (1, 2)
        for step in range(12)
    ]
    action = OperatorAction(
        job="run", verb=OperatorVerb.PATCH_CONTROLS, issuer="ada", reason="why", overrides={"clip_low": 0.1}
    )
    rows: list[tuple[str, str, int | None, int | None]] = [
        ("summary", SUMMARY.encode(summary), summary.attempt, summary.step) for summary in summaries
    ]
    # Another version's order of keys, spaces and number format, which the upgrade has to leave as they are.
    kind, first, attempt, step = rows[0]
    rows[0] = (kind, json.dumps(json.loads(first), sort_keys=True, indent=1), attempt, step)
    rows.insert(5, ("operator", ACTION.encode(action), None, None))
    return rows


def fill(database: Database, revision: str) -> None:
    """Two jobs with ledgers, events, signals, states, and one summary in quarantine."""
    with database.write() as connection:
        for job_id, job in enumerate(("run", "other"), start=1):
            connection.execute(
                text("INSERT INTO jobs (id, name, config, created_at) VALUES (:id, :name, :config, 1.5)"),
                {"id": job_id, "name": job, "config": CONFIG.encode(AgentConfig())},
            )
            _fill_job(connection, job_id, job)
            state = {"job_id": job_id, "state": '{"an": "old one"}'}
            if revision == "0001":
                connection.execute(text("INSERT INTO run_states VALUES (:job_id, 3, :state)"), state)
            else:
                connection.execute(text("INSERT INTO run_states VALUES (:job_id, 'older', :state)"), state)
        if database.dialect == "postgresql":
            connection.execute(text("SELECT setval(pg_get_serial_sequence('jobs', 'id'), 2)"))


def _fill_job(connection: Connection, job_id: int, job: str) -> None:
    for seq, (kind, payload, attempt, step) in enumerate(payloads(), start=1):
        payload = payload.replace('"job":"run"', f'"job":"{job}"').replace('"job": "run"', f'"job": "{job}"')
        canonical = json.dumps(json.loads(payload), sort_keys=True, separators=(",", ":"))
        rank = None if attempt is None else 0
        row = {"job": job_id, "seq": seq, "kind": kind, "attempt": attempt, "step": step, "rank": rank}
        row |= {"payload": payload, "digest": hashlib.sha256(canonical.encode()).hexdigest(), "at": 100.0 + seq}
        columns = "job_id, seq, kind, attempt, step, rank, payload, digest, received_at"
        values = ":job, :seq, :kind, :attempt, :step, :rank, :payload, :digest, :at"
        connection.execute(text(f"INSERT INTO ledger ({columns}) VALUES ({values})"), row)
        event = {"job": job_id, "seq": seq, "step": step or 0, "attempt": attempt or 0}
        connection.execute(
            text(
                "INSERT INTO events (job_id, number, seq, kind, attempt, step, message, detail) "
                "VALUES (:job, :seq, :seq, 'proposed', :attempt, :step, 'é', '{\"a\": \"NaN\"}')"
            ),
            event,
        )
        if kind == "summary":
            _fill_signals(connection, job_id, payload)
    quarantined = {"job": job_id, "payload": '{"other": "é"}'}
    connection.execute(
        text(
            "INSERT INTO quarantine (job_id, seq, digest, payload, received_at) "
            f"VALUES (:job, 2, '{'d' * 64}', :payload, 7.0)"
        ),
        quarantined,
    )


def signals_of(payload: str) -> dict[str, float]:
    """What an older version drew of a summary: the signals of today and the trainer's own scalars."""
    summary = SUMMARY.decode(payload)
    return {**summary.scalars, **{name: value for name, value in read_all(summary).items() if value is not None}}


def _fill_signals(connection: Connection, job_id: int, payload: str) -> None:
    summary = SUMMARY.decode(payload)
    for name, value in signals_of(payload).items():
        kind = "nan" if math.isnan(value) else KINDS.get(value, "finite")
        row = {"job": job_id, "name": name, "attempt": summary.attempt, "step": summary.step, "kind": kind}
        row["value"] = value if kind == "finite" else None
        connection.execute(
            text(
                "INSERT INTO signals (job_id, name, attempt, step, value, kind) "
                "VALUES (:job, :name, :attempt, :step, :value, :kind)"
            ),
            row,
        )
