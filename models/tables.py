"""The schema as SQLAlchemy tables: columns with unit, constraints by name, partial indexes with their one purpose.

Statements live in store, line, accounts and ledger; this module only describes. alembic's migrations make it, and
`alembic check` proves that the two agree. All times are aware and are set by the database's clock.
"""

from __future__ import annotations

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    DateTime,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB, UUID

from models.fields import Kind
from models.lifecycle import FINAL, Stage, Status

METADATA = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ix": "%(table_name)s_%(column_0_name)s_idx",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
    }
)
_at = DateTime(timezone=True)
_now = func.now()


def _in(column: str, words: object) -> str:
    listed = ", ".join(f"'{word}'" for word in sorted(str(w) for w in words))  # type: ignore[attr-defined]
    return f"{column} in ({listed})"


users = Table(
    "users",
    METADATA,
    Column("id", UUID, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("running_limit", Integer, doc="tasks RUNNING at one moment; null: the configuration's"),
    Column("active_limit", Integer, doc="tasks PENDING or RUNNING at one moment; null: the configuration's"),
    Column("submits_per_minute", Integer, doc="null: the configuration's"),
    Column("created_at", _at, nullable=False, server_default=_now),
)

api_keys = Table(
    "api_keys",
    METADATA,
    Column("id", UUID, primary_key=True),
    Column("user_id", UUID, ForeignKey("users.id"), nullable=False),
    Column("name", Text, nullable=False, server_default=""),
    Column("prefix", Text, nullable=False, doc="what is shown of the key: `wk_` and 4 characters"),
    Column("digest", LargeBinary, nullable=False, unique=True, doc="HMAC-SHA256 of the key under WEIR_SECRET"),
    Column("scopes", ARRAY(Text), nullable=False),
    Column("models", ARRAY(Text), doc="the only models it may ask for; null: all"),
    Column("created_at", _at, nullable=False, server_default=_now),
    Column("expires_at", _at, doc="null: never"),
    Column("revoked_at", _at),
    Column("last_used_at", _at, doc="written at most once a minute"),
)

tasks = Table(
    "tasks",
    METADATA,
    Column("id", UUID, primary_key=True, doc="UUIDv7, so that the primary key is also the order of creation"),
    Column("user_id", UUID, ForeignKey("users.id"), nullable=False),
    Column("key_id", UUID, ForeignKey("api_keys.id"), doc="the API key that asked"),
    Column("type", Text, nullable=False),
    Column("status", Text, nullable=False, doc="lifecycle.Status; written by store.apply and nothing else"),
    Column("stage", Text, doc="lifecycle.Stage, set if and only if RUNNING"),
    Column("version", Integer, nullable=False, doc="+1 with every transition; the fence of every wake-up"),
    Column("attempt", Integer, nullable=False, server_default="1", doc="+1 with every restart"),
    # what was asked
    Column("order_id", Text, nullable=False, server_default=""),
    Column("idempotency_key", Text),
    Column("fingerprint", LargeBinary, doc="SHA-256 of the canonical request; set with the key"),
    Column("priority", SmallInteger, nullable=False, server_default="1", doc="0 high, 1 normal, 2 low"),
    Column("model", Text, nullable=False),
    Column("provider", Text, nullable=False),
    Column("credential", Text, doc="the one its job is bought with, as models.seats calls it; null: the first"),
    Column("seat", Text, Computed("provider || coalesce(':' || credential, '')", persisted=True), doc="models.seats"),
    Column("provider_model", Text, nullable=False, doc="the vendor's name of the model"),
    Column("input", JSONB, nullable=False, doc="as asked"),
    Column("effective", JSONB, nullable=False, doc="as sent upstream and as priced"),
    Column("adjustments", JSONB, nullable=False, server_default="[]"),
    Column("metadata", JSONB, nullable=False, server_default="{}"),
    Column("strict", Boolean, nullable=False, server_default=text("false"), doc="the caller lets nothing be left out"),
    Column("pinned", Boolean, nullable=False, server_default=text("false"), doc="the caller named the provider"),
    Column("calls_back", Boolean, nullable=False, server_default=text("false"), doc="the vendor was given a callback"),
    Column("replay_count", Integer, nullable=False, server_default="0", doc="times the caller repeated its key"),
    Column("callback_url", Text),
    Column("deadline_s", Integer, nullable=False, doc="seconds granted; a restart counts them anew"),
    Column("price_micros", BigInteger, nullable=False, server_default="0", doc="per image or second, fixed at POST"),
    Column("currency", Text, nullable=False, server_default="USD"),
    # where it stands
    Column("wake_at", _at, doc="when it is next looked at; null: nobody needs to"),
    Column("rung_at", _at, doc="PENDING: when its wake-up was last sent; null: found no room, ring again"),
    Column("deadline_at", _at, nullable=False),
    Column("cancel_requested_at", _at, doc="set without raising version"),
    Column("cancel_answered_at", _at, doc="when the vendor said yes or no to it"),
    Column("rings", SmallInteger, nullable=False, server_default="0", doc="times rung in a row without a move"),
    Column("receipt", Text, doc="the vendor's id of the job"),
    Column("claimed_at", _at, doc="when this attempt was last claimed"),
    Column("claimed_by", UUID, doc="drawn anew by each claim: tells whose it is when its COMMIT was cut"),
    Column("submit_tries", Integer, nullable=False, server_default="0", doc="claims the vendor did not accept"),
    Column("tried", ARRAY(Text), nullable=False, server_default="{}", doc="providers that did not take this attempt"),
    Column("fetch_tries", Integer, nullable=False, server_default="0"),
    Column("fetch_starts", Integer, nullable=False, server_default="0", doc="fetches begun and not heard of again"),
    Column("fetch_until", _at, doc="until then one fetch is at work, and no copy of its wake-up may begin another"),
    Column("reconcile_tries", Integer, nullable=False, server_default="0"),
    Column("poll_count", Integer, nullable=False, server_default="0"),
    Column("failed_polls", Integer, nullable=False, server_default="0", doc="unreadable answers in a row"),
    Column("lost_polls", Integer, nullable=False, server_default="0", doc="`no such job` in a row"),
    Column("empty_polls", Integer, nullable=False, server_default="0", doc="`done` without a result in a row"),
    Column("last_error", Text, doc="the last unreadable answer, cleaned"),
    Column("progress", Double, doc="0 to 1; null when the vendor gives none"),
    Column("upstream_outputs", JSONB, doc="the vendor's links while fetching; cleared at the end"),
    Column("upstream_call_count", Integer, nullable=False, server_default="0", doc="submits that may be accepted"),
    Column("upstream_usage", JSONB, doc="the vendor's own usage block; never shown as money"),
    Column("retry_count", Integer, nullable=False, server_default="0", doc="claims after the first of all attempts"),
    # how it ended
    Column("outputs", JSONB, nullable=False, server_default="[]"),
    Column("partial", Boolean, nullable=False, server_default=text("false")),
    Column("missing", JSONB, nullable=False, server_default="[]", doc="why single outputs are not there"),
    Column("error_code", Text),
    Column("error_message", Text),
    Column("upstream_code", Text),
    Column("certain", Boolean, nullable=False, server_default=text("false"), doc="nothing is left at the vendor"),
    Column("risk", Boolean, nullable=False, server_default=text("false"), doc="upstream money may be lost"),
    Column("cost_micros", BigInteger, nullable=False, server_default="0"),
    Column("created_at", _at, nullable=False, server_default=_now),
    Column("started_at", _at),
    Column("finished_at", _at),
    Column("updated_at", _at, nullable=False, server_default=_now, doc="moves with every submit, poll and fetch"),
    CheckConstraint(_in("status", Status), name="status_known"),
    CheckConstraint(f"stage is null or {_in('stage', Stage)}", name="stage_known"),
    CheckConstraint("(stage is not null) = (status = 'RUNNING')", name="stage_iff_running"),
    CheckConstraint(f"(finished_at is not null) = ({_in('status', FINAL)})", name="finished_iff_final"),
    CheckConstraint(_in("type", Kind), name="type_known"),
    CheckConstraint("version > 0 and attempt > 0", name="counters_positive"),
    CheckConstraint("cost_micros >= 0 and price_micros >= 0", name="money_not_negative"),
    CheckConstraint("cost_micros = 0 or status = 'SUCCESS'", name="cost_only_for_success"),
    CheckConstraint("(error_code is not null) = (status in ('FAILED', 'TIMEOUT'))", name="error_iff_failed"),
    CheckConstraint("idempotency_key is null or fingerprint is not null", name="key_with_fingerprint"),
    UniqueConstraint("user_id", "order_id", "idempotency_key", name="tasks_idempotency_key"),
    # a job belongs to one task; an adapter's receipts are unique within its provider
    Index("tasks_receipt_key", "provider", "receipt", unique=True, postgresql_where=text("receipt is not null")),
    # claims and caps count these; one small index however many rows have ended
    Index("tasks_running_idx", "seat", "type", postgresql_where=text("status = 'RUNNING'")),
    Index(
        "tasks_waiting_idx",
        "provider",
        "type",
        "user_id",
        "priority",
        "id",
        postgresql_where=text("status = 'PENDING'"),
    ),
    Index("tasks_live_user_idx", "user_id", postgresql_where=text("status in ('PENDING', 'RUNNING')")),
    # waves, sweep and reconcile look for what is due
    Index("tasks_wake_idx", "wake_at", postgresql_where=text("wake_at is not null")),
    Index("tasks_deadline_idx", "deadline_at", postgresql_where=text("status in ('PENDING', 'RUNNING')")),
    Index("tasks_user_idx", "user_id", "id"),
    Index("tasks_finished_idx", "finished_at", postgresql_where=text("finished_at is not null")),
    # one for each lifetime of a key, so that what is kept longest is not walked through for what goes first
    Index(
        "tasks_key_success_idx",
        "finished_at",
        postgresql_where=text("idempotency_key is not null and status = 'SUCCESS'"),
    ),
    Index(
        "tasks_key_ended_idx",
        "finished_at",
        postgresql_where=text("idempotency_key is not null and status <> 'SUCCESS'"),
    ),
    Index("tasks_risk_idx", "id", postgresql_where=text("risk")),
)

task_events = Table(
    "task_events",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("task_id", UUID, ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", _at, nullable=False, server_default=_now),
    Column("reason", Text, nullable=False, doc="lifecycle.Reason, or `late` for what changed nothing"),
    Column("from_status", Text),
    Column("to_status", Text, nullable=False),
    Column("stage", Text),
    Column("detail", JSONB, nullable=False, server_default="{}", doc="never a prompt, a key or a link"),
    Index("task_events_task_idx", "task_id", "id"),
)

upstream_calls = Table(
    "upstream_calls",
    METADATA,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("task_ids", ARRAY(UUID), nullable=False, doc="a batch query is one line with all it asked about"),
    Column("provider", Text, nullable=False),
    Column("operation", Text, nullable=False),
    Column("started_at", _at, nullable=False),
    Column("ms", Integer, nullable=False, doc="milliseconds"),
    Column("http_status", SmallInteger),
    Column("verdict", Text, nullable=False, doc="`ok` or a FailureKind"),
    Column("request_id", Text, doc="the vendor's id of the call"),
    Column("error", Text, doc="cleaned, at most 200 characters"),
    Index("upstream_calls_task_ids_idx", "task_ids", postgresql_using="gin"),
    Index("upstream_calls_started_idx", "started_at", postgresql_using="brin"),
)

waves = Table(
    "waves",
    METADATA,
    Column("provider", Text, primary_key=True),
    Column("type", Text, primary_key=True),
    Column("version", Integer, nullable=False, server_default="1", doc="fences the chain as a task's does a task"),
    Column("wake_at", _at, doc="when the chain's next wake-up is due; null: asleep, nothing to poll"),
    Column("idle_rounds", Integer, nullable=False, server_default="0", doc="rounds in a row in which nothing ended"),
    Column("updated_at", _at, nullable=False, server_default=_now),
)

durations = Table(
    "durations",
    METADATA,
    Column("bucket", Text, primary_key=True, doc="provider, model, size or length: pollplan.bucket"),
    Column("counts", ARRAY(Integer), nullable=False, doc="pollplan.Histogram"),
    Column("updated_at", _at, nullable=False, server_default=_now),
)

assets = Table(
    "assets",
    METADATA,
    Column("task_id", UUID, ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True),
    Column("n", SmallInteger, primary_key=True, doc="0-based place among the outputs"),
    Column("attempt", Integer, nullable=False),
    Column("key", Text, nullable=False, doc="where storage has it"),
    Column("media_type", Text, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    Column("width", Integer, doc="pixels"),
    Column("height", Integer, doc="pixels"),
    Column("duration_s", Double, doc="seconds; null for pictures"),
    Column("created_at", _at, nullable=False, server_default=_now),
    Column("expires_at", _at, nullable=False),
    Column("removed_at", _at, doc="the bytes are gone, the record stays"),
    Index("assets_expiry_idx", "expires_at", postgresql_where=text("removed_at is null")),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    METADATA,
    Column("id", UUID, primary_key=True),
    Column("task_id", UUID, ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column("event", Text, nullable=False, doc="e.g. task.succeeded"),
    Column("version", Integer, nullable=False, doc="of the task, at the event"),
    Column("url", Text, nullable=False),
    Column("tries", SmallInteger, nullable=False, server_default="0"),
    Column("next_attempt_at", _at, doc="null: delivered or given up"),
    Column("delivered_at", _at),
    Column("last_error", Text),
    Column("created_at", _at, nullable=False, server_default=_now),
    UniqueConstraint("task_id", "version", name="webhook_deliveries_once"),
    Index("webhook_deliveries_due_idx", "next_attempt_at", postgresql_where=text("next_attempt_at is not null")),
)

marks = Table(
    "marks",
    METADATA,
    Column("name", Text, primary_key=True, doc="e.g. `sweep`: when it last ran"),
    Column("at", _at, nullable=False, server_default=_now),
    Column("detail", JSONB, nullable=False, server_default="{}"),
)
