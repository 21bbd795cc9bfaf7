"""Run by alembic, never imported by the product."""

from alembic import context
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from models.tables import METADATA

_LOCK = 0x57454952_03  # two migrations at once wait for each other

url = make_url(context.config.attributes["url"]).set(drivername="postgresql+psycopg2")
with create_engine(url, poolclass=NullPool).connect() as connection:
    connection.execute(text("select pg_advisory_lock(:lock)"), {"lock": _LOCK})
    connection.commit()
    context.configure(connection=connection, target_metadata=METADATA, compare_server_default=False)
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
