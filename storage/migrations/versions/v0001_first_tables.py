"""The first tables: jobs, ledger, quarantine, events, run states, signals.

Revision: 0001, after nothing
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("config", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("name", name="uq_jobs_name"),
    )
    op.create_table(
        "ledger",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("rank", sa.Integer(), nullable=True),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("received_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_ledger_job_id"),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_ledger"),
        sa.UniqueConstraint("job_id", "attempt", "step", "rank", name="uq_ledger_job_id_attempt_step_rank"),
    )
    op.create_table(
        "quarantine",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("received_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["job_id", "seq"], ["ledger.job_id", "ledger.seq"], name="fk_quarantine_job_id_seq"),
        sa.PrimaryKeyConstraint("job_id", "seq", "digest", name="pk_quarantine"),
    )
    op.create_table(
        "events",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id", "seq"], ["ledger.job_id", "ledger.seq"], name="fk_events_job_id_seq"),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_events"),
    )
    op.create_index("ix_events_job_id_kind_number", "events", ["job_id", "kind", "number"])
    op.create_table(
        "run_states",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_run_states_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_run_states"),
    )
    op.create_table(
        "signals",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("step", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_signals_job_id"),
        sa.PrimaryKeyConstraint("job_id", "name", "attempt", "step", name="pk_signals"),
        sqlite_with_rowid=False,
    )
