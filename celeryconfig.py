"""Celery's configuration: Settings translated into Celery's names. No logic, no secret but the broker's address.

Provider credentials never come here: Flower and `inspect conf` show this module's values.
"""

import os

from kombu import Exchange, Queue

from models.settings import Settings

_settings = Settings.load(os.environ)

broker_url = _settings.env.broker_url or "redis://127.0.0.1:6379/0"
result_backend = None  # nobody reads results: the row is the result
task_ignore_result = True
accept_content = ["json"]  # never pickle: whoever can write to the broker would run code in workers
task_serializer = "json"

imports = (
    "tasks.steps",
    "tasks.waves",
    "tasks.sweep",
    "tasks.retention",
    "tasks.probing",
    "tasks.broker",
    "tasks.signals",
)  # no autodiscovery: it looks for other names
_names = ("image", "video", "default")
task_queues = [Queue(name) for name in _names]
task_routes = {
    "image.*": {"queue": "image"},
    "video.*": {"queue": "video"},
    "sweep": {"queue": "default"},
    "retention": {"queue": "default"},
    "probe": {"queue": "default"},
}
task_default_queue = "default"  # a forgotten route must not land on a provider's queue
task_create_missing_queues = False  # a mistyped queue fails at publish, not silently

worker_prefetch_multiplier = 1  # reserve only what can start: priorities need it
task_acks_late = False  # the claim refuses a second delivery anyway; late acks repeat long tasks on Redis
task_reject_on_worker_lost = False  # a task that kills its worker would go round without end
worker_cancel_long_running_tasks_on_connection_loss = False
broker_connection_retry_on_startup = True
broker_connection_max_retries = None  # the default gives up after 100 tries and exits
worker_eta_task_limit = None  # with a limit, immediate tasks starve behind waiting ones
worker_soft_shutdown_timeout = 10.0  # seconds; after SIGQUIT or a second signal
worker_send_task_events = False  # the Procfile's workers pass -E
task_send_sent_event = False  # costs two thirds more per publish and shows nothing that a row does not
worker_hijack_root_logger = False  # tasks/signals.py sets logging up
enable_utc = True
timezone = "UTC"

# In memory: no schedule file that goes stale, and a clock step back cannot silence it after a restart.
beat_scheduler = "celery.beat:Scheduler"
beat_schedule = {
    # No `expires`: a worker whose clock is ahead of beat's would throw every one of them away. What piled up while
    # no worker ran costs one look each, since all three see by the database's or Redis' clock that it was just done.
    "sweep": {"task": "sweep", "schedule": float(_settings.sweep.every_s), "kwargs": {"by_beat": True}},
    "probe": {"task": "probe", "schedule": 10.0},
    "retention": {"task": "retention", "schedule": 3600.0},
}

if not broker_url.startswith(("amqp:", "amqps:", "pyamqp:")):
    broker_transport_options = {
        "visibility_timeout": 900,  # seconds; at least ten times the longest countdown (30 s), or copies run
        "unacked_restore_interval": 10,  # seconds between looks for what a dead worker held; one ZRANGE each
        "unacked_restore_throttle": 1,  # the default looks only every tenth time
        "socket_timeout": 10,  # seconds; the default is for ever, on a frozen Redis
        "socket_connect_timeout": 3,
        "socket_keepalive": True,
        "health_check_interval": 10,  # seconds; a half-open connection is dropped after up to two of these; 25 is long
    }
else:
    # Quorum queues on a topic exchange: only so a countdown waits in the broker, and not unacknowledged in a worker's
    # memory with everything behind it (tasks/broker.py).
    task_default_exchange = "weir"
    task_default_exchange_type = "topic"
    task_default_queue_type = "quorum"
    _exchange = Exchange(task_default_exchange, type=task_default_exchange_type)
    task_queues = [
        Queue(name, _exchange, routing_key=name, queue_arguments={"x-queue-type": task_default_queue_type})
        for name in _names
    ]
    broker_transport_options = {"confirm_publish": True}  # without it a message is sent into the blue
    broker_heartbeat = 10  # seconds; a half-open connection is dropped after two of these
