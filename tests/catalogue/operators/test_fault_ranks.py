"""The drill of several ranks: only the named rank fails, in the chosen way."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from opmark.catalogue.operators.fault import KINDS, LATE
from opmark.plugin import Exchange, Peers
from opmark.plugin.registry import operator

pytestmark = pytest.mark.ranks

OP = operator("fault_ranks")

torch = pytest.importorskip("torch")


def build(kind: str, rank: int = 1, first: int = 0, **given: Any) -> Exchange:
    """Build on rank 1 of a group of two, without communicating."""
    params = OP.complete({"kind": kind, "size": 64, "ranks": 4, "group": 2, "rank": rank, **given})
    OP.check_rules(params)
    built: Exchange = OP.implementations[0].build(params, Peers(1, 2, first), x=torch.ones(16))
    return built


class Communicates(Exception):
    """Raised instead of communicating."""


@pytest.fixture(autouse=True)
def nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(*_: Any, **__: Any) -> None:
        raise Communicates

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)


def test_an_error_is_raised_instead_of_the_call() -> None:
    with pytest.raises(RuntimeError, match="raised on purpose"):
        build("raise").start()


def test_memory_runs_out_while_preparing(torch_cpu: Any) -> None:
    with pytest.raises(MemoryError) as caught:
        build("oom")
    assert torch_cpu.classify(caught.value) == "oom"


@pytest.mark.parametrize("kind", KINDS)
def test_all_other_ranks_do_as_usual(kind: str) -> None:
    for other in (0, 2, 3):
        with pytest.raises(Communicates):
            build(kind, rank=other).start()


def test_the_rank_is_one_of_the_world_and_not_of_the_group() -> None:
    with pytest.raises(RuntimeError, match="on purpose"):
        build("raise", rank=3, first=2).start()


def test_calls_before_go_well() -> None:
    exchange = build("raise", after=2)
    for _ in range(2):
        with pytest.raises(Communicates):
            exchange.start()
    with pytest.raises(RuntimeError, match="on purpose"):
        exchange.start()


def test_late_is_late_and_then_does_it() -> None:
    exchange = build("late")
    began = time.perf_counter()
    with pytest.raises(Communicates):
        exchange.start()
    assert time.perf_counter() - began >= LATE


def test_a_wrong_result_is_off_by_one() -> None:
    exchange = build("wrong")
    (spoiled,), (right,) = exchange.outputs(), build("none").outputs()
    assert spoiled.shape == right.shape
    with pytest.raises(Communicates):
        exchange.start()


@pytest.mark.parametrize(("kind", "code"), [("exit", 3), ("kill", -signal.SIGKILL)])
def test_a_process_that_is_to_end_ends(kind: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", CHILD.format(kind=kind)], capture_output=True, timeout=60)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("kind", ["stop", "hang"])
def test_a_process_that_is_to_stand_still_does(kind: str, start_process: Callable[..., Any]) -> None:
    child = start_process(sys.executable, "-c", CHILD.format(kind=kind))
    assert child.stdout.readline() == "begins\n"
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    child.kill()
    assert child.communicate(timeout=60)[0] == "", "it never came to the end"


CHILD = """
from opmark.catalogue.operators.fault import BEFORE_A_CALL
print("begins", flush=True)
BEFORE_A_CALL["{kind}"]()
print("ends", flush=True)
"""
