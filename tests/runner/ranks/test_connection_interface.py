"""Which network interface an address belongs to."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import psutil
import pytest

from opmark.runner.ranks.connection import INTERFACE, interface_of, is_loopback, with_interface

TABLE = {
    "lo": [SimpleNamespace(family=socket.AF_INET, address="127.0.0.1")],
    "eth0": [
        SimpleNamespace(family=17, address="02:00:00:00:00:01"),
        SimpleNamespace(family=socket.AF_INET, address="10.0.0.5"),
        SimpleNamespace(family=socket.AF_INET6, address="fe80::1%eth0"),
    ],
}


@pytest.fixture(autouse=True)
def interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: TABLE)
    monkeypatch.delenv(INTERFACE, raising=False)


@pytest.mark.parametrize(
    ("address", "name"),
    [("127.0.0.1", "lo"), ("127.0.0.2", "lo"), ("10.0.0.5", "eth0"), ("fe80::1", "eth0"), ("192.0.2.1", None)],
)
def test_an_address_has_an_interface_or_none(address: str, name: str | None) -> None:
    assert interface_of(address) == name


def test_loopback_is_told() -> None:
    assert [is_loopback(address) for address in ("127.3.2.1", "::1", "10.0.0.5")] == [True, True, False]


def test_a_worker_gets_the_interface_of_its_way_to_rank_0() -> None:
    assert with_interface({"RANK": "1"}, "10.0.0.5") == {"RANK": "1", INTERFACE: "eth0"}
    assert with_interface({"RANK": "1"}, "192.0.2.1") == {"RANK": "1"}


def test_one_that_was_named_is_kept() -> None:
    assert with_interface({INTERFACE: "ib0"}, "10.0.0.5") == {INTERFACE: "ib0"}


def test_what_the_user_of_this_host_has_chosen_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INTERFACE, "bond0")
    assert with_interface({INTERFACE: "lo", "RANK": "1"}, "10.0.0.5") == {"RANK": "1"}
