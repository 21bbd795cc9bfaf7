"""gunicorn's configuration: Settings translated into gunicorn's names, as celeryconfig does for Celery.

Named on the command line (`--config python:api.gunicorn_conf`), so that no gunicorn.conf.py of the current folder is
read. No logic, but for SIGHUP: gunicorn's own way starts every process anew, and ends for good if the file is broken.
"""

import os
import signal
from typing import Any

from models.settings import Settings

_settings = Settings.load(os.environ)

# PORT is what platforms set, and how `weir up --port` says it.
bind = f"{_settings.server.host}:{os.environ.get('PORT') or _settings.server.port}"
worker_class = "gthread"
workers = _settings.server.processes
threads = _settings.server.threads
timeout = 30  # seconds without a sign of life of a whole process, not of a request; then it is replaced
graceful_timeout = 10  # seconds for answers under way when asked to stop
keepalive = 5  # seconds an idle connection stays open
control_socket_disable = True  # gunicorn 27 puts one into the user's home
accesslog = None  # our own log has a line per request, without query strings
errorlog = "-"
capture_output = False
proc_name = "weir-web"
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(_settings.env.metrics_dir)  # where the library looks


def post_fork(_server: Any, _worker: Any) -> None:  # noqa: ANN401  gunicorn ships no types
    """Before the app is loaded: what this process counts goes where any process of this host can show it."""
    from models import metrics  # noqa: PLC0415  gunicorn reads this file before it forks

    metrics.share(_settings.env.metrics_dir)


def when_ready(server: Any) -> None:  # noqa: ANN401  gunicorn ships no types
    """SIGHUP to the master goes to every process that serves."""
    signal.signal(signal.SIGHUP, lambda *_: server.kill_workers(signal.SIGHUP))


def post_worker_init(worker: Any) -> None:  # noqa: ANN401  same
    """There it has the settings read anew, at the next request."""
    from api.parts import live  # noqa: PLC0415  gunicorn reads this file before it forks

    signal.signal(signal.SIGHUP, lambda *_: live(worker.wsgi).hurry())
