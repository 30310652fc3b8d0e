"""A Ray cluster as a driver sees it: connects, asks the nodes what they are, and says which of them can do what."""

from __future__ import annotations

import getpass
import logging
import os
import platform
import re
import signal
import socket
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.util import find_spec
from typing import Any

import msgspec
import psutil

from opmark.errors import InvalidParameter, UserError
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backends as known_backends
from opmark.runner.executors.leases import node_of
from opmark.runner.executors.node import reasons_of
from opmark.runner.survey import survey
from opmark.schema.fleet import CPU, FleetNode, FleetState, Lease, NodeReport, NodeRequest, Owner, device_name, encode
from opmark.schema.machine import Availability
from opmark.units import count_noun
from opmark.version import VERSION

AUTO = "auto"
_CONNECT_TIMEOUT = 5.0
_DESCRIBE_TIMEOUT = 60.0
_ACCELERATORS = {"cuda": "GPU", "xpu": "GPU", "hpu": "HPU"}
"""Name of the resource by which Ray counts the devices of a kind. A device that Ray does not count is measured under
the lease of its whole node."""
_FEW = 3
_NO_CPUS = "it was started with --num-cpus 0: only commands are typed there"


@dataclass
class Node:
    """A node that is alive."""

    id: str
    name: str
    address: str
    resources: dict[str, float]
    report: NodeReport | None = None
    reason: str = ""
    """Why the node takes no work at all; empty if it may."""
    unfit: dict[str, str] = field(default_factory=dict)
    """By backend: why the node does not take its tasks, beside what its report says."""
    known: dict[str, Availability] = field(default_factory=dict)
    """What it said about backends, by name."""

    @property
    def accelerators(self) -> int:
        return int(sum(self.resources.get(name, 0) for name in set(_ACCELERATORS.values())))

    def chip(self, device: str) -> str:
        """Return the chip that computes for a device of this kind."""
        assert self.report is not None
        own = [chip for name, chip in self.report.chips.items() if name != CPU]
        return own[0] if resource_of(device) and own else self.report.chips[CPU]

    def kind(self, device: str) -> str:
        """Return what has to be the same, so that two nodes count as equal: the chip, and for a processor its cores."""
        assert self.report is not None
        return self.chip(device) if resource_of(device) else f"{self.chip(device)} ×{self.report.host['cores']}"


def resource_of(device: str) -> str:
    """Return the resource by which Ray counts devices of a kind; empty: it takes a whole node."""
    return _ACCELERATORS.get(device, "")


class RayCluster:
    """The nodes of a cluster. `refresh` notices who has come and who has gone."""

    def __init__(self, address: str, *, only: Sequence[str] = (), chip: str = "", ask: bool = True) -> None:
        """`only`: names of nodes to use; `chip`: a part of the name of the chip that they have; `ask`: whether to ask
        the nodes what they are."""
        self.address = address
        self.nodes: dict[str, Node] = {}
        self._grows = True
        self._ask = ask
        self._only = set(only)
        self._chip = chip
        self._asked = dict.fromkeys(known_backends())
        self._why_not: dict[tuple[str, str], str] = {}
        """Answers of `why_not`, until something changes."""
        self.ray = _connect(address)
        from opmark.runner.executors import ray_actors

        self._actors = ray_actors
        self.book = ray_actors.lease_book()
        self.refresh()
        if unknown := self._only - {node.name for node in self.nodes.values()}:
            names = ", ".join(sorted(node.name for node in self.nodes.values()))
            raise UserError(f"no node named {', '.join(sorted(unknown))} in the cluster", f"it has {names}")

    @property
    def usable(self) -> list[Node]:
        """Nodes that may take work."""
        return [node for node in self.nodes.values() if node.report and not node.reason]

    def refresh(self) -> None:
        """Look who is in the cluster now, and ask those who are new what they are."""
        alive = {one["NodeID"]: one for one in self.ray.nodes() if one["Alive"]}
        for gone in self.nodes.keys() - alive.keys():
            del self.nodes[gone]
            self._why_not.clear()
        new = []
        for key in alive.keys() - self.nodes.keys() if self._grows else ():
            found = alive[key]
            # Nodes of one address are one machine, and share its leases. The slash stands between node and device.
            name = (found.get("NodeName") or found["NodeManagerAddress"]).replace("/", "-")
            self.nodes[key] = Node(key, name, found["NodeManagerAddress"], found["Resources"])
            new.append(self.nodes[key])
        if new and self._ask:
            self._describe(new, tuple(self._asked))

    def alone(self, node: Node) -> RayCluster:
        """Return the same cluster, as if it had this node alone."""
        found = copy(self)
        found.nodes, found._grows = {node.id: node}, False
        return found

    def ask_about(self, names: Iterable[str]) -> None:
        """Ask all nodes about backends of which they have not said anything yet."""
        new = [name for name in dict.fromkeys(names) if name not in self._asked]
        if new:
            self._asked.update(dict.fromkeys(new))
            self._describe([node for node in self.nodes.values() if node.report], tuple(new))

    def why_missing(self, info: BackendInfo) -> str | None:
        """Say why no node can run a backend; None if one can."""
        self.ask_about([info.name])
        reasons = {node.name: self.why_not(node, info) for node in self.nodes.values()}
        return None if any(not reason for reason in reasons.values()) else _join_reasons(reasons)

    def why_not(self, node: Node, info: BackendInfo) -> str:
        """Say why a node does not take tasks of a backend; empty if it does."""
        if (node.id, info.name) not in self._why_not:
            self._why_not[node.id, info.name] = self._find_why_not(node, info)
        return self._why_not[node.id, info.name]

    def reject(self, node: Node, backend: str, reason: str) -> None:
        """Give a node no more tasks of a backend."""
        node.unfit[backend] = reason
        self._why_not.clear()

    def _find_why_not(self, node: Node, info: BackendInfo) -> str:
        if node.reason or node.report is None:
            return node.reason
        if info.name in node.unfit:
            return node.unfit[info.name]
        if info.name not in node.known:
            self._asked.setdefault(info.name)
            self._describe([node], (info.name,))
        if (found := node.known.get(info.name)) is None:
            return node.reason
        if found.reason:
            return found.reason
        resource = resource_of(info.device)
        if resource and not node.resources.get(resource):
            return f"Ray knows of no {resource} there"
        if not resource and not node.resources.get("CPU"):
            return _NO_CPUS
        if self._chip and self._chip.lower() not in node.chip(info.device).lower():
            return f"its chip is {node.chip(info.device)}, not {self._chip}"
        return self._other_version(node, info)

    def _other_version(self, node: Node, info: BackendInfo) -> str:
        """Say in which version of the framework a node differs from the driver or, where that has none, from most
        nodes: one run is of one version."""
        if info.requires is None:
            return ""
        package = info.requires.partition(".")[0]
        versions = {n.name: str(n.known[info.name].facts.get(package, "")) for n in self.usable if info.name in n.known}
        here = "" if info.python else _version_here(info, package)
        (usual, _), *_ = Counter(filter(None, versions.values())).most_common(1) or [("", 0)]
        expected, whose = (here, "the driver") if here else (usual, "most nodes")
        own = versions.get(node.name, "")
        if not own or not expected or own == expected:
            return ""
        return f"it has {package} {own}, {whose} {expected}"

    def one_kind(self, infos: Sequence[BackendInfo], *, every: bool = False) -> list[Node]:
        """Return the nodes that can run one of these backends, or every one of them. Raise UserError where there are
        none, or of several kinds."""
        self.ask_about(info.name for info in infos)
        found: dict[str, list[Node]] = {}
        for node in self.usable:
            reasons = [self.why_not(node, info) for info in infos]
            if not any(reasons) if every else not all(reasons):
                found.setdefault(node.kind(infos[0].device), []).append(node)
        if len(found) > 1:
            listed = "; ".join(f"{kind}: {', '.join(node.name for node in nodes)}" for kind, nodes in found.items())
            raise UserError(
                f"nodes of {len(found)} kinds can run {', '.join(info.name for info in infos)}: {listed}",
                "one run is of one kind: choose it with --chip or --nodes",
            )
        if not found:
            by_node = {
                node.name: next((reason for info in infos if (reason := self.why_not(node, info))), "")
                for node in self.nodes.values()
            }
            names = ", ".join(info.name for info in infos)
            hint = "`opmark fleet` lists the nodes, what they have, and why they take no work"
            raise UserError(f"no node of the cluster at {self.address} can run {names}: {_join_reasons(by_node)}", hint)
        return next(iter(found.values()))

    def examine(self) -> list[FleetNode]:
        """Return all nodes with their leases, and why they take no work, as they find themselves now."""
        self._describe(list(self.nodes.values()), tuple(self._asked), examine=True)
        state: FleetState = self.book.state()
        found = []
        for node in sorted(self.nodes.values(), key=lambda node: node.name):
            leases = [lease for lease in state.leases if node_of(lease.devices[0]) == node.name]
            reason = node.reason or state.drained.get(node.name, "")
            if not reason and not node.resources.get("CPU") and not node.accelerators:
                reason = _NO_CPUS
            if not reason and node.report and not leases:
                reason = "; ".join(reasons_of(node.report.findings, list(node.report.chips), float("inf")))
            found.append(FleetNode(node.name, node.address, node.report, reason, leases))
        return found

    def why_taken(self, node: Node, device: str, count: int, state: FleetState) -> str:
        """Say who holds so many devices of a node, or has drained it; empty if they are free. It is asked before a seat
        is started, which Ray would let wait without a word."""
        if node.name in state.drained:
            return state.drained[node.name]
        leases = [lease for lease in state.leases if node_of(lease.devices[0]) == node.name]
        resource = resource_of(device)
        whole = [lease for lease in leases if not resource or device_name(node.name, CPU) in lease.devices]
        used = sum(len(lease.devices) for lease in leases)
        if whole or (resource and used + count > node.resources.get(resource, 0)):
            return f"held by {_holder(whole or leases)}" if leases else f"it has fewer than {count}"
        return ""

    def start_seat(self, node: Node, device: str, count: int, options: bytes) -> Any:
        """Start an actor on a node, with all of its cores, or with so many accelerators: Ray then gives them to nobody
        else."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        resource, given = resource_of(device), dict[str, Any]()
        if resource == "GPU":
            given = {"num_cpus": min(1, node.resources.get("CPU", 0)), "num_gpus": count}
        elif resource:
            given = {"num_cpus": min(1, node.resources.get("CPU", 0)), "resources": {resource: count}}
        else:
            given = {"num_cpus": node.resources.get("CPU", 0)}
        strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
        seat: Any = self._actors.SeatActor
        return seat.options(scheduling_strategy=strategy, max_concurrency=4, **given).remote(options)

    def owner(self, what: str) -> Owner:
        return Owner(getpass.getuser(), platform.node(), what, os.getpid())

    def close(self) -> None:
        self.ray.shutdown()

    def _describe(self, nodes: Sequence[Node], names: tuple[str, ...], *, examine: bool = False) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._why_not.clear()
        describe: Any = self._actors.describe
        asked = {}
        for node in nodes:
            strategy = NodeAffinitySchedulingStrategy(node.id, soft=False)
            request = encode(NodeRequest(names, node.accelerators, examine, self.owner("opmark")))
            asked[describe.options(scheduling_strategy=strategy).remote(request)] = node
        self.ray.wait(list(asked), num_returns=len(asked), timeout=_DESCRIBE_TIMEOUT)
        for ref, node in asked.items():
            try:
                answer = self.ray.get(ref, timeout=0)
            except self.ray.exceptions.GetTimeoutError:
                node.reason = f"it has not answered within {_DESCRIBE_TIMEOUT:g} s"
            except self.ray.exceptions.RayError as error:
                node.reason = _explain(error)
            else:
                self._read(node, answer)

    def _read(self, node: Node, answer: bytes) -> None:
        version = msgspec.json.decode(answer, type=_Version).opmark
        if version != VERSION:
            node.reason = f"it has opmark {version}, the driver {VERSION}"
            return
        node.report = msgspec.json.decode(answer, type=NodeReport)
        node.known.update({one.name: one for one in node.report.backends})
        node.reason = "" if not self._only or node.name in self._only else "it is not among --nodes"
        # Leases and records name a node: two machines of one name could not be told apart.
        first = next(one for one in self.nodes.values() if one.name == node.name)
        if first.address != node.address:
            node.reason = f"the node at {first.address} has the same name: `ray start --node-name` gives it its own"


class _Version(msgspec.Struct):
    opmark: str


def _holder(leases: Sequence[Lease]) -> str:
    """Say who holds the first of the leases; of a process that has ended here, also until when, since nobody gives that
    one back."""
    first = leases[0]
    if first.owner.host != platform.node() or not first.owner.pid or psutil.pid_exists(first.owner.pid):
        return first.owner.text
    until = datetime.fromtimestamp(first.expires, timezone.utc)
    return f"{first.owner.text}, which has ended, until {until:%H:%M:%S} UTC"


def _version_here(info: BackendInfo, package: str) -> str:
    (found,) = survey([info])
    return "" if found.reason else str(found.facts.get(package, ""))


def _join_reasons(reasons: dict[str, str]) -> str:
    """One line of all reasons, each with the nodes that it is of."""
    if not reasons:
        return "it has no nodes"
    by_reason: dict[str, list[str]] = {}
    for name, reason in sorted(reasons.items()):
        by_reason.setdefault(reason or "it may", []).append(name)
    parts = []
    for reason, names in by_reason.items():
        more = f" and {count_noun(len(names) - _FEW, 'more node')}" if len(names) > _FEW else ""
        parts.append(f"{', '.join(names[:_FEW])}{more}: {reason}")
    return "; ".join(parts)


def _explain(error: Exception) -> str:
    text = str(error)
    if "ModuleNotFoundError" in text and "opmark" in text:
        return f"its Python has no opmark, or one without fleets (the driver has {VERSION}): pip install opmark[ray]"
    return text.strip().splitlines()[-1][:300] if text.strip() else type(error).__name__


def parse_address(address: str) -> tuple[str, int] | None:
    """Return the host and the port of a cluster's head; None for the cluster that this machine is a node of."""
    if address == AUTO:
        return None
    place = re.fullmatch(r"([^:/\s]+|\[[0-9a-fA-F:]+\]):(\d{1,5})", address)
    if not place or not 0 < int(place[2]) < 2**16:
        raise InvalidParameter(f"--address: expected auto or HOST:PORT, got `{address}`", "as in --address head:6379")
    return place[1].strip("[]"), int(place[2])


def _connect(address: str) -> Any:
    """Join the cluster, and return the module `ray`."""
    if find_spec("ray") is None:
        raise UserError("--executor ray needs Ray, which is not installed", "pip install 'opmark[ray]'")
    if place := parse_address(address):
        _confirm_listening(*place, address)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    import ray
    from ray._private import worker as ray_worker

    # The driver says itself who is lost. Ray prints pages about it, on standard output, where data goes, and has no
    # option against that.
    ray_worker.print_to_stdstream = _print_nothing

    from opmark.runner.executors.ray_actors import NAMESPACE

    own = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    start = "`ray start --head` starts one, `ray start --address=HOST:PORT` joins one on every other machine"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.CRITICAL)
    except ConnectionError as error:
        found = "no Ray cluster is running here" if address == AUTO else f"no Ray cluster answers at {address}"
        raise UserError(f"--address {address}: {found} ({one_line_of(error)})", start) from None
    except (RuntimeError, ValueError, TimeoutError) as error:
        text = one_line_of(error)
        hint = "use the same versions of Python and Ray on all machines" if "ersion" in text else start
        raise UserError(f"--address {address}: this machine cannot join the Ray cluster: {text}", hint) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            # Ray ends the process on SIGTERM without a word to anybody: the command has to end as it does without Ray.
            for number, handler in own.items():
                if handler is not None:
                    signal.signal(number, handler)
    return ray


def _print_nothing(*_: Any, **__: Any) -> None:
    pass


def one_line_of(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _confirm_listening(host: str, port: int, address: str) -> None:
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT).close()
    except OSError as error:
        raise UserError(
            f"--address {address}: no Ray cluster can be reached there: {error.strerror or error}",
            "`ray start --head` starts one and says its address; is it running, and does a firewall let it through?",
        ) from None
