-- The schema of the first release.

CREATE TABLE durations (
    bucket TEXT NOT NULL,
    counts INTEGER[] NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT durations_pkey PRIMARY KEY (bucket)
);

CREATE TABLE marks (
    name TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    detail JSONB DEFAULT '{}' NOT NULL,
    CONSTRAINT marks_pkey PRIMARY KEY (name)
);

CREATE TABLE upstream_calls (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    task_ids UUID[] NOT NULL,
    provider TEXT NOT NULL,
    operation TEXT NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ms INTEGER NOT NULL,
    http_status SMALLINT,
    verdict TEXT NOT NULL,
    request_id TEXT,
    error TEXT,
    CONSTRAINT upstream_calls_pkey PRIMARY KEY (id)
);

CREATE INDEX upstream_calls_started_idx ON upstream_calls USING brin (started_at);

CREATE INDEX upstream_calls_task_ids_idx ON upstream_calls USING gin (task_ids);

CREATE TABLE users (
    id UUID NOT NULL,
    name TEXT NOT NULL,
    running_limit INTEGER,
    active_limit INTEGER,
    submits_per_minute INTEGER,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT users_pkey PRIMARY KEY (id),
    CONSTRAINT users_name_key UNIQUE (name)
);

CREATE TABLE waves (
    provider TEXT NOT NULL,
    type TEXT NOT NULL,
    version INTEGER DEFAULT '1' NOT NULL,
    wake_at TIMESTAMP WITH TIME ZONE,
    idle_rounds INTEGER DEFAULT '0' NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT waves_pkey PRIMARY KEY (provider, type)
);

CREATE TABLE api_keys (
    id UUID NOT NULL,
    user_id UUID NOT NULL,
    name TEXT DEFAULT '' NOT NULL,
    prefix TEXT NOT NULL,
    digest BYTEA NOT NULL,
    scopes TEXT[] NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    last_used_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT api_keys_pkey PRIMARY KEY (id),
    CONSTRAINT api_keys_user_id_fkey FOREIGN KEY(user_id) REFERENCES users (id),
    CONSTRAINT api_keys_digest_key UNIQUE (digest)
);

CREATE TABLE tasks (
    id UUID NOT NULL,
    user_id UUID NOT NULL,
    key_id UUID,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    stage TEXT,
    version INTEGER NOT NULL,
    attempt INTEGER DEFAULT '1' NOT NULL,
    order_id TEXT DEFAULT '' NOT NULL,
    idempotency_key TEXT,
    fingerprint BYTEA,
    priority SMALLINT DEFAULT '1' NOT NULL,
    model TEXT NOT NULL,
    provider TEXT NOT NULL,
    provider_model TEXT NOT NULL,
    input JSONB NOT NULL,
    effective JSONB NOT NULL,
    adjustments JSONB DEFAULT '[]' NOT NULL,
    metadata JSONB DEFAULT '{}' NOT NULL,
    calls_back BOOLEAN DEFAULT false NOT NULL,
    replay_count INTEGER DEFAULT '0' NOT NULL,
    callback_url TEXT,
    deadline_s INTEGER NOT NULL,
    price_micros BIGINT DEFAULT '0' NOT NULL,
    currency TEXT DEFAULT 'USD' NOT NULL,
    wake_at TIMESTAMP WITH TIME ZONE,
    rung_at TIMESTAMP WITH TIME ZONE,
    deadline_at TIMESTAMP WITH TIME ZONE NOT NULL,
    cancel_requested_at TIMESTAMP WITH TIME ZONE,
    cancel_answered_at TIMESTAMP WITH TIME ZONE,
    rings SMALLINT DEFAULT '0' NOT NULL,
    receipt TEXT,
    claimed_at TIMESTAMP WITH TIME ZONE,
    claimed_by UUID,
    submit_tries INTEGER DEFAULT '0' NOT NULL,
    fetch_tries INTEGER DEFAULT '0' NOT NULL,
    reconcile_tries INTEGER DEFAULT '0' NOT NULL,
    poll_count INTEGER DEFAULT '0' NOT NULL,
    failed_polls INTEGER DEFAULT '0' NOT NULL,
    lost_polls INTEGER DEFAULT '0' NOT NULL,
    empty_polls INTEGER DEFAULT '0' NOT NULL,
    last_error TEXT,
    progress DOUBLE PRECISION,
    upstream_outputs JSONB,
    upstream_call_count INTEGER DEFAULT '0' NOT NULL,
    upstream_usage JSONB,
    retry_count INTEGER DEFAULT '0' NOT NULL,
    outputs JSONB DEFAULT '[]' NOT NULL,
    partial BOOLEAN DEFAULT false NOT NULL,
    missing JSONB DEFAULT '[]' NOT NULL,
    error_code TEXT,
    error_message TEXT,
    upstream_code TEXT,
    certain BOOLEAN DEFAULT false NOT NULL,
    risk BOOLEAN DEFAULT false NOT NULL,
    cost_micros BIGINT DEFAULT '0' NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE,
    updated_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT tasks_pkey PRIMARY KEY (id),
    CONSTRAINT tasks_status_known_check CHECK (status in ('CANCELED', 'FAILED', 'PENDING', 'RUNNING', 'SUCCESS', 'TIMEOUT')),
    CONSTRAINT tasks_stage_known_check CHECK (stage is null or stage in ('fetching', 'generating', 'submitting')),
    CONSTRAINT tasks_stage_iff_running_check CHECK ((stage is not null) = (status = 'RUNNING')),
    CONSTRAINT tasks_finished_iff_final_check CHECK ((finished_at is not null) = (status in ('CANCELED', 'FAILED', 'SUCCESS', 'TIMEOUT'))),
    CONSTRAINT tasks_type_known_check CHECK (type in ('image', 'video')),
    CONSTRAINT tasks_counters_positive_check CHECK (version > 0 and attempt > 0),
    CONSTRAINT tasks_money_not_negative_check CHECK (cost_micros >= 0 and price_micros >= 0),
    CONSTRAINT tasks_cost_only_for_success_check CHECK (cost_micros = 0 or status = 'SUCCESS'),
    CONSTRAINT tasks_error_iff_failed_check CHECK ((error_code is not null) = (status in ('FAILED', 'TIMEOUT'))),
    CONSTRAINT tasks_key_with_fingerprint_check CHECK (idempotency_key is null or fingerprint is not null),
    CONSTRAINT tasks_idempotency_key UNIQUE (user_id, order_id, idempotency_key),
    CONSTRAINT tasks_user_id_fkey FOREIGN KEY(user_id) REFERENCES users (id),
    CONSTRAINT tasks_key_id_fkey FOREIGN KEY(key_id) REFERENCES api_keys (id)
);

CREATE INDEX tasks_deadline_idx ON tasks (deadline_at) WHERE status in ('PENDING', 'RUNNING');

CREATE INDEX tasks_finished_idx ON tasks (finished_at) WHERE finished_at is not null;

CREATE INDEX tasks_key_ended_idx ON tasks (finished_at) WHERE idempotency_key is not null and status <> 'SUCCESS';

CREATE INDEX tasks_key_success_idx ON tasks (finished_at) WHERE idempotency_key is not null and status = 'SUCCESS';

CREATE INDEX tasks_live_user_idx ON tasks (user_id) WHERE status in ('PENDING', 'RUNNING');

CREATE UNIQUE INDEX tasks_receipt_key ON tasks (provider, receipt) WHERE receipt is not null;

CREATE INDEX tasks_risk_idx ON tasks (id) WHERE risk;

CREATE INDEX tasks_running_idx ON tasks (provider, type) WHERE status = 'RUNNING';

CREATE INDEX tasks_user_idx ON tasks (user_id, id);

CREATE INDEX tasks_waiting_idx ON tasks (provider, type, user_id, priority, id) WHERE status = 'PENDING';

CREATE INDEX tasks_wake_idx ON tasks (wake_at) WHERE wake_at is not null;

CREATE TABLE assets (
    task_id UUID NOT NULL,
    n SMALLINT NOT NULL,
    attempt INTEGER NOT NULL,
    key TEXT NOT NULL,
    media_type TEXT NOT NULL,
    bytes BIGINT NOT NULL,
    sha256 BYTEA NOT NULL,
    width INTEGER,
    height INTEGER,
    duration_s DOUBLE PRECISION,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    removed_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT assets_pkey PRIMARY KEY (task_id, n),
    CONSTRAINT assets_task_id_fkey FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
);

CREATE INDEX assets_expiry_idx ON assets (expires_at) WHERE removed_at is null;

CREATE TABLE task_events (
    id BIGINT GENERATED ALWAYS AS IDENTITY,
    task_id UUID NOT NULL,
    version INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    reason TEXT NOT NULL,
    from_status TEXT,
    to_status TEXT NOT NULL,
    stage TEXT,
    detail JSONB DEFAULT '{}' NOT NULL,
    CONSTRAINT task_events_pkey PRIMARY KEY (id),
    CONSTRAINT task_events_task_id_fkey FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
);

CREATE INDEX task_events_task_idx ON task_events (task_id, id);

CREATE TABLE webhook_deliveries (
    id UUID NOT NULL,
    task_id UUID NOT NULL,
    event TEXT NOT NULL,
    version INTEGER NOT NULL,
    url TEXT NOT NULL,
    tries SMALLINT DEFAULT '0' NOT NULL,
    next_attempt_at TIMESTAMP WITH TIME ZONE,
    delivered_at TIMESTAMP WITH TIME ZONE,
    last_error TEXT,
    created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL,
    CONSTRAINT webhook_deliveries_pkey PRIMARY KEY (id),
    CONSTRAINT webhook_deliveries_once UNIQUE (task_id, version),
    CONSTRAINT webhook_deliveries_task_id_fkey FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
);

CREATE INDEX webhook_deliveries_due_idx ON webhook_deliveries (next_attempt_at) WHERE next_attempt_at is not null;
