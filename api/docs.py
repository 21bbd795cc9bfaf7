"""Root, /openapi.json, /docs (Swagger UI from our own files), /problems/<slug>: for people. No key, no foreign host.

The pages run under a Content-Security-Policy without any inline script; the start-up call is a file of its own.
"""

from __future__ import annotations

import hashlib
from html import escape
from pathlib import Path
from typing import Any

import flask_swagger_ui
from flask import Blueprint, Response, current_app, redirect, request, send_from_directory
from werkzeug.exceptions import NotFound

from api.errors import CATALOGUE, dumps, not_found
from api.openapi import task_request
from api.parts import parts

blp = Blueprint("docs", __name__)

_UI = Path(flask_swagger_ui.__file__).parent / "dist"
_OURS = Path(__file__).parent / "static"
_UI_FILES = frozenset(("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"))
_CSP = "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
_DOCUMENT = "weir-openapi"


def publish(document: dict[str, Any]) -> None:
    """Keep the finished document of the app being made, and the bytes that are served."""
    current_app.extensions[_DOCUMENT] = (parts(), document, dumps(document))


def _document() -> bytes:
    """The document as of now: presets may have changed since it was made."""
    made_for, document, body = current_app.extensions[_DOCUMENT]
    now = parts()
    if made_for is not now:
        document["components"]["schemas"]["TaskRequest"] = task_request(now.settings, now.presets)
        body = dumps(document)
        current_app.extensions[_DOCUMENT] = (now, document, body)
    return bytes(body)


@blp.get("/")
def home() -> Response:
    """Who opens the address in a browser finds the documentation."""
    return _page(redirect("/docs"))  # type: ignore[arg-type]  # Flask's redirect makes its own Response


@blp.get("/openapi.json")
def openapi_json() -> Response:
    """The document."""
    body = _document()
    response = Response(body, content_type="application/json", headers={"Cache-Control": "public, max-age=300"})
    response.set_etag(hashlib.sha256(body).hexdigest()[:32])
    return response.make_conditional(request)  # type: ignore[return-value]  # itself


@blp.get("/docs")
def docs() -> Response:
    """The page that shows it."""
    return _page(send_from_directory(_OURS, "docs.html"))


@blp.get("/docs/<name>")
def docs_file(name: str) -> Response:
    """The page's parts: Swagger UI's own, and ours that starts it."""
    if name in _UI_FILES:
        return _page(send_from_directory(_UI, name, max_age=86_400))
    if name == "docs.js":
        return _page(send_from_directory(_OURS, name, max_age=300))
    raise NotFound


@blp.get("/static/weir.js")
def browser_module() -> Response:
    """The module for browsers, docs/browser.md."""
    return _page(send_from_directory(_OURS, "weir.js", max_age=300))


@blp.get("/problems/<slug>")
def problem_page(slug: str) -> Response:
    """What a type of problem means, for people."""
    entry = CATALOGUE.get(slug)
    if entry is None:
        raise not_found()
    rows = (
        ("Status", str(entry.status)),
        ("Code", slug.replace("-", "_")),
        ("When", entry.when),
        ("May the same request work later", entry.retry),
    )
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    title = escape(entry.title)
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f"<h1>{title}</h1><dl>{listed}</dl>"
        '<p><a href="/docs">The API</a></p></html>'
    )
    return _page(Response(page, content_type="text/html; charset=utf-8"))


def _page(response: Response) -> Response:
    response.headers["Content-Security-Policy"] = _CSP
    return response
