"""What every request and every answer has, whatever the route: an id, bounds on the body, headers of safety.

`X-Request-Id` is the caller's if it is harmless, else ours; it stands in every answer, problem and log line.
"""

from __future__ import annotations

import re
import time

from flask import Flask, Response, g, request
from uuid_utils.compat import uuid7
from werkzeug.middleware.proxy_fix import ProxyFix

from api import bodies, limits, shapes
from api.errors import Problem
from models import ids, metrics
from models.settings import Settings
from tasks import bell

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ANY_TYPE = frozenset(("outputs", "files", "docs", "health"))  # blueprints that answer with other things than JSON
_UNCOUNTED = frozenset(("/livez", "/readyz", "/metrics"))
_SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def prepare(app: Flask, settings: Settings) -> None:
    """Set the app up for all routes alike."""
    bell.impatient()
    app.config["MAX_CONTENT_LENGTH"] = bodies.MAX_BYTES
    app.url_map.strict_slashes = True
    app.url_map.redirect_defaults = False
    app.url_map.merge_slashes = False  # a redirect would lose a POST's body
    app.before_request(_begin)
    app.after_request(_end)
    if settings.server.trusted_proxies:
        n = settings.server.trusted_proxies
        app.wsgi_app = ProxyFix(app.wsgi_app, x_for=n, x_proto=n, x_host=n, x_port=n)  # type: ignore[method-assign]


def _begin() -> None:
    g.began = time.monotonic()
    given = request.headers.get("X-Request-Id", "")
    g.request_id = given if _REQUEST_ID.fullmatch(given) else ids.encode("req", uuid7())
    if request.blueprint is not None and request.blueprint not in _ANY_TYPE and shapes.excludes_json():
        raise Problem("not-acceptable", "This route answers with application/json.")


def _end(response: Response) -> Response:
    response.headers["X-Request-Id"] = g.get("request_id", "")
    for name, value in _SAFE.items():
        response.headers.setdefault(name, value)
    _count(response)
    return limits.headers(response)


def _count(response: Response) -> None:
    """A method or a path that we do not have is the caller's word, and no label."""
    route = request.url_rule.rule if request.url_rule else "unmatched"
    method = request.method if request.url_rule else "any"
    if route in _UNCOUNTED:
        return
    metrics.HTTP_REQUESTS.labels(method, route, response.status_code).inc()
    metrics.HTTP_SECONDS.labels(method, route).observe(time.monotonic() - g.get("began", time.monotonic()))
