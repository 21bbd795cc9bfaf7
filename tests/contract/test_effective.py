"""What is reported as sent, what is sent and what is priced are the same, for every model of every adapter.

A new vendor is here by being in VENDORS. The wire is what the simulator got, byte for byte, and what it understood.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO

import pytest
from flask import request
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from PIL import Image

from models.contract import FIELDS, Invalid, Kind, ModelBounds, Role, resolve
from models.presets import Presets
from models.pricing import cost_micros
from providers import PROVIDERS
from providers.inline import Picture
from providers.port import Job
from providers.sim import Simulator
from providers.sim.ledger import Order
from tests.contract.vendors import Bench, made

PLAIN = ("steps", "cfg_scale", "seed", "negative_prompt", "width", "height", "prompt")
SOON_S = 0.2  # a clip of whole frames may be this much longer or shorter
Asked = dict[str, object]


@dataclass
class Tap:
    """The simulator, and the bodies that it got."""

    sim: Simulator
    bodies: list[bytes] = field(default_factory=list)

    def sent(self, bench: Bench, model: str, effective: Mapping[str, object]) -> tuple[str, Order | None]:
        """What one submit says on the wire, and what the vendor made of it; None: it refused."""
        self.sim.world.ledger.reset()
        for name in (model, f"{model}:own/model"):  # a family by itself, where it means the model that is loaded
            if name not in bench.provider.capabilities.models:
                continue
            self.bodies.clear()
            bench.provider.submit(job(bench, name, effective))
            if self.bodies:
                break
        orders = [one.order for one in self.sim.world.ledger.accepted(0) if one.order.model != "own/model"]
        return b"\n".join(self.bodies).decode("utf-8", "replace"), orders[0] if orders else None


@pytest.fixture(scope="module")
def tap() -> Iterator[Tap]:
    """All vendors. Their jobs fail at once, so that no file is made."""
    sim = Simulator(image_s=(0, 0), video_s=(0, 0))
    found = Tap(sim)

    def note() -> None:
        if request.method == "POST":
            found.bodies.append(request.get_data())

    sim._app.before_request(note)  # it has no door for listeners, and needs none
    with sim:
        yield found


def picture() -> bytes:
    file = BytesIO()
    Image.new("RGB", (320, 320), "teal").save(file, "PNG")
    return file.getvalue()


PNG = picture()
LINK = "data:image/png;base64," + base64.b64encode(PNG).decode()


def job(bench: Bench, model: str, effective: Mapping[str, object]) -> Job:
    inputs = {n: Picture(content=PNG, media_type="image/png") for n in effective if FIELDS[n].format == "reference"}
    return Job(
        task_id="task_1", attempt=1, kind=bench.provider.capabilities.models[model].kind, model=model,
        effective=effective, inputs=inputs, reference="task_1.1", claimed_at_s=time.time(),
    )  # fmt: skip


def values(bounds: ModelBounds, name: str) -> st.SearchStrategy[object]:
    """Legal values of a field of this model, mostly; sizes come from its rule."""
    spec = bounds.spec(name)
    if spec.format == "reference":
        return st.just(LINK)
    if spec.type == "boolean":
        return st.booleans()
    if spec.choices is not None:
        return st.sampled_from(spec.choices)
    if spec.type == "string":
        return st.integers(10**6, 10**7).map("words {}".format)
    low, high = spec.minimum or 0, spec.maximum or 0
    if spec.type == "number":
        return st.integers(int(low * 4), int(high * 4)).map(lambda n: min(high, max(low, n / 4)))
    return st.integers(max(0, int(low)), int(high))


@st.composite
def requests(draw: st.DrawFn, bounds: ModelBounds) -> Asked:
    """A request for one model: what it needs, and some of what it takes."""
    sides = {"width", "height"}
    names = draw(st.sets(st.sampled_from(sorted(bounds.supports - sides - {"prompt"})), max_size=5))
    asked = {name: draw(values(bounds, name)) for name in sorted({*names, *bounds.required, "prompt"})}
    if bounds.size is not None and draw(st.booleans()):
        ratio, area = draw(st.sampled_from([(1, 1), (3, 4), (16, 9)])), draw(st.integers(2, 40)) * 100_000
        asked["width"], asked["height"] = bounds.size.fit(*ratio, area)
    return asked


def effective_of(bounds: ModelBounds, asked: Asked) -> dict[str, object]:
    """As it would be admitted; a request that is not is no example."""
    try:
        return resolve(bounds.kind, asked, bounds, Presets(), strict=False, draw=lambda low, _: low + 7).effective
    except Invalid:
        assume(False)  # noqa: FBT003  hypothesis's own
        raise


def pairs(bench: Bench) -> st.SearchStrategy[tuple[str, Asked, Asked]]:
    """A model, and two requests for it."""
    models = bench.provider.capabilities.models
    return st.sampled_from(sorted(models)).flatmap(
        lambda model: st.tuples(st.just(model), requests(models[model]), requests(models[model]))
    )


@pytest.mark.parametrize("vendor", sorted(PROVIDERS))
def test_effective_is_what_is_sent_and_what_is_priced(tap: Tap, vendor: str) -> None:
    bench = made(vendor, tap.sim.url)
    tap.sim.world.reset()
    tap.sim.world.faults.add([{"on": "submit", "do": {"fail": "Boom"}}])

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(pairs(bench))
    def check(pair: tuple[str, Asked, Asked]) -> None:
        model, one, other = pair
        bounds = bench.provider.capabilities.models[model]
        first, second = effective_of(bounds, one), effective_of(bounds, other)
        wire, order = tap.sent(bench, model, first)
        if not wire:
            assert "sampler" in first, "nothing was sent"  # which ones a server has, only the server knows
            return
        # A size that is sent as a ratio is in no digit on the wire: what the vendor understood is compared below.
        by_ratio = {"width", "height"} if order is not None and '"aspect_ratio"' in wire else set()
        assert [name for name in PLAIN if name in first.keys() - by_ratio and str(first[name]) not in wire] == []
        if order is not None:
            assert understood(bounds, first, order) == {}
        if first != second:  # nothing that differs is lost on the way
            assert tap.sent(bench, model, second)[0] != wire, (first, second)

    check()


def understood(bounds: ModelBounds, effective: Mapping[str, object], order: Order) -> dict[str, object]:
    """Where the vendor's understanding is not what is reported and priced: name -> (theirs, ours)."""
    ours: dict[str, object] = {"prompt": effective["prompt"], "priced": cost_micros(bounds.kind, effective, 1)}
    theirs: dict[str, object] = {"prompt": order.prompt}
    if bounds.kind is Kind.IMAGE:
        theirs["priced"] = order.n
    else:
        theirs["priced"] = round(order.duration_s - SOON_S / 2) if order.duration_s % 1 else order.duration_s
    if "seed" in effective:
        ours["seed"], theirs["seed"] = effective["seed"], order.seed
    size = (
        bounds.frame_px(effective) if bounds.kind is Kind.VIDEO else (effective.get("width"), effective.get("height"))
    )
    if size is not None and None not in size and "image" not in effective and "first_frame" not in effective:
        factor = float(str(effective.get("upscale_factor", 1)))
        ours["size"] = tuple(round(int(str(side)) * factor / 8) for side in size)
        theirs["size"] = tuple(round(side / 8) for side in (order.width, order.height))
    return {name: (theirs[name], value) for name, value in ours.items() if theirs[name] != value}


def test_every_parameter_that_is_tuned_is_looked_for() -> None:
    words = {"sampler", "fps"}  # the vendor's own spelling: only that they make a difference
    assert {name for name, spec in FIELDS.items() if spec.role is Role.TUNING} <= {*PLAIN, *words}
