"""Run states say which schema they are of. They are a cache: the old ones go, and each job's ledger is folded again.

Revision: 0002, after 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply it."""
    op.drop_table("run_states")
    op.create_table(
        "run_states",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("schema", sa.String(64), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_run_states_job_id"),
        sa.PrimaryKeyConstraint("job_id", name="pk_run_states"),
    )
