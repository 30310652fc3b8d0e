"""PARAM's --ncu, --nsys, -p and --et: profilers of batches of cases, and the result lines that name their files."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opmark.errors import UserError
from opmark.interop.param.exporter import PHASES, ConfigPosition, place_of
from opmark.interop.param.results import CaseResult
from opmark.plugin import Watched
from opmark.runner.profilers.profile_run import Profiling, arguments_in
from opmark.schema import Profile, Task
from opmark.schema.record import MEASURED

BATCHED = ("ncu", "nsys")
TRACE = "trace"
_WHOLE_RUN = 10_000_000
"""Size of a batch that holds all cases of a run."""


def make_profilings(given: argparse.Namespace, stem: str) -> list[Profiling]:
    """Return the requested profilers; their files go into a folder beside the result file."""
    common = {"folder": f"{stem}_profiles", "label": label, "timeout": max(600.0, given.timeout)}
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
                **common,
            )
        )
    if given.profile or given.et:
        counts = {"warmup": given.warmup, "iterations": max(1, given.iteration)}
        args = ("--et",) if given.et else ()
        found.append(Profiling(TRACE, args=args, batch=_WHOLE_RUN, **counts, **common))
    for profiling in found:
        _check(profiling)
    return found


def _check(profiling: Profiling) -> None:
    """Report a missing profiler before anything is measured."""
    profiler, name = profiling.find_profiler(), profiling.profiler
    try:
        profiler.command(Watched((), (), Path(name), profiling.bin or "", profiling.args))
    except FileNotFoundError as error:
        raise UserError(
            f"--{name}: {error}".partition("; --profiler-bin")[0], f"name its path with --{name}-bin"
        ) from None


def refuse_without_profiler(given: argparse.Namespace) -> None:
    """Refuse options of a profiler that is not used."""
    for name in BATCHED:
        for option in ("bin", "args_file"):
            if getattr(given, f"{name}_{option}") is not None and not getattr(given, name):
                raise UserError(f"--{name}-{option.replace('_', '-')} needs --{name}", f"add --{name}")
    for option in ("batch_cmd", "batch_cuda_device"):
        if getattr(given, option) is not None and not (given.ncu or given.nsys):
            raise UserError(f"--{option.replace('_', '-')} needs --ncu or --nsys", "add one of them")


def label(task: Task) -> str:
    """Return PARAM's name of the profiler range of a case."""
    place = next((found for found in map(place_of, task.case.sources) if found), None)
    return f"[param|{place or task.case.op}|measure|{PHASES[task.case.phase]}]"


@dataclass(frozen=True)
class ProfiledCases:
    """The cases of one start of a profiler."""

    profile: Profile
    first: ConfigPosition
    last: ConfigPosition

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
    """Groups cases into batches by the file that a profiler wrote."""

    def __init__(self, profilings: list[Profiling]) -> None:
        self._profilers = [profiling.profiler for profiling in profilings]
        self._open: dict[str, ProfiledCases] = {}
        self.traces: dict[str, None] = {}
        self.missing = 0
        """Number of measured cases without a requested profile."""

    def add(self, result: CaseResult) -> Iterator[ProfiledCases]:
        """Add a case and yield the batches that are complete now."""
        for record in result.records:
            profiles = {profile.profiler: profile for profile in record.profiles}
            self.missing += sum(record.status in MEASURED and name not in profiles for name in self._profilers)
            if TRACE in profiles:
                self.traces[profiles[TRACE].file] = None
            for name in BATCHED:
                if name in profiles:
                    yield from self._extend(profiles[name], result.place)

    def _extend(self, profile: Profile, place: ConfigPosition) -> Iterator[ProfiledCases]:
        before = self._open.get(profile.profiler)
        if before and before.profile.file == profile.file:
            self._open[profile.profiler] = replace(before, last=place)
            return
        if before:
            yield before
        self._open[profile.profiler] = ProfiledCases(profile, place, place)

    def unfinished(self) -> Iterator[ProfiledCases]:
        yield from self._open.values()


def rename_trace(trace: str, name: str) -> str:
    """Link or copy a trace to PARAM's name for it, and return that name."""
    try:
        os.link(trace, name)
    except OSError:  # another file system
        shutil.copyfile(trace, name)
    return str(Path(name))
