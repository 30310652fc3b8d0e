"""A store with everything, and the dashboard over it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from showcase import showcase

pytest.importorskip("starlette")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have a successor of httpx
    from starlette.testclient import TestClient

from opmark.dashboard.app import application
from opmark.dashboard.auth import AccessPolicy, Guard

TOKEN = "a-token-of-enough-characters"


@pytest.fixture(scope="session")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "showcase.db"
    showcase(path)
    return path


@pytest.fixture
def client(db: Path) -> Iterator[TestClient]:
    with connected(application(db)) as made:
        yield made


@pytest.fixture
def guarded(db: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """One with a token; a wrong one costs no time here."""
    monkeypatch.setattr("opmark.dashboard.auth.WAIT", 0.0)
    with connected(application(db, access=AccessPolicy(TOKEN))) as made:
        yield made


def connected(app: Guard) -> TestClient:
    return TestClient(app, base_url="http://localhost", follow_redirects=False, raise_server_exceptions=False)


@pytest.fixture
def connect() -> Callable[[Guard], TestClient]:
    return connected


@pytest.fixture
def token() -> str:
    return TOKEN
