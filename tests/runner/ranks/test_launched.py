"""The same command in several processes, as launchers start them: real processes, on the loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opmark.version import VERSION

Launched = Any  # of conftest.py, which cannot be imported
Launch = Callable[..., Launched]

RUN = ("run", "all_reduce", "--backend", "lines-cpu", "--effort", "quick", "--json", "-p")
SHORT = "size=8"
SHORT_AND_SLOW = "size=8,4096,64"
"""The second one takes for ever."""
SOON = (
    "import opmark.runner.ranks.launcher as g, opmark.runner.ranks.agent as a; "
    "g.ARRIVAL_TIMEOUT = a.ARRIVAL_TIMEOUT = {}"
)
IMPATIENT = "import opmark.runner.ranks.connection as w; w.SILENCE, w._ALIVE_EVERY = 4.0, 0.3"


def by_hand(rank: int, size: int, port: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def torchrun(rank: int, size: int, port: int) -> dict[str, str]:
    local = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size), "TORCHELASTIC_RUN_ID": "none"}
    return {**by_hand(rank, size, port - 1), **local}


def slurm(rank: int, size: int, port: int) -> dict[str, str]:
    variables = {
        "JOB_ID": 1, "STEP_ID": 0, "PROCID": rank, "NTASKS": size, "LOCALID": rank, "NODEID": 0,
        "STEP_TASKS_PER_NODE": size, "STEP_NODELIST": "nowhere",
    }  # fmt: skip
    return {**{f"SLURM_{name}": str(value) for name, value in variables.items()}, "OPMARK_PORT": str(port)}


def open_mpi(rank: int, size: int, port: int) -> dict[str, str]:
    variables = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size}
    return {**{f"OMPI_COMM_WORLD_{k}": str(v) for k, v in variables.items()}, "OPMARK_PORT": str(port)}


def hydra(rank: int, size: int, port: int) -> dict[str, str]:
    variables = {"PMI_RANK": rank, "PMI_SIZE": size, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": size}
    return {**{name: str(value) for name, value in variables.items()}, "MASTER_PORT": str(port)}


def records(process: Launched) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.out.splitlines()]


def stores(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.glob("*/store.db"))


def wait_for(condition: Callable[[], Any], within: float = 60.0) -> Any:
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to this"
        time.sleep(0.05)
    return found


@pytest.mark.parametrize(
    ("launcher", "size"),
    [(torchrun, 2), (slurm, 2), (open_mpi, 3), (hydra, 2), (by_hand, 3)],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_one_command_under_every_launcher(
    launch: Launch, free_port: int, tmp_path: Path, launcher: Callable[[int, int, int], dict[str, str]], size: int
) -> None:
    first, *others = [launch(launcher(rank, size, free_port), *RUN, "size=8,64") for rank in range(size)]
    assert first.code() == 0, first.err
    assert [other.code() for other in others] == [0] * (size - 1), others[0].err
    found = records(first)
    assert [record["status"] for record in found] == ["ok", "ok"]
    assert {record["params"]["ranks"] for record in found} == {size}
    for other in others:
        assert other.out == ""
        assert "rank 0 stored run" in other.err
        assert "2 records" in other.err
    assert stores(tmp_path) == ["process0"]


def test_ranks_start_in_any_order(launch: Launch, free_port: int) -> None:
    other = launch(by_hand(1, 2, free_port), *RUN, SHORT)
    time.sleep(1.5)
    first = launch(by_hand(0, 2, free_port), *RUN, SHORT)
    assert (first.code(), other.code()) == (0, 0), first.err + other.err


# What goes wrong before anything is measured.


def test_another_version_is_refused_on_both_sides(launch: Launch, free_port: int) -> None:
    changes = "import opmark.version; opmark.version.VERSION = '0.0.7'"
    first = launch(by_hand(0, 2, free_port), *RUN, SHORT)
    other = launch(by_hand(1, 2, free_port), *RUN, SHORT, changes=changes)
    assert (first.code(), other.code()) == (2, 2)
    here = socket.gethostname()
    for process in (first, other):
        assert f"error: rank 1 on {here} has opmark 0.0.7, rank 0 on {here} has {VERSION}" in process.err


def test_another_command_is_refused_on_both_sides(launch: Launch, free_port: int) -> None:
    first = launch(by_hand(0, 2, free_port), *RUN, SHORT)
    other = launch(by_hand(1, 2, free_port), *RUN, "size=64")
    assert (first.code(), other.code()) == (2, 2)
    assert all("was started with another command" in process.err for process in (first, other))


def test_a_port_in_use_is_said_and_nobody_waits_for_ever(launch: Launch, free_port: int) -> None:
    with socket.create_server(("127.0.0.1", free_port)):
        first = launch(torchrun(0, 2, free_port), *RUN, SHORT)
        other = launch(torchrun(1, 2, free_port), *RUN, SHORT, changes=IMPATIENT)
        assert (first.code(), other.code()) == (2, 2)
    assert f"port {free_port}" in first.err
    assert "MASTER_PORT + 1" in first.err
    assert "OPMARK_PORT" in first.err
    assert "not the opmark of rank 0" in other.err


def test_a_rank_that_does_not_come_is_named(launch: Launch, free_port: int) -> None:
    other = launch(by_hand(1, 3, free_port), *RUN, SHORT)
    first = launch(by_hand(0, 3, free_port), *RUN, SHORT, changes=SOON.format(8.0))
    assert (first.code(), other.code()) == (2, 2)
    assert all("rank 2 of 3 did not come within 8.00 s" in process.err for process in (first, other))


def test_a_rank_0_that_is_not_there_is_said(launch: Launch, free_port: int) -> None:
    other = launch(by_hand(1, 2, free_port), *RUN, SHORT, changes=SOON.format(1.0))
    assert other.code() == 2
    assert f"did not reach rank 0 at 127.0.0.1, port {free_port}" in other.err
    assert "refused" in other.err


def test_a_rank_without_the_framework_is_named_in_what_is_skipped(launch: Launch, free_port: int) -> None:
    missing = "from opmark.plugin import BackendInfo; BackendInfo.why_missing = lambda info: 'lines is not installed'"
    first = launch(by_hand(0, 2, free_port), *RUN, SHORT)
    other = launch(by_hand(1, 2, free_port), *RUN, SHORT, changes=missing)
    assert first.code() == other.code() != 0
    assert f"rank 1 on {socket.gethostname()}: lines is not installed" in first.err + first.out


def test_a_wrong_command_is_wrong_everywhere_at_once(launch: Launch, free_port: int) -> None:
    processes = [launch(by_hand(rank, 2, free_port), *RUN, "sise=8") for rank in range(2)]
    assert [process.code() for process in processes] == [2, 2]


def test_a_malformed_greeting_does_not_end_rank_0(launch: Launch, free_port: int) -> None:
    first = launch(by_hand(0, 2, free_port), *RUN, SHORT)

    def greet(said: bytes) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", free_port), timeout=5) as stranger:
                stranger.sendall(said)
        except ConnectionRefusedError:
            return False
        return True

    for said in (b'{"type":"Greeting","version":"0.0","rank":-1}\n', b"\x00\xff\n", b"[" * 50_000 + b"\n"):
        wait_for(lambda said=said: greet(said))
    other = launch(by_hand(1, 2, free_port), *RUN, SHORT)
    assert (first.code(), other.code()) == (0, 0), first.err + other.err


def test_ranks_with_different_secrets_do_not_meet_and_say_why(launch: Launch, free_port: int) -> None:
    secrets = ("the secret of one user", "the secret of another")
    first, other = (
        launch({**by_hand(rank, 2, free_port), "OPMARK_SECRET": secret}, *RUN, SHORT, changes=SOON.format(8.0))
        for rank, secret in enumerate(secrets)
    )
    assert (first.code(), other.code()) == (2, 2)
    assert "not let in: 127.0.0.1 closed the connection before it had proved that it knows the secret" in first.err
    assert "has another secret than this rank, or none: it may not be the opmark of rank 0" in other.err
    assert not any(secret in process.err + process.out for secret in secrets for process in (first, other))


def test_the_others_hear_of_a_run_that_waits_for_its_store(launch: Launch, free_port: int) -> None:
    waiting = "import opmark.store.backlog as b, pathlib; b.journals_of = lambda *_: [pathlib.Path('waiting.sqlite')]"
    first = launch(by_hand(0, 2, free_port), *RUN, SHORT, changes=waiting)
    other = launch(by_hand(1, 2, free_port), *RUN, SHORT)
    assert (first.code(), other.code()) == (1, 1), first.err + other.err
    assert "kept in the journal waiting.sqlite" in first.err
    assert "in a journal: 1 record" in other.err
    assert "stored" not in other.err


# What goes wrong in the middle.


def in_the_middle(launch: Launch, port: int, *more: str) -> tuple[Launched, Launched]:
    """(rank 0, rank 1), both in the task that never ends."""
    first, other = (launch(by_hand(rank, 2, port), *RUN, SHORT_AND_SLOW, *more, changes=IMPATIENT) for rank in range(2))
    wait_for(lambda: first.out.count("\n") == 1 or first.process.poll() is not None)
    return first, other


def test_an_agent_that_is_killed_costs_what_is_left(launch: Launch, free_port: int) -> None:
    first, other = in_the_middle(launch, free_port)
    os.kill(other.process.pid, signal.SIGKILL)
    assert first.code() == 1, first.err
    done, slow, after = records(first)
    assert (done["status"], slow["status"], after["status"]) == ("ok", "error", "error")
    who = f"rank 1 on {socket.gethostname()}: its opmark"
    assert slow["reason"].startswith(who)
    assert "while running the task" in slow["reason"]
    assert after["reason"].startswith(who)


def test_an_agent_that_is_stopped_is_found_by_its_silence(launch: Launch, free_port: int) -> None:
    first, other = in_the_middle(launch, free_port)
    os.kill(other.process.pid, signal.SIGSTOP)
    assert first.code() == 1, first.err
    _, slow, after = records(first)
    assert "has not been heard of for 4.00 s" in slow["reason"]
    assert "has not been heard of for 4.00 s" in after["reason"]


def test_a_worker_of_another_rank_that_dies_costs_one_task(launch: Launch, free_port: int) -> None:
    first, other = in_the_middle(launch, free_port)
    (worker,) = other.workers()
    worker.kill()
    assert (first.code(), other.code()) == (1, 1), first.err
    _, slow, after = records(first)
    assert (slow["status"], after["status"]) == ("killed", "ok"), after["reason"]
    assert slow["reason"].startswith(
        f"rank 1 on {socket.gethostname()}: its process was killed (SIGKILL) while running"
    )


def test_a_worker_of_another_rank_that_is_stopped_is_said_to_be(launch: Launch, free_port: int) -> None:
    first, other = in_the_middle(launch, free_port, "--timeout", "6")
    (worker,) = other.workers()
    worker.suspend()
    assert first.code() == 1, first.err
    _, slow, after = records(first)
    assert (slow["status"], after["status"]) == ("timeout", "ok"), after["reason"]
    assert f"rank 1 on {socket.gethostname()} is stopped" in slow["reason"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_without_rank_0_the_others_end_with_their_workers(launch: Launch, free_port: int, how: signal.Signals) -> None:
    first, other = in_the_middle(launch, free_port)
    (worker,) = other.workers()
    os.kill(first.process.pid, how)
    assert other.code() == 1
    assert "is gone, its opmark" in other.err
    assert not worker.is_running()


def test_ctrl_c_of_rank_0_ends_all(launch: Launch, free_port: int) -> None:
    first, other = in_the_middle(launch, free_port)
    os.kill(first.process.pid, signal.SIGINT)
    assert (first.code(), other.code()) == (130, 130)
    assert "rank 0 was interrupted" in other.err


@pytest.mark.parametrize("wrong", [("--backend", "nobodys-cpu"), ("--db", "/dev/null/store.db"), ("--resume",)])
def test_what_only_rank_0_finds_wrong_is_told_to_all_at_once(
    launch: Launch, free_port: int, wrong: tuple[str, ...]
) -> None:
    command = ("run", "all_reduce", "-p", SHORT, "--backend", "lines-cpu", *wrong)
    processes = [launch(by_hand(rank, 2, free_port), *command) for rank in range(2)]
    assert [process.code(within=45) for process in processes] == [2, 2]
    assert "rank 0: " in processes[1].err
