"""HTTP in: the application's factory, wiring only. Knows Flask and marshmallow, nothing else does.

`create_app` opens no connection: gunicorn forks first, and the parts connect at their first use.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from flask import Flask

from models.settings import Settings


def create_app(settings: Settings | None = None, environ: Mapping[str, str] | None = None) -> Flask:
    """The WSGI application. `settings` None: from the environment, or from `environ`, whose file is then watched.

    Raises SettingsError listing all that keeps the API from working.
    """
    from api import docs, errors, files, http, metrics, ops, tasks  # noqa: PLC0415  Celery's configuration is read with tasks.bell
    from api.openapi import WeirApi, configure, describe  # noqa: PLC0415  same
    from api.parts import Parts, attach  # noqa: PLC0415  same
    from models.reload import Live  # noqa: PLC0415  same

    watched = environ or (os.environ if settings is None else {})
    live = Live(Parts.build, watched, settings)
    made = live.current()
    app = Flask(__name__, static_folder=None)
    app.config.update(configure(made.settings))
    http.prepare(app, made.settings)
    with app.app_context():
        attach(live)
        api = WeirApi(app)
        errors.register(app)
        for blueprint in (tasks.blp, files.blp, ops.blp, files.links, ops.health):
            api.register_blueprint(blueprint)
        describe(api, made.settings, made.presets)
        docs.publish(api.spec.to_dict())
    app.register_blueprint(docs.blp)
    app.register_blueprint(metrics.blp)
    return app
