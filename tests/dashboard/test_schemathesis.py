"""Requests that the OpenAPI document allows, and many others, never cause an error of the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# ruff: noqa: E402
pytest.importorskip("starlette")
schemathesis = pytest.importorskip("schemathesis")
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    allow_header_conformance,
    content_type_conformance,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from showcase import showcase

from opmark.dashboard.app import application, document
from opmark.dashboard.auth import AccessPolicy
from opmark.schema.upload import MEDIA_TYPE

CHECKS = [
    not_a_server_error, content_type_conformance, response_schema_conformance, status_code_conformance,
    allow_header_conformance, unsupported_method,
]  # fmt: skip
TOKEN = {"authorization": "Bearer a-token-of-enough-characters"}
MODES = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]


@schemathesis.serializer(MEDIA_TYPE)
def as_text(context: Any, value: Any) -> bytes:
    return str(value).encode("utf-8", "replace")


def operations() -> Iterator[tuple[str, str]]:
    import json

    for path, methods in json.loads(document())["paths"].items():
        for method in methods:
            yield path, method


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:
    db: Path = tmp_path_factory.mktemp("schemathesis") / "showcase.db"
    showcase(db)
    app = application(db, access=AccessPolicy(TOKEN["authorization"].split()[1], None))
    return schemathesis.openapi.from_asgi("/api/openapi.json", app, headers=TOKEN)


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("path", "method"), list(operations()))
def test_nothing_makes_the_server_fail(described: Any, path: str, method: str) -> None:
    operation = described[path][method]
    cases = st.one_of([operation.as_strategy(generation_mode=mode) for mode in MODES])

    @settings(max_examples=25, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=cases)
    def check(case: Any) -> None:
        case.path_parameters = {**(case.path_parameters or {}), **_sometimes_real(case)}
        case.call_and_validate(checks=CHECKS, headers=TOKEN)

    check()


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", [path for path, method in operations() if method == "get"])
def test_what_the_document_allows_is_taken(described: Any, path: str) -> None:
    """Or there is nothing of that name. An upload has more rules than a schema can say."""
    cases = described[path]["get"].as_strategy(generation_mode=GenerationMode.POSITIVE)

    @settings(max_examples=25, derandomize=True, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(case=cases)
    def check(case: Any) -> None:
        case.call_and_validate(checks=[*CHECKS, positive_data_acceptance], headers=TOKEN)

    check()


def _sometimes_real(case: Any) -> dict[str, str]:
    """Half of the runs asked for are there: more than the way to `no such run` is tried."""
    named = case.path_parameters or {}
    return {"run": "showcase"} if "run" in named and len(str(named["run"])) % 2 else {}
