"""The OpenAPI document describes the answers, and no request makes the server fail."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from opmark.dashboard.app import ENDPOINTS, document
from opmark.dashboard.pages.factors import FACTORS_ENDPOINT


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(document())
    return found


def test_all_that_is_served_is_described(told: dict[str, Any]) -> None:
    assert {endpoint.json_path for endpoint in ENDPOINTS} <= set(told["paths"])
    operations = [one for methods in told["paths"].values() for one in methods.values()]
    names = [one["operationId"] for one in operations]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"\w+", name) for name in names)
    assert "post" in told["paths"]["/api/runs"]
    assert told["paths"]["/api/runs"]["post"]["security"] == [{"token": []}]
    page = next(one for one in told["paths"]["/api/runs"]["get"]["parameters"] if one["name"] == "page")
    assert page["schema"]["minimum"] == 1
    assert page["in"] == "query"


def test_references_lead_somewhere(told: dict[str, Any]) -> None:
    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(told)):
        assert name in told["components"]["schemas"]


def test_real_answers_are_as_described(client: TestClient, told: dict[str, Any]) -> None:
    schemas = pytest.importorskip("jsonschema_rs")
    item = client.get("/api/runs/showcase").json()["items"][0]
    values = {"run": "showcase", "key": item["key"], "case": item["case"]}
    query = {"/api/compare": "?a=base&b=new", "/api/search": "?q=add"}
    for endpoint in ENDPOINTS:
        path = endpoint.json_path
        answer = client.get(path.format(**values) + query.get(path, ""))
        if path == FACTORS_ENDPOINT.json_path:  # the showcase has no study; pages/test_factors.py has one
            assert answer.status_code == 400
            continue
        assert answer.status_code == 200, answer.text[:300]
        schema = told["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        whole = {**schema, "components": told["components"]}
        schemas.validator_for(whole).validate(answer.json())


def test_problems_are_as_described(client: TestClient, told: dict[str, Any]) -> None:
    schemas = pytest.importorskip("jsonschema_rs")
    whole = {"$ref": "#/components/schemas/HttpProblem", "components": told["components"]}
    for path in ("/api/runs?x=1", "/api/runs/nix", "/api/nix"):
        schemas.validator_for(whole).validate(client.get(path).json())


def test_texts_that_are_refused_are_not_described(client: TestClient, told: dict[str, Any]) -> None:
    schemas = pytest.importorskip("jsonschema_rs")
    for path, methods in told["paths"].items():
        for parameter in methods.get("get", {"parameters": []})["parameters"]:
            for wrong in ("\x01", "a\n", "\x7f", "x" * 501):
                schema = parameter["schema"]
                value = [wrong] if schema.get("type") == "array" else wrong
                assert not schemas.validator_for({**schema, "components": told["components"]}).is_valid(value), path
    assert client.get("/api/search", params={"q": "\x01"}).status_code == 400


def test_all_methods_of_an_address_are_allowed(client: TestClient, told: dict[str, Any]) -> None:
    for path, methods in told["paths"].items():
        answer = client.request("PATCH", path.format(run="showcase", key="x", case="x", format="csv"))
        assert answer.status_code == 405
        described = {method.upper() for method in methods}
        assert set(answer.headers["allow"].split(", ")) == described | ({"HEAD"} if "GET" in described else set())


def test_who_sends_no_token_is_asked_for_one(client: TestClient, told: dict[str, Any]) -> None:
    answer = client.post("/api/runs", content=b"{}")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "this server takes no runs" in answer.json()["error"]


def test_the_document_is_served(client: TestClient, told: dict[str, Any]) -> None:
    assert client.get("/api/openapi.json").json() == told


def test_the_store_is_found_in_none_of_it(db: Path) -> None:
    assert str(db) not in document().decode()


@pytest.mark.parametrize("since", ["0001-01-01T00:00+23:59", "9999-12-31T23:59-23:00", "f", "1x"])
def test_a_date_that_cannot_be_is_a_mistake_of_the_sender(client: TestClient, since: str) -> None:
    case = client.get("/api/runs/showcase").json()["items"][0]["case"]
    assert client.get(f"/api/cases/{case}", params={"since": since}).status_code == 400
