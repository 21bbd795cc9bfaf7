"""Several credentials for one provider."""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the statements beside this file."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the columns."""
    op.execute(
        """drop index tasks_running_idx;
           alter table tasks drop column seat, drop column credential;
           create index tasks_running_idx on tasks (provider, type) where status = 'RUNNING'"""
    )
