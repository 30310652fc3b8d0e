"""The store by which torch's ranks find each other."""

from __future__ import annotations

from ipaddress import ip_address

import psutil
import pytest

from opmark.plugin import World

pytest.importorskip("torch")


def listening(port: int) -> set[str]:
    sockets = psutil.Process().net_connections("tcp")
    return {one.laddr.ip for one in sockets if one.status == psutil.CONN_LISTEN and one.laddr.port == port}


def test_on_one_host_the_store_listens_on_the_loopback_alone() -> None:
    from opmark.frameworks.torch.process_group import make_store

    store = make_store(World(0, 1, "127.0.0.1", 0, 20.0))
    assert all(ip_address(address).is_loopback for address in listening(store.port))
    assert listening(store.port)
    other = make_store(World(1, 2, "127.0.0.1", store.port, 20.0))
    store.set("key", "value")
    assert other.get("key") == b"value"


def test_on_several_hosts_the_store_can_be_reached_from_others() -> None:
    from opmark.frameworks.torch.process_group import make_store

    store = make_store(World(0, 1, "localhost", 0, 20.0))
    assert any(ip_address(address).is_unspecified for address in listening(store.port))


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", True), ("127.0.0.2", True), ("10.0.0.5", False)])
def test_a_world_says_whether_it_is_on_one_host(host: str, expected: bool) -> None:
    assert World(0, 2, host, 0, 1.0).on_one_host is expected
