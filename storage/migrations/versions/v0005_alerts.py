"""Endpoints, alerts and their deliveries.

Revision: 0005, after 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply it. What fires already is told of when it fires next: until now nobody was told."""
    op.create_table(
        "alerts",
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("phase", sa.String(16), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("starts_at", sa.Float(), nullable=False),
        sa.Column("ends_at", sa.Float(), nullable=True),
        sa.Column("worsened_at", sa.Float(), nullable=True),
        sa.Column("worsened_from", sa.String(16), nullable=True),
        sa.Column("silenced", sa.Boolean(), nullable=False),
        sa.Column("acknowledged_by", sa.Text(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_alerts_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "fingerprint", name="pk_alerts"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("changed_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_outbox_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_outbox"),
    )
    _create_endpoints()
    op.create_table(
        "alert_groups",
        sa.Column("endpoint_id", sa.String(32), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("told", sa.Text(), nullable=False),
        sa.Column("told_at", sa.Float(), nullable=True),
        sa.Column("due_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoints.id"], name="fk_alert_groups_endpoint_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_alert_groups_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("endpoint_id", "job_id", name="pk_alert_groups"),
    )
    op.create_index("ix_alert_groups_due_at", "alert_groups", ["due_at"])
    op.create_table(
        "deliveries",
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("message_id", sa.String(32), nullable=False),
        sa.Column("endpoint_id", sa.String(32), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=True),
        sa.Column("subject", sa.String(32), nullable=False),
        sa.Column("reason", sa.String(32), nullable=False),
        sa.Column("resolved", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("next_at", sa.Float(), nullable=True),
        sa.Column("settled_at", sa.Float(), nullable=True),
        sa.Column("answer", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["endpoint_id"], ["endpoints.id"], name="fk_deliveries_endpoint_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_deliveries_job_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("number", name="pk_deliveries"),
        sa.UniqueConstraint("message_id", name="uq_deliveries_message_id"),
    )
    for columns in (
        ["endpoint_id", "status", "next_at"],
        ["endpoint_id", "job_id", "status"],
        ["status", "settled_at"],
    ):
        op.create_index(f"ix_deliveries_{'_'.join(columns)}", "deliveries", columns)


def _create_endpoints() -> None:
    op.create_table(
        "endpoints",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("shape", sa.String(32), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("jobs", sa.Text(), nullable=False),
        sa.Column("severity", sa.String(16), nullable=False),
        sa.Column("kinds", sa.Text(), nullable=False),
        sa.Column("group_wait", sa.Float(), nullable=False),
        sa.Column("group_interval", sa.Float(), nullable=False),
        sa.Column("repeat_interval", sa.Float(), nullable=True),
        sa.Column("send_resolved", sa.Boolean(), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("previous_secret", sa.Text(), nullable=True),
        sa.Column("previous_until", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("not_before", sa.Float(), nullable=True),
        sa.Column("lease", sa.String(32), nullable=True),
        sa.Column("leased_until", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_endpoints"),
        sa.UniqueConstraint("name", name="uq_endpoints_name"),
    )
