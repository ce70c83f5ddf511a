"""Roll-ups, and ledgers that begin later.

Revision: 0006, after 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply it."""
    op.create_table(
        "histories",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("rolled", sa.Integer(), nullable=False),
        sa.Column("base_seq", sa.Integer(), nullable=False),
        sa.Column("base_schema", sa.String(64), nullable=False),
        sa.Column("base_state", sa.Text(), nullable=False),
        sa.Column("base_essentials", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_histories_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_histories"),
    )
    op.create_table(
        "signal_rollups",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("steps", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("alone", sa.Boolean(), nullable=False),
        sa.Column("set_id", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_signal_rollups_job_id"),
        sa.ForeignKeyConstraint(["set_id"], ["signal_sets.id"], name="fk_signal_rollups_set_id"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "level", "first", name="pk_signal_rollups"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "stretches",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("level", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_stretches_job_id"),
        sa.PrimaryKeyConstraint("job_id", "attempt", "level", "first", name="pk_stretches"),
        sqlite_with_rowid=False,
    )
