"""The OpenAPI document against the live application: no 500, and no answer it does not describe."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.errors
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks

from tests.service import FOX, Service

pytest_plugins = ("tests.service_fixtures",)

NOT_ASKED = [
    checks.positive_data_acceptance,  # the body's schema holds for all models; one takes less, and a 422 says what
    checks.missing_required_header,  # there is none but the key, which `ignored_auth` looks after
    checks.use_after_free,  # these three follow sequences of calls; there is nothing that a DELETE removes
    checks.ensure_resource_availability,
    checks.object_level_authorization,
]
TOO_LARGE = 413  # documented, and no answer that the check of refusals knows


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["positive", "negative"])
def test_nothing_undocumented_comes_out(service: Service, mode: GenerationMode) -> None:
    known = [service.made({**FOX, "metadata": {"a": "b"}}) for _ in range(3)]
    service.become(known[1], "FAILED", error_message="no")
    service.become(known[2], "RUNNING", receipt="r")
    schema = schemathesis.openapi.from_wsgi("/openapi.json", service.app)
    answered: Counter[int] = Counter()
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]  # else the document is not valid, another test's matter

        @hypothesis.settings(
            max_examples=20,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:  # noqa: ANN401  schemathesis's
            if "task_id" in case.path_parameters and answered.total() % 4:  # else nearly all of them are unknown
                case.path_parameters["task_id"] = known[answered.total() % 4 - 1]
            response = case.call(headers=service.signed())
            large = [checks.negative_data_rejection] if response.status_code == TOO_LARGE else []
            case.validate_response(response, headers=service.signed(), excluded_checks=NOT_ASKED + large)
            answered[response.status_code] += 1

        try:
            ask()
        except hypothesis.errors.Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE  # an operation that nothing wrong can be sent to
    assert answered.total() >= 100
    assert not {status for status in answered if status >= 500}
