"""Company: what runs at the same time as a task, on the same machine, while the task is measured."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from opmark.schema.case import Case, Phase

if TYPE_CHECKING:
    from opmark.schema.task import Task

Values = tuple[tuple[str, bool | int | float | str | tuple[int, ...]], ...]


class Companion(Struct, frozen=True):
    """A task beside another one, as that one's settings name it: everything that decides what it does to its
    neighbour."""

    op: str
    params: str
    """All parameters as JSON, because settings are hashed."""
    phase: Phase
    backend: str
    implementation: str
    threads: int
    cores: tuple[int, ...] = ()
    """Cores that its process is pinned to; empty: it is not pinned."""
    wrt: tuple[str, ...] = ()
    configuration: Values = ()

    @classmethod
    def of(cls, task: Task, cores: tuple[int, ...]) -> Companion:
        """Describe a task that is pinned to these cores."""
        case, settings = task.case, task.settings
        params = json.dumps(case.params, separators=(",", ":"))
        return cls(
            case.op, params, case.phase, task.backend, task.implementation, settings.threads, cores, case.wrt,
            settings.configuration,
        )  # fmt: skip

    @property
    def case(self) -> Case:
        return Case.of(self.op, json.loads(self.params), self.phase, wrt=self.wrt)

    @property
    def text(self) -> str:
        """The companion in few words, which differ where what it does differs: `softmax#1a2b3c4d torch-cpu ×1 on core
        1`."""
        chosen = " tuned" if self.configuration else ""
        where = f" on {cores_text(self.cores)}" if self.cores else ""
        return f"{self.op}#{self.case.id[:8]} {self.backend}/{self.implementation} ×{self.threads}{chosen}{where}"


class Company(Struct, frozen=True):
    """The operators that a task runs together with. A task that was measured `alone`, in turns with being measured
    together, has a company too: so what is measured for a co-run is never taken for anything else."""

    others: tuple[Companion, ...]
    """In the order in which they were named."""
    cores: tuple[int, ...] = ()
    """Cores that the task itself is pinned to; empty: it is not pinned."""
    place: int = 0
    """Place of the task among all that run together: the same operator may be named twice."""
    alone: bool = False
    """Whether the others are silent meanwhile."""
    streams: bool = False
    """Whether all of them are in one process, each on a stream of the device, and not each in a process of its own."""

    @property
    def text(self) -> str:
        """The company as tables name it. Figures are compared only where this is the same."""
        here = f"on {cores_text(self.cores)}" if self.cores else ""
        if self.alone:
            return " ".join(filter(None, ("alone", here)))
        beside = f"beside {', '.join(one.text for one in self.others)}"
        return "; ".join(filter(None, (here, beside)))


def cores_text(cores: Iterable[int]) -> str:
    """Return cores as people read them: `core 3`, `cores 0-3,8`."""
    chosen = sorted(cores)
    runs: list[list[int]] = []
    for core in chosen:
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    listed = ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"core{'s' * (len(chosen) > 1)} {listed}"


def shares_cores(company: Company) -> bool:
    """Whether one of the others may run on a core of the task."""
    return any(not (company.cores and one.cores) or set(company.cores) & set(one.cores) for one in company.others)
