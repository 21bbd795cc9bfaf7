"""Keys limited to models, and what a task needs to go to another provider of its model."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the statements beside this file."""
    op.execute(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the columns."""
    op.execute(
        """alter table api_keys drop column models;
           alter table tasks drop column strict, drop column pinned, drop column tried"""
    )
