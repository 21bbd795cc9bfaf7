"""The schema of the first release."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop every table."""
    op.execute(
        """drop table durations, marks, webhook_deliveries, assets, waves, upstream_calls, task_events, tasks,
                      api_keys, users"""
    )
