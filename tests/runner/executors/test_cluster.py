"""The driver's view of a cluster, with nodes that a test makes up: versions, kinds, and who can do what."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from opmark.api.fleet import open_fleet
from opmark.api.requests import RunRequest
from opmark.errors import UserError
from opmark.plugin.registry import backend as find_backend
from opmark.runner.executors import cluster as module
from opmark.runner.executors.cluster import Node, RayCluster
from opmark.schema.fleet import FleetState, Lease, NodeReport, Owner, encode
from opmark.schema.machine import Availability
from opmark.version import VERSION

Given = dict[str, dict[str, Any]]


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[Given], RayCluster]:
    """A cluster of nodes that say what the test wants."""

    def make(nodes: Given, *, only: tuple[str, ...] = (), chip: str = "") -> RayCluster:
        class Ray:
            @staticmethod
            def nodes() -> list[dict[str, Any]]:
                return [
                    {"NodeID": name, "Alive": True, "NodeName": given.get("name", name),
                     "NodeManagerAddress": given.get("address", "10.0.0.1"),
                     "Resources": {"CPU": 8.0, **given.get("resources", {})}}
                    for name, given in nodes.items()
                ]  # fmt: skip

        def describe(cluster: RayCluster, asked: list[Node], names: tuple[str, ...], *, examine: bool = False) -> None:
            cluster._why_not.clear()
            for node in asked:
                given = nodes[node.id]
                known = [
                    Availability(name, "", given.get("lacks", {}).get(name), {"torch": given.get("torch", "2.13")})
                    for name in names
                ]
                host = {"cpu": given.get("cpu", "EPYC"), "cores": given.get("cores", 8)}
                chips = {"cpu": host["cpu"], **{f"gpu:{i}": gpu for i, gpu in enumerate(given.get("gpus", []))}}
                report = NodeReport(given.get("opmark", VERSION), "3.11", host, chips, known)
                cluster._read(node, encode(report))

        monkeypatch.setattr(module, "_connect", lambda address: Ray)
        monkeypatch.setattr("opmark.runner.executors.ray_actors.lease_book", lambda: None)
        monkeypatch.setattr(RayCluster, "_describe", describe)
        monkeypatch.setattr(module, "_version_here", lambda info, package: "")
        return RayCluster("head:6379", only=only, chip=chip)

    pytest.importorskip("ray")
    return make  # type: ignore[return-value]


def names(nodes: list[Node]) -> set[str]:
    return {node.name for node in nodes}


def test_nodes_of_one_kind_work_together(made_up: Any) -> None:
    found = made_up({"a": {}, "b": {}, "c": {"lacks": {"torch-cpu": "torch is not installed"}}})
    assert names(found.one_kind([find_backend("torch-cpu")])) == {"a", "b"}
    assert names(found.one_kind([find_backend("null")])) == {"a", "b", "c"}
    assert names(found.one_kind([find_backend("null"), find_backend("torch-cpu")])) == {"a", "b", "c"}
    assert names(found.one_kind([find_backend("null"), find_backend("torch-cpu")], every=True)) == {"a", "b"}


@pytest.mark.parametrize("other", [{"cpu": "Xeon"}, {"cores": 64}])
def test_of_several_kinds_one_has_to_be_chosen(other: dict[str, Any], made_up: Any) -> None:
    found = made_up({"a": {}, "b": other})
    with pytest.raises(UserError, match=r"nodes of 2 kinds can run null: .*EPYC ×8: a") as error:
        found.one_kind([find_backend("null")])
    assert "--chip" in str(error.value.hint)
    chosen = made_up({"a": {}, "b": other}, only=("b",))
    assert names(chosen.one_kind([find_backend("null")])) == {"b"}


def test_a_chip_is_chosen_by_a_part_of_its_name(made_up: Any) -> None:
    gpus = {"gpus": ["NVIDIA H100"], "resources": {"GPU": 1.0}}
    nodes = {"a": gpus, "b": {**gpus, "gpus": ["NVIDIA A100"]}, "c": {}}
    found = made_up(nodes, chip="h100")
    cuda = find_backend("torch-cuda")
    assert names(found.one_kind([cuda])) == {"a"}
    assert found.why_not(found.nodes["b"], cuda) == "its chip is NVIDIA A100, not h100"
    assert found.why_not(found.nodes["c"], cuda) == "Ray knows of no GPU there"


def test_a_lease_of_a_process_that_has_ended_here_says_until_when(made_up: Any) -> None:
    found = made_up({"a": {}})
    here = found.owner("opmark run")
    ended = subprocess.Popen(["true"])
    ended.wait()
    lease = Lease("t", ("a/cpu",), here, 0.0, 90.0)

    def why(owner: Owner) -> str:
        return found.why_taken(found.nodes["a"], "cpu", 1, FleetState([replace(lease, owner=owner)]))

    assert why(here) == f"held by {here.text}"
    assert why(replace(here, pid=ended.pid)) == f"held by {here.text}, which has ended, until 00:01:30 UTC"
    assert why(replace(here, pid=ended.pid, host="elsewhere")).endswith("elsewhere: opmark run")


def test_what_nobody_has_is_said_for_every_node(made_up: Any) -> None:
    lacks = {"lacks": {"torch-cpu": "torch is not installed"}}
    found = made_up({"a": lacks, "b": lacks, "c": {"opmark": "0.1"}})
    with pytest.raises(UserError) as error:
        found.one_kind([find_backend("torch-cpu")])
    assert "no node of the cluster at head:6379 can run torch-cpu" in error.value.message
    assert "a, b: torch is not installed" in error.value.message
    assert f"c: it has opmark 0.1, the driver {VERSION}" in error.value.message
    assert found.why_missing(find_backend("torch-cpu"))


def test_a_report_of_another_version_is_not_read_further(made_up: Any) -> None:
    found = made_up({"a": {}})
    node = found.nodes["a"]
    found._read(node, b'{"opmark": "9.9", "whatever": [1, 2]}')
    assert node.reason == f"it has opmark 9.9, the driver {VERSION}"


def test_a_node_without_processors_for_ray_only_types_commands(made_up: Any) -> None:
    desk = {"resources": {"CPU": 0.0}, "cpu": "laptop"}
    found = made_up({"a": {}, "desk": desk, "gpus": {"resources": {"CPU": 0.0, "GPU": 1.0}, "gpus": ["H100"]}})
    assert names(found.one_kind([find_backend("torch-cpu")])) == {"a"}
    assert "--num-cpus 0" in found.why_not(found.nodes["desk"], find_backend("torch-cpu"))
    assert names(found.one_kind([find_backend("torch-cuda")])) == {"gpus"}


def test_of_two_machines_with_one_name_the_second_takes_no_work(made_up: Any) -> None:
    twins = {"a": {"name": "n"}, "b": {"name": "n", "address": "10.0.0.2"}, "c": {"name": "n"}}
    found = made_up(twins)
    reasons = {node.address: node.reason for node in found.nodes.values()}
    assert sorted(map(bool, reasons.values())) == [False, True]
    taken, other = sorted(reasons, key=lambda address: bool(reasons[address]))
    assert f"the node at {taken} has the same name" in reasons[other]
    assert {node.address for node in found.usable} == {taken}


def test_one_run_is_of_one_version_of_a_framework(made_up: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = {"a": {"torch": "2.9"}, "b": {"torch": "2.13"}, "c": {"torch": "2.13"}}
    found, info = made_up(nodes), find_backend("torch-cpu")
    assert found.why_not(found.nodes["a"], info) == "it has torch 2.9, most nodes 2.13"
    assert found.why_not(found.nodes["b"], info) == ""
    monkeypatch.setattr(module, "_version_here", lambda info, package: "2.9")
    found._why_not.clear()
    assert found.why_not(found.nodes["a"], info) == ""
    assert found.why_not(found.nodes["b"], info) == "it has torch 2.13, the driver 2.9"


def test_a_node_that_cannot_start_a_backend_gets_no_more_of_it(made_up: Any) -> None:
    found = made_up({"a": {}, "b": {}})
    found.reject(found.nodes["a"], "torch-cpu", "torch-cpu cannot start: broken")
    assert names(found.one_kind([find_backend("torch-cpu")])) == {"b"}
    assert names(found.one_kind([find_backend("null")])) == {"a", "b"}


def test_a_view_of_one_node_does_not_grow(made_up: Any) -> None:
    nodes = {"a": {}, "b": {}}
    whole = made_up(nodes)
    alone = whole.alone(whole.nodes["b"])
    nodes["c"] = {}
    alone.refresh()
    whole.refresh()
    assert names(alone.usable) == {"b"}
    assert names(whole.usable) == {"a", "b", "c"}
    del nodes["b"]
    alone.refresh()
    assert alone.usable == []


def test_unknown_nodes_are_refused(made_up: Any) -> None:
    with pytest.raises(UserError, match="no node named z in the cluster"):
        made_up({"a": {}}, only=("a", "z"))


# Joining a cluster.


def test_without_ray_a_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="Ray, which is not installed") as error:
        open_fleet(RunRequest("add", executor="ray"))
    assert error.value.hint == "pip install 'opmark[ray]'"


@pytest.mark.parametrize("address", ["head", "ray://head:10001", "head:port", "http://head:8265", ""])
def test_an_address_has_host_and_port(address: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(UserError, match="--address: expected auto or HOST:PORT"):
        open_fleet(RunRequest("add", executor="ray", address=address))


def test_an_address_where_nobody_listens_is_said_at_once() -> None:
    pytest.importorskip("ray")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(UserError, match=f"127.0.0.1:{port}: no Ray cluster can be reached there") as error:
            open_fleet(RunRequest("add", executor="ray", address=f"127.0.0.1:{port}"))
    assert "ray start --head" in str(error.value.hint)


def test_files_that_tasks_would_write_elsewhere_are_refused() -> None:
    with pytest.raises(UserError, match="--artifact"):
        open_fleet(RunRequest("add", executor="ray", artifact="here"))
