"""Payloads are bytes, the signals of a step one row, states snapshots of a place in the ledger; jobs can be archived.

Revision: 0003, after 0002
"""

import hashlib
import json
import math
import struct
from itertools import groupby

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

CHUNK = 1000
"""Steps that are written at a time."""
KINDS = {"nan": math.nan, "+inf": math.inf, "-inf": -math.inf}


def upgrade() -> None:
    """Apply it."""
    op.add_column("jobs", sa.Column("archived_at", sa.Float(), nullable=True))
    for table in ("ledger", "quarantine"):
        with op.batch_alter_table(table) as batch:
            batch.alter_column(
                "payload",
                existing_type=sa.Text(),
                type_=sa.LargeBinary(),
                existing_nullable=False,
                postgresql_using="convert_to(payload, 'UTF8')",
            )
    op.drop_table("run_states")  # a cache: each job's ledger is folded again
    op.create_table(
        "run_states",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("schema", sa.String(64), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_run_states_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_run_states"),
    )
    sets = op.create_table(
        "signal_sets",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("names", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_signal_sets_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_signal_sets"),
        sa.UniqueConstraint("job_id", "digest", name="uq_signal_sets_job_id_digest"),
    )
    observations = op.create_table(
        "observations",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("set_id", sa.Integer(), nullable=False),
        sa.Column("values", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_observations_job_id"),
        sa.ForeignKeyConstraint(["set_id"], ["signal_sets.id"], name="fk_observations_set_id"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "step", name="pk_observations"),
        sqlite_with_rowid=False,
    )
    _pack(op.get_bind(), sets, observations)
    op.drop_table("signals")


def _pack(connection: sa.Connection, sets: sa.Table, observations: sa.Table) -> None:
    """Every step's signals into one row."""
    known: dict[tuple[int, str], int] = {}
    for job_id in connection.execute(sa.text("SELECT id FROM jobs ORDER BY id")).scalars().all():
        found = connection.execute(
            sa.text(
                "SELECT attempt, step, name, value, kind FROM signals WHERE job_id = :job ORDER BY attempt, step, name"
            ),
            {"job": job_id},
        ).all()
        rows = []
        for (attempt, step), signals in groupby(found, key=lambda row: (row[0], row[1])):
            observed = {name: KINDS.get(kind, value) for _, _, name, value, kind in signals}
            names = json.dumps(list(observed))
            if (job_id, names) not in known:
                values = {"job_id": job_id, "names": names, "digest": hashlib.sha256(names.encode()).hexdigest()}
                connection.execute(sets.insert().values(values))
                known[job_id, names] = connection.execute(sa.select(sets.c.id).filter_by(**values)).scalar_one()
            packed = struct.pack(f"<{len(observed)}d", *observed.values())
            rows.append(
                {
                    "job_id": job_id,
                    "attempt": attempt,
                    "step": step,
                    "set_id": known[job_id, names],
                    "values": packed,
                }
            )
        for start in range(0, len(rows), CHUNK):
            connection.execute(observations.insert(), rows[start : start + CHUNK])
