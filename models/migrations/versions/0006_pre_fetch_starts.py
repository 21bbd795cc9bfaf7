"""Fetches that began and were not heard of again."""

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the statements beside this file."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the columns."""
    op.execute("alter table tasks drop column fetch_starts, drop column fetch_until")
