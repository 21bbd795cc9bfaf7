"""Flower's configuration, run by Flower (`--conf=api/flower_conf.py`), never imported: its names become options.

Flower on its own listens on every interface and asks nobody for a password, and shows worker and task names under
/metrics even when it does ask. Here it refuses to start without a password and asks for it everywhere.
"""

import os

from flower.views.monitor import Healthcheck, Metrics
from tornado.web import authenticated

from models.settings import Settings

_auth = Settings.load(os.environ).env.flower_auth
if ":" not in _auth:
    raise SystemExit("Flower needs a password: set WEIR_FLOWER_AUTH to user:password")

basic_auth = [_auth]
address = "127.0.0.1"  # to let others in, put a proxy with TLS before it
persistent = False  # the file would hold every argument in plain text
purge_offline_workers = 60  # seconds; a restarted worker's old name does not stay for ever
inspect_timeout = 2000.0  # milliseconds

for _page in (Metrics, Healthcheck):
    _page.get = authenticated(_page.get)
