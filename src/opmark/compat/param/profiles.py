"""PARAM's --ncu, --nsys and -p: profilers that look at batches of cases, and the lines that say what they wrote."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opmark.compat.param.result import CaseResult
from opmark.errors import UserError
from opmark.exporters.param_lines import PHASES, Place, place_of
from opmark.interfaces import Watched
from opmark.runner.profiling import Profiling, arguments_in
from opmark.schema import Profile, Task

BATCHED = ("ncu", "nsys")
TRACE = "trace"
_MOST = 10_000_000
"""One trace for the whole run."""


def profilings(given: argparse.Namespace, stem: str) -> list[Profiling]:
    """Their own files go into a folder beside the result file."""
    usual = {"folder": f"{stem}_profiles", "label": label, "timeout": max(600.0, given.timeout)}
    found = []
    for name in BATCHED:
        if not getattr(given, name):
            continue
        args = getattr(given, f"{name}_args_file")
        found.append(
            Profiling(
                name,
                bin=getattr(given, f"{name}_bin"),
                args=arguments_in(args) if args else (),
                warmup=getattr(given, f"{name}_warmup"),
                iterations=getattr(given, f"{name}_iteration"),
                batch=given.run_batch_size,
                device=None if given.batch_cuda_device is None else str(given.batch_cuda_device),
                program=shlex.split(given.batch_cmd) if given.batch_cmd else (),
                **usual,
            )
        )
    if given.profile:
        counts = {"warmup": given.warmup, "iterations": max(1, given.iteration)}
        found.append(Profiling(TRACE, batch=_MOST, **counts, **usual))
    for profiling in found:
        _check(profiling)
    return found


def _check(profiling: Profiling) -> None:
    """A mistake is named before anything is measured."""
    profiler, name = profiling.chosen(), profiling.profiler
    try:
        profiler.command(Watched((), (), Path(name), profiling.bin or "", profiling.args))
    except FileNotFoundError as error:
        raise UserError(
            f"--{name}: {error}".partition("; --profiler-bin")[0], f"--{name}-bin says where it is"
        ) from None


def refuse_without_profiler(given: argparse.Namespace) -> None:
    """Options that only a profiler reads."""
    for name in BATCHED:
        for option in ("bin", "args_file"):
            if getattr(given, f"{name}_{option}") is not None and not getattr(given, name):
                raise UserError(f"--{name}-{option.replace('_', '-')} goes with --{name}", f"add --{name}")
    for option in ("batch_cmd", "batch_cuda_device"):
        if getattr(given, option) is not None and not (given.ncu or given.nsys):
            raise UserError(f"--{option.replace('_', '-')} goes with --ncu or --nsys", "add one of them")


def label(task: Task) -> str:
    """As PARAM calls the range of a case."""
    place = next((found for found in map(place_of, task.case.sources) if found), None)
    return f"[param|{place or task.case.op}|measure|{PHASES[task.case.phase]}]"


@dataclass(frozen=True)
class Batch:
    """Cases that one start of a profiler looked at."""

    profile: Profile
    first: Place
    last: Place

    def line(self, options: dict[str, Any]) -> dict[str, Any]:
        name = self.profile.profiler
        return {
            f"{name}_file": self.profile.file,
            f"{name}_cmd_str": self.profile.command,
            "config": {"run_options": options},
            "start_run_id": self.first.id,
            "end_run_id": self.last.id,
            "opmark": {"start_op_run_id": str(self.first), "end_op_run_id": str(self.last)},
        }


class Batches:
    """Tells where one batch ends and the next begins, by the file that a profiler wrote."""

    def __init__(self, asked: list[Profiling]) -> None:
        self._asked = [profiling.profiler for profiling in asked]
        self._open: dict[str, Batch] = {}
        self.traces: dict[str, None] = {}
        self.missing = 0
        """Measured, and without the profile that was asked for."""

    def add(self, result: CaseResult) -> Iterator[Batch]:
        """The batches that are complete now that this case is there."""
        for record in result.records:
            told = {profile.profiler: profile for profile in record.profiles}
            self.missing += sum(record.status == "ok" and name not in told for name in self._asked)
            if TRACE in told:
                self.traces[told[TRACE].file] = None
            for name in BATCHED:
                if name in told:
                    yield from self._next(told[name], result.place)

    def _next(self, profile: Profile, place: Place) -> Iterator[Batch]:
        before = self._open.get(profile.profiler)
        if before and before.profile.file == profile.file:
            self._open[profile.profiler] = replace(before, last=place)
            return
        if before:
            yield before
        self._open[profile.profiler] = Batch(profile, place, place)

    def left(self) -> Iterator[Batch]:
        yield from self._open.values()


def named_as_param(trace: str, stem: str) -> str:
    """The same file under PARAM's name for it."""
    name = f"{stem}_trace.json"
    try:
        os.link(trace, name)
    except OSError:  # another file system
        shutil.copyfile(trace, name)
    return str(Path(name))
