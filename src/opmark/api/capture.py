"""What a torch program computes, in files: `opmark capture` and `opmark.capture`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from opmark.analysis.hotspots import StepProfile, make_step_profile
from opmark.api.extract import model_case
from opmark.api.keywords import typed
from opmark.api.program_requests import CaptureRequest
from opmark.api.result import machine_facts, open_store
from opmark.errors import StoreError, UserError
from opmark.hardware.datasheets import datasheet
from opmark.hardware.host import affinity, cpu_model
from opmark.schema.call_group import CapturedSteps
from opmark.schema.case import MODEL_PREFIX
from opmark.schema.machine import Peaks, chip
from opmark.schema.options import PathLike
from opmark.scratch import ScratchFolder
from opmark.traces.capture import Capture, file_names, rank_of
from opmark.traces.program import CaptureOrder, CaptureReport
from opmark.units import count_noun

_NO_TORCH = "a capture needs torch, which is not installed here"
_QUIET = {"KINETO_LOG_LEVEL": "6", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Variables that keep torch from announcing that it profiles; what the user has set wins."""


@typed
def capture(
    path: PathLike,
    *,
    skip: int = 0,
    warmup: int = 0,
    steps: int | None = None,
    values: bool = False,
    ranges: bool = True,
    kernels: bool = False,
    overwrite: bool = False,
) -> Capture:
    """Return a context manager that captures the calls of torch in its block, into `path` and NAME.kineto.json beside
    it; docs/traces.md says what is in them."""
    return Capture(
        path, skip=skip, warmup=warmup, steps=steps, values=values, ranges=ranges, kernels=kernels, overwrite=overwrite
    )


@dataclass(frozen=True)
class ProgramCapture:
    """What became of a program that was captured."""

    exit_code: int
    """The program's own; 1 if that is 0 and nothing was captured."""
    files: tuple[Path, ...] = ()
    profile: StepProfile | None = None
    """With `top`: its operators by their share of the time."""


def capture_program(request: CaptureRequest) -> ProgramCapture:
    """Run a program in a child process as `python` would, and capture it."""
    program, *arguments = [request.program] if isinstance(request.program, str) else request.program or [""]
    if not program:
        raise UserError("no program is named", "as in opmark capture train.py, or opmark capture --top model.py:step")
    model = _check_program(program, arguments, request)
    if find_spec("torch") is None:
        raise UserError(_NO_TORCH, "pip install 'opmark[torch]'")
    path = Path(request.output) if request.output else _free_name(program, request)
    capture(path, overwrite=request.overwrite).check_path()
    with ScratchFolder("capture") as folder:
        report = Path(folder) / "report.json"
        order = CaptureOrder(
            str(path), str(report), request.skip, request.warmup, request.steps, request.values, request.ranges,
            request.kernels, request.overwrite, request.module, request.stop or request.top, request.top, model,
        )  # fmt: skip
        command = [sys.executable, "-m", "opmark.traces.program", msgspec.json.encode(order).decode(), program]
        code = _run([*command, *arguments])
        if not report.exists():
            if code == 0:
                raise UserError(
                    "the program ended without a capture: it left Python without its usual end, as os._exit does",
                    "give --steps, so that files are written before that",
                )
            return ProgramCapture(code)
        found = msgspec.json.decode(report.read_bytes(), type=CaptureReport)
    profile = _profile(found.captured, request.db) if found.captured else None
    return ProgramCapture(code, tuple(map(Path, found.files)), profile)


def _check_program(program: str, arguments: list[str], request: CaptureRequest) -> dict[str, Any] | None:
    """Raise UserError where there is no such program. Return the parameters of a model, if it is one."""
    if request.module:
        return None
    if program.startswith(MODEL_PREFIX):
        return dict(model_case(program, None, "").params)
    place, _, function = program.rpartition(":")
    file = Path(place or program)
    if place and not place.endswith(".py"):
        return None  # MODULE:FUNCTION, which the child finds or names
    if not file.is_file():
        raise UserError(f"there is no file {file}", "as in opmark capture train.py --lr 0.1, or model.py:step")
    if place and arguments:
        given = " ".join(arguments)
        hint = "a script takes arguments, as in train.py --lr 0.1"
        if given.startswith("-"):
            top = "--top " if request.top else ""
            hint = f"options of capture stand before the program, as in opmark capture {given} {top}{program}"
        raise UserError(f"`{function}` is called without arguments, got {given}", hint)
    return None


def _free_name(program: str, request: CaptureRequest) -> Path:
    """Return the first name that no capture has yet, or that may be overwritten: train.trace.json, train-2.trace.json
    and so on."""
    place = program.rpartition(":")[0] or program
    stem = program.rpartition(".")[2] if request.module else Path(place).name.removesuffix(".py")
    if program.startswith(MODEL_PREFIX):
        stem = Path(program.removeprefix(MODEL_PREFIX).rpartition(":")[0] or program).name.removeprefix(MODEL_PREFIX)
    names = (Path(f"{stem}{'' if i == 1 else f'-{i}'}.trace.json") for i in count(1))
    return next(
        name for name in names if request.overwrite or not any(file.exists() for file in file_names(name, rank_of()))
    )


def _run(command: list[str]) -> int:
    """Run a program with this one's streams, and return its exit code. Ctrl-C reaches it by itself; SIGTERM is handed
    on."""
    child = subprocess.Popen(command, env=_QUIET | os.environ)
    if threading.current_thread() is not threading.main_thread():
        return _code(child.wait())
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: child.terminate()),
    }
    try:
        return _code(child.wait())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _code(returned: int) -> int:
    """Return the exit code as a shell says it: 128 and more for a signal."""
    return 128 - returned if returned < 0 else returned


def _profile(captured: CapturedSteps, db: PathLike | None) -> StepProfile:
    facts: dict[str, Any] = {**captured.facts, "cpu": cpu_model(), "cores": len(affinity())}
    gpu, threads = facts.get("gpu"), facts.get("threads")
    where = str(gpu) if gpu else f"{facts['cpu']}, {count_noun(threads or 1, 'thread')}"
    return make_step_profile(captured, where, _peaks(facts, db))


def _peaks(facts: dict[str, Any], db: PathLike | None) -> Peaks | None:
    """Return the measured peaks of this machine, else its datasheet."""
    threads = facts.get("threads")
    try:
        with closing(open_store(db)) as store:
            known = machine_facts(store, facts)
            return known.measured or known.datasheet
    except StoreError:  # there is no store yet
        return datasheet(chip(facts), threads if isinstance(threads, int) else None)
