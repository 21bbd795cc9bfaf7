"""The simulator's web application: the dialects, the result files and the control routes.

May not know what a dialect says. A new dialect is one file with a `DIALECT` and one entry in
`DIALECTS`. Invariant: the control routes are counted nowhere and no fault strikes them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from flask import Blueprint, Flask, Response, request
from werkzeug.exceptions import HTTPException

from providers.sim import ark, comfyui, dashscope, fal, files, jimeng, openai, replicate, sdwebui
from providers.sim.config import Config
from providers.sim.ledger import now_s
from providers.sim.world import Dialect, World

DIALECTS: tuple[Dialect, ...] = (
    ark.DIALECT,
    comfyui.DIALECT,
    dashscope.DIALECT,
    fal.DIALECT,
    jimeng.DIALECT,
    openai.DIALECT,
    replicate.DIALECT,
    sdwebui.DIALECT,
)


def create_sim_app(config: Config | None = None) -> Flask:
    """Return the application; its `World` is `app.extensions["sim"]`."""
    world = World(config or Config(), tuple(dialect.name for dialect in DIALECTS))
    store = files.FileStore(world)
    app = Flask("weir-sim", static_folder=None)
    app.extensions["sim"] = world
    app.register_blueprint(files.blueprint(world, store))
    app.register_blueprint(_control(world))
    for dialect in DIALECTS:
        app.register_blueprint(dialect.blueprint(world, store.link), url_prefix=f"/{dialect.name}")
    app.register_error_handler(HTTPException, _http_error)
    return app


def _http_error(error: HTTPException) -> Response:
    status = error.code or 500
    message = f"{error.description} Dialects here: {', '.join(d.name for d in DIALECTS)}."
    return _json({"code": error.name.replace(" ", ""), "message": message}, status)


def _json(value: object, status: int = 200) -> Response:
    text = json.dumps(value, ensure_ascii=False) + "\n"
    return Response(text, status=status, mimetype="application/json")


def _bad(message: str) -> Response:
    return _json({"code": "BadControl", "message": message}, 400)


def _control(world: World) -> Blueprint:  # noqa: C901 - a list of routes, each of a few lines
    routes = Blueprint("control", __name__, url_prefix="/_sim")
    started = time.monotonic()

    @routes.get("/health")
    def health() -> Response:
        up_s = round(time.monotonic() - started, 3)
        return _json({"status": "ok", "up_s": up_s, "dialects": [d.name for d in DIALECTS]})

    @routes.get("/faults")
    def list_faults() -> Response:
        return _json(world.faults.as_json())

    @routes.post("/faults")
    def add_faults() -> Response:
        try:
            world.faults.add(_body())
        except ValueError as error:
            return _bad(str(error))
        return _json(world.faults.as_json())

    @routes.delete("/faults")
    def clear_faults() -> Response:
        world.faults.clear()
        return _json([])

    @routes.get("/config")
    def show_config() -> Response:
        return _json(world.config.as_json())

    @routes.post("/config")
    def change_config() -> Response:
        try:
            wanted = _body()
            if not isinstance(wanted, Mapping):
                return _bad("the body is no object; allowed: an object of settings")
            world.config = world.config.changed(wanted)
        except ValueError as error:
            return _bad(str(error))
        return _json(world.config.as_json())

    @routes.get("/ledger")
    def ledger() -> Response:
        try:
            since = float(request.args.get("since", 0))
        except ValueError:
            wrong = request.args["since"]
            return _bad(f"since is {wrong!r}; allowed: seconds since the epoch")
        return _json(_report(world, since, jobs=request.args.get("jobs") != "0"))

    @routes.post("/reset")
    def reset() -> Response:
        world.reset()
        return _json({"status": "ok"})

    @routes.post("/forget")
    def forget() -> Response:
        world.ledger.forget()
        return _json({"status": "ok"})

    return routes


def _body() -> object:
    """Return the request's JSON. Raises ValueError with a sentence of what is wrong with it."""
    try:
        return json.loads(request.get_data())
    except ValueError as error:
        message = f"the body is no JSON: {error}"
        raise ValueError(message) from error


def _report(world: World, since: float, *, jobs: bool) -> Mapping[str, object]:
    now = now_s()
    report: dict[str, object] = {
        "now": now,
        "totals": world.ledger.totals(),
        "in_flight": world.ledger.most_in_flight(),
    }
    if jobs:
        report["accepted"] = [job.as_json(now) for job in world.ledger.accepted(since)]
    return report
