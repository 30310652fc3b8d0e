"""Two hosts: two network namespaces with a cable between them; where those are not allowed, two loopback addresses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

Launched = Any  # of conftest.py, which cannot be imported
Launch = Callable[..., Launched]

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "communication.md"
OPMARK = "opmark run all_reduce -p size=8..64K*8 --effort quick"
BY_HAND = "MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 WORLD_SIZE=2 RANK={rank} " + OPMARK
TORCHRUN = (
    "torchrun --nnodes 2 --nproc-per-node 1 --node-rank {rank} --master-addr 10.77.0.1 --master-port 29500 "
    "--no-python " + OPMARK
)
"""As they stand in the documentation, one for each host."""
SIZES = [8, 64, 512, 4096, 32768]


class Host(NamedTuple):
    address: str
    into: Sequence[str]
    """What stands before a command so that it runs there."""
    name: str = ""


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)


def _allowed(*arguments: str) -> bool:
    try:
        _ip(*arguments)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    names = [f"opmark-{os.getpid()}-{letter}" for letter in "ab"]
    made = [name for name in names if _allowed("netns", "add", name)]
    if made != names:
        yield Host("127.0.0.2", ()), Host("127.0.0.1", ())
        return
    try:
        _ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        for number, name in enumerate(names, 1):
            _ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "cable")
            for link in ("lo", "cable"):
                _ip("-n", name, "link", "set", link, "up")
        first, second = (
            Host(f"10.77.0.{number}", ("ip", "netns", "exec", name), name) for number, name in enumerate(names, 1)
        )
        yield first, second
    finally:
        for name in names:
            _ip("netns", "delete", name)


def started(launch: Launch, hosts: Sequence[Host], command: str, changes: str = "") -> list[Launched]:
    """The command on each host, as a person would type it there."""
    found = []
    for rank, host in enumerate(hosts):
        words = command.format(rank=rank).replace("10.77.0.1", hosts[0].address).split()
        at = words.index("opmark")
        environ = dict(word.split("=") for word in words[:at] if "=" in word)
        before = [_torchrun() if word == "torchrun" else word for word in words[:at] if "=" not in word]
        found.append(launch(environ, *words[at + 1 :], "--json", before=[*host.into, *before], changes=changes))
    return found


def _torchrun() -> str:
    beside = Path(sys.executable).with_name("torchrun")
    found = str(beside) if beside.exists() else shutil.which("torchrun")
    if not found:
        pytest.skip("torch is not installed")
    return found


def records(process: Launched) -> list[Mapping[str, Any]]:
    return [json.loads(line) for line in process.out.splitlines()]


@pytest.mark.parametrize(
    "command", [BY_HAND, pytest.param(TORCHRUN, marks=pytest.mark.slow)], ids=["by hand", "torchrun"]
)
def test_two_hosts_measure_together(launch: Launch, hosts: tuple[Host, Host], tmp_path: Path, command: str) -> None:
    pytest.importorskip("torch")
    first, second = started(launch, hosts, command)
    assert (first.code(), second.code()) == (0, 0), first.err + second.err
    found = records(first)
    assert [record["params"]["size"] for record in found] == SIZES
    assert {record["status"] for record in found} == {"ok"}
    assert {record["params"]["ranks"] for record in found} == {2}
    assert second.out == ""
    assert f"rank 0 stored run {found[0]['run']}: 5 records" in second.err
    assert [path.parent.name for path in tmp_path.glob("*/store.db")] == ["process0"]


@pytest.mark.slow
def test_two_ranks_on_one_host_and_one_on_another(launch: Launch, hosts: tuple[Host, Host]) -> None:
    """Those that share the host of rank 0 have to use the interface that leads out of it."""
    pytest.importorskip("torch")
    command = BY_HAND.replace("WORLD_SIZE=2", "WORLD_SIZE=3")
    first, *others = started(launch, (hosts[0], hosts[0], hosts[1]), command)
    assert first.code() == 0, first.err
    assert [other.code() for other in others] == [0, 0]
    assert [(record["status"], record["params"]["ranks"]) for record in records(first)] == [("ok", 3)] * len(SIZES)


def test_a_host_that_leaves_the_network_is_a_record_and_both_end(launch: Launch, hosts: tuple[Host, Host]) -> None:
    if not hosts[1].name:
        pytest.skip("no network of its own to leave")
    impatient = "import opmark.runner.ranks.connection as w; w.SILENCE, w._ALIVE_EVERY = 4.0, 0.3"
    command = BY_HAND.replace("8..64K*8", "8,4096") + " --backend lines-cpu"
    first, second = started(launch, hosts, command, impatient)
    deadline = time.monotonic() + 60
    while not first.out and time.monotonic() < deadline:
        time.sleep(0.05)
    _ip("-n", hosts[1].name, "link", "set", "cable", "down")
    assert (first.code(), second.code()) == (1, 1), first.err + second.err
    assert "has not been heard of for 4.00 s" in records(first)[1]["reason"]
    assert "is gone, its opmark" in second.err


@pytest.mark.parametrize("command", [BY_HAND, TORCHRUN], ids=["by hand", "torchrun"])
@pytest.mark.parametrize("rank", [0, 1])
def test_these_are_the_commands_of_the_documentation(command: str, rank: int) -> None:
    assert command.format(rank=rank) in DOCUMENTATION.read_text(encoding="utf-8")
