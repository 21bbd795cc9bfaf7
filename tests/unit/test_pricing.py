"""Cost: whole micros, from what was sent and what came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.fields import Kind
from models.pricing import cost_micros
from tests.unit.sample_models import WAN, WEBUI, made

COUNT = st.integers(1, 64)
PRICE = st.integers(0, 10**12)


@given(COUNT, PRICE)
def test_image_task_costs_its_images(count: int, price: int) -> None:
    assert cost_micros(Kind.IMAGE, {"image_count": count}, price) == count * price


@given(COUNT, PRICE, st.integers(0, 100))
def test_fewer_images_cost_less_and_more_never_more(count: int, price: int, came: int) -> None:
    cost = cost_micros(Kind.IMAGE, {"image_count": count}, price, came)
    assert cost == min(count, came) * price
    assert cost <= cost_micros(Kind.IMAGE, {"image_count": count}, price)


@given(st.integers(1, 60), PRICE)
def test_video_costs_its_seconds_or_nothing(seconds: int, price: int) -> None:
    effective = {"duration_s": seconds}
    assert cost_micros(Kind.VIDEO, effective, price) == seconds * price
    assert cost_micros(Kind.VIDEO, effective, price, 1) == seconds * price
    assert cost_micros(Kind.VIDEO, effective, price, 0) == 0


def test_what_is_priced_is_what_is_sent() -> None:
    assert cost_micros(Kind.IMAGE, made(WEBUI, image_count=4).effective, 40_000) == 160_000
    assert cost_micros(Kind.VIDEO, made(WAN, duration_s=10).effective, 50_000) == 500_000


@pytest.mark.parametrize("wrong", [None, 1.0, "1", True, -1])
def test_quantity_that_is_not_a_whole_number_is_our_mistake(wrong: object) -> None:
    with pytest.raises(ValueError, match="image_count"):
        cost_micros(Kind.IMAGE, {"image_count": wrong}, 1)
    with pytest.raises(ValueError, match="duration_s"):
        cost_micros(Kind.VIDEO, {"duration_s": wrong}, 1)


def test_negative_price_or_delivery_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="price_micros"):
        cost_micros(Kind.IMAGE, {"image_count": 1}, -1)
    with pytest.raises(ValueError, match="delivered"):
        cost_micros(Kind.IMAGE, {"image_count": 1}, 1, -1)
