"""Checks on a machine with two or more GPUs what a machine with one cannot show: `python -m benchmarks.two_gpus`.

Each check prints a line that begins with pass, fail or skipped. The exit code is 0 if none failed, 1 if one did, and 2
where there are not two GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import opmark
from opmark.api.result import Result, open_store
from opmark.errors import UserError
from opmark.hardware.clock_guard import lease_state
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import catalogue
from opmark.runner.clocks import FACT
from opmark.units import count_noun, percent, rate

BACKEND = "torch-cuda"
SIZES = ["8", "4K", "1M", "64M"]
DTYPES = ["float32", "float16", "bfloat16", "int32"]
LARGE = "256M"
LEAST_OF_LINK, MOST_OF_LINK = 0.1, 1.05
"""Shares of a link's bandwidth between which a large all_reduce has to be."""
_LONGEST = 900.0
"""Seconds that a process which a check starts may take."""
_GPUS = """
import torch
for i in range(torch.cuda.device_count()):
    print(torch.cuda.get_device_properties(i).uuid)
"""


class CheckOutcome(NamedTuple):
    word: Literal["pass", "fail", "skipped"]
    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.word}: {self.name}: {self.detail}"


@dataclass(frozen=True)
class Machine:
    """What the checks run on."""

    backend: str
    ranks: int
    gpus: Sequence[str]
    """UUIDs as the framework numbers the GPUs; empty for a backend without any."""
    folder: Path

    def run(self, *ops: str, **options: Any) -> Result:
        """Measure on all ranks, into a store of its own."""
        given = {
            "backend": self.backend,
            "effort": "quick",
            "ranks": self.ranks,
            "retries": 0,
            "say": lambda text: None,
        }
        return opmark.run(ops, db=self.folder / "store.db", **{**given, **options})

    def start(self, *command: str, **environ: str) -> StartedRun:
        """Start an `opmark run` of one case, or a launcher of several, with a store of its own."""
        db = Path(tempfile.mkdtemp(dir=self.folder)) / "store.db"
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                *command,
                "--backend",
                self.backend,
                "--effort",
                "quick",
                "--retries",
                "0",
                "--json",
            ],
            env={**os.environ, **environ, "OPMARK_DB": str(db)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return StartedRun(process, db)


class StartedRun(NamedTuple):
    process: subprocess.Popen[str]
    db: Path

    def finish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Wait for its end, and return the row of its case and the facts of the environment. Raise RuntimeError where
        the case was not measured."""
        printed, said = self.process.communicate(timeout=_LONGEST)
        lines = printed.splitlines()
        if self.process.returncode != 0 or len(lines) != 1:
            raise RuntimeError(f"exit code {self.process.returncode}: {(said or printed).strip()[-500:]}")
        row: dict[str, Any] = json.loads(lines[0])
        with closing(open_store(self.db)) as store:
            (environment,) = store.environments([row["environment"]]).values()
        return row, environment.facts


Outcomes = Iterator[CheckOutcome]


def own_devices(machine: Machine) -> Outcomes:
    name = "each rank has a GPU of its own"
    if not machine.gpus:
        yield CheckOutcome("skipped", name, f"{machine.backend} has no GPUs to tell apart")
        return
    result = machine.run("all_reduce", params={"size": "1K"})
    (facts,) = result.environments.values()
    taken, expected = facts.get("gpu_uuids", []), list(machine.gpus[: machine.ranks])
    word = "pass" if taken == expected else "fail"
    yield CheckOutcome(word, name, f"ranks took {', '.join(map(str, taken))}, expected {', '.join(expected)}")


def other_order(machine: Machine) -> Outcomes:
    name = "CUDA_VISIBLE_DEVICES in another order gives the ranks other GPUs"
    if not machine.gpus:
        yield CheckOutcome("skipped", name, f"{machine.backend} has no GPUs to tell apart")
        return
    turned = [*machine.gpus[: machine.ranks]][::-1]
    listed = ",".join(f"GPU-{uuid}" for uuid in turned)
    command = ("opmark", "run", "all_reduce", "-p", "size=1K", "--ranks", str(machine.ranks))
    _, facts = machine.start(*command, CUDA_VISIBLE_DEVICES=listed).finish()
    taken = facts.get("gpu_uuids", [])
    yield CheckOutcome("pass" if taken == turned else "fail", name, f"ranks took {', '.join(map(str, taken))}")


def collectives(machine: Machine) -> Outcomes:
    """One line for each collective: all sizes and element types, verified on every rank."""
    for name in sorted(op.name for op in catalogue().values() if op.ranks and op.category == "communication"):
        if name == "p2p":
            continue  # `pairs` has it
        found = catalogue()[name].by_name
        params = {"size": SIZES} if "size" in found else {}
        if "dtype" in found:
            params["dtype"] = [dtype for dtype in DTYPES if dtype in found["dtype"].choices]
        try:
            result = machine.run(name, params=params, size=() if "size" in found else "small")
        except UserError as error:  # nothing of it can run here
            yield CheckOutcome("fail" if machine.gpus else "skipped", name, error.message)
            continue
        bad = [record for record in result.records if record.status != "ok"]
        cases = count_noun(len(result.records), "case")
        engine = {facts.get("engine") for facts in result.environments.values()}
        if bad:
            first = bad[0]
            detail = f"{len(bad)} of {cases} failed: {first.task.case.params}: {first.status}: {first.reason}"
            yield CheckOutcome("fail", name, detail)
        elif machine.gpus and engine != {"nccl"}:
            yield CheckOutcome("fail", name, f"went over {', '.join(map(str, engine))} instead of NCCL")
        else:
            detail = f"{cases} verified on {machine.ranks} ranks over {', '.join(map(str, engine))}"
            yield CheckOutcome("pass", name, detail)


def pairs(machine: Machine) -> Outcomes:
    """Messages between every pair of ranks, and the copy of each rank to itself."""
    ranks = list(range(machine.ranks))
    result = machine.run("p2p", params={"size": ["4K", "16M"], "src": ranks, "dst": ranks})
    both = machine.run("p2p", params={"size": "16M", "pattern": ["both_ways", "ping_pong"]})
    records = [*result.records, *both.records]
    bad = [record for record in records if record.status != "ok"]
    detail = f"{bad[0].task.case.params}: {bad[0].reason}" if bad else f"{count_noun(len(records), 'case')} verified"
    yield CheckOutcome("fail" if bad else "pass", "p2p between all pairs, and each rank's copy to itself", detail)


def transfers(machine: Machine) -> Outcomes:
    name = "copies between the host and all devices at once"
    if not machine.gpus:
        yield CheckOutcome("skipped", name, f"{machine.backend} has no memory of its own")
        return
    result = machine.run("host2device", "device2host", params={"size": ["4K", "64M"], "pinned": [True, False]})
    bad = [record for record in result.records if record.status != "ok"]
    cases = count_noun(len(result.records), "case")
    yield CheckOutcome("fail" if bad else "pass", name, bad[0].reason if bad else f"{cases} verified")


def bandwidth(machine: Machine) -> Outcomes:
    name = f"bus bandwidth of an all_reduce of {LARGE} against the link"
    if not machine.gpus:
        yield CheckOutcome("skipped", name, f"{machine.backend} has no link")
        return
    (row,) = machine.run("all_reduce", params={"size": LARGE}).rows()
    bus, link = row["metrics"]["bus_bandwidth"], row["metrics"]["of_link"]
    if bus is None:
        yield CheckOutcome("fail", name, f"{row['status']}: {row['reason']}")
    elif link is None:
        yield CheckOutcome("skipped", name, f"{rate(bus, 'B/s')}, but no file has the link of this chip")
    else:
        within = LEAST_OF_LINK <= link["share"] <= MOST_OF_LINK
        hint = "" if within else "; `nvidia-smi topo -m` says how the GPUs are connected"
        detail = f"{rate(bus, 'B/s')}, {percent(link['share'])} of {link['link']}{hint}"
        yield CheckOutcome("pass" if within else "fail", name, detail)


def groups(machine: Machine) -> Outcomes:
    name = "two groups at once"
    if machine.ranks % 2 or machine.ranks < 4:
        yield CheckOutcome("skipped", name, f"needs 4 ranks or more, an even number, and there are {machine.ranks}")
        return
    result = machine.run("all_reduce", "all_gather", params={"size": "1M"}, group_size=machine.ranks // 2)
    bad = [record for record in result.records if record.status != "ok"]
    yield CheckOutcome("fail" if bad else "pass", name, bad[0].reason if bad else "verified")


_FAULTS = {"kill": "killed", "raise": "error", "wrong": "wrong", "hang": "timeout"}
"""What a rank does, and the status of the record."""


def faults(machine: Machine) -> Outcomes:
    """A rank that fails costs one record, and the next task is measured."""
    last = machine.ranks - 1
    for kind, status in _FAULTS.items():
        entries = [
            {"op": "fault_ranks", "params": {"kind": kind, "size": 4096, "rank": last}},
            {"op": "all_reduce", "params": {"size": 4096}},
        ]
        whole = {"schema": 1, "name": "faults", "cases": entries}
        timeout = 20.0 if kind == "hang" else 120.0
        failed, after = machine.run(workload=whole, timeout=timeout).records
        good = failed.status == status and after.status == "ok"
        detail = f"{failed.status}: {failed.reason}; then {' '.join(filter(None, (after.status, after.reason)))}"
        yield CheckOutcome("pass" if good else "fail", f"a rank that fails by `{kind}` becomes a record", detail)


def too_many_ranks(machine: Machine) -> Outcomes:
    name = "more ranks than GPUs are refused"
    if not machine.gpus:
        yield CheckOutcome("skipped", name, f"ranks of {machine.backend} share it")
        return
    try:
        machine.run("all_reduce", params={"size": "4K"}, ranks=len(machine.gpus) + 1)
    except UserError as error:
        word = "pass" if "need a device each" in error.message else "fail"
        yield CheckOutcome(word, name, error.message)
    else:
        yield CheckOutcome("fail", name, "they were measured")


def sensors(machine: Machine) -> Outcomes:
    """Each GPU alone: the sensors that are read have to be its own."""
    for number, uuid in enumerate(machine.gpus):
        command = ("opmark", "run", "add", "-p", "shape=1024x1024")
        _, facts = machine.start(*command, CUDA_VISIBLE_DEVICES=f"GPU-{uuid}").finish()
        own, read = facts.get("gpu_uuid") == uuid, facts.get("sensors")
        word = "pass" if own and read == "read" else "fail"
        yield CheckOutcome(word, f"GPU {number} alone, with its own sensors", f"{facts.get('gpu_uuid')}, {read}")


def at_once(machine: Machine) -> Outcomes:
    name = "two runs at once, each on a GPU of its own"
    if not machine.gpus:
        yield CheckOutcome("skipped", name, f"{machine.backend} has no GPUs to tell apart")
        return
    command = ("opmark", "run", "matmul", "-p", "M=1024", "-p", "N=1024", "-p", "K=1024")
    chosen = machine.gpus[:2]
    started = [machine.start(*command, CUDA_VISIBLE_DEVICES=f"GPU-{uuid}") for uuid in chosen]
    taken = [run.finish()[1].get("gpu_uuid") for run in started]
    yield CheckOutcome("pass" if taken == list(chosen) else "fail", name, f"they took {', '.join(map(str, taken))}")


def clocks(machine: Machine) -> Outcomes:
    name = "--clocks lock locks the clock of every rank's GPU, and sets it back"
    if not machine.gpus:
        yield CheckOutcome("skipped", name, f"{machine.backend} has no clock to lock")
        return
    result = machine.run("all_reduce", params={"size": "1K"}, clocks="lock")
    (facts,) = result.environments.values()
    found = facts[FACT] if isinstance(facts[FACT], list) else [facts[FACT]]
    refused = [text for text in found if not text.startswith("locked")]
    if refused:
        yield CheckOutcome("skipped", name, refused[0])
        return
    left = [uuid for uuid in facts["gpu_uuids"] if lease_state(uuid)[0]]
    detail = f"still locked: {', '.join(left)}" if left else "; ".join(found)
    yield CheckOutcome("fail" if left else "pass", name, detail)


def launched(machine: Machine) -> Outcomes:
    """The same command in each process of a launcher."""
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", str(machine.ranks), "--module")
    row, _ = machine.start(*launcher, "opmark", "run", "all_reduce", "-p", "size=1M").finish()
    good = row["params"]["ranks"] == machine.ranks
    yield CheckOutcome("pass" if good else "fail", "under torchrun", f"{row['params']['ranks']} ranks, {row['status']}")


CHECKS: tuple[Callable[[Machine], Outcomes], ...] = (
    own_devices, other_order, collectives, pairs, transfers, bandwidth, groups, faults, too_many_ranks, sensors,
    at_once, clocks, launched,
)  # fmt: skip


def list_gpus() -> list[str]:
    """Return the UUIDs of the GPUs that torch sees, in its order."""
    done = subprocess.run([sys.executable, "-c", _GPUS], capture_output=True, text=True, check=False)
    return done.stdout.split()


def run_checks(machine: Machine, chosen: Sequence[str] = ()) -> Iterator[CheckOutcome]:
    """Yield the outcome of each check. One that breaks has failed, and the others still run."""
    for check in CHECKS:
        if chosen and check.__name__ not in chosen:
            continue
        try:
            yield from check(machine)
        except Exception as error:  # noqa: BLE001 - whatever breaks a check is its outcome
            yield CheckOutcome("fail", check.__name__, f"{type(error).__name__}: {error}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_gpus", description=__doc__)
    parser.add_argument("checks", nargs="*", help=f"only these of {', '.join(check.__name__ for check in CHECKS)}")
    parser.add_argument("--ranks", type=int, help="how many GPUs take part (default: all)")
    parser.add_argument("--backend", default=BACKEND, help=argparse.SUPPRESS)  # a CPU tries the checks themselves
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.checks) - {check.__name__ for check in CHECKS})
    if unknown:
        parser.error(f"no check is called {', '.join(unknown)}")
    gpus = [] if find_backend(asked.backend).device == "cpu" else list_gpus()
    if len(gpus) < 2 and find_backend(asked.backend).device != "cpu":
        print(f"torch sees {count_noun(len(gpus), 'GPU')} here, and these checks need two")
        return 2
    ranks = asked.ranks or max(2, len(gpus))
    if gpus and not 2 <= ranks <= len(gpus):
        parser.error(f"--ranks: expected from 2 to {len(gpus)}, got {ranks}")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for outcome in run_checks(Machine(asked.backend, ranks, gpus, Path(folder)), asked.checks):
            print(outcome, flush=True)
            failed += outcome.word == "fail"
    print(f"{count_noun(failed, 'check')} failed" if failed else "no check failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
