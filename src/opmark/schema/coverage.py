"""Coverage: how much of a framework can be measured, and how."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

TIERS = {
    1: "curated: parameters, cost, reference",
    2: "any callable, with arguments that you give",
    3: "with a sample of the framework's own, enlarged where that works",
}


class Covered(Struct, frozen=True):
    """One operator of a framework."""

    name: str
    function: str
    tiers: list[int]
    catalogue: list[str]
    """The operators of the catalogue that are about it."""
    differentiable: bool
    outcomes: dict[str, str] = {}
    """What became of it by phase, in the run that was looked at: `ok`, or status and reason."""

    @property
    def reason(self) -> str:
        """Why it is not covered, or not measured where it was tried; empty where all is well."""
        if not self.tiers:
            return "the framework names no function for it, and its database has no sample here"
        return self.outcomes.get("forward", "ok").removeprefix("ok")


class Coverage(Struct, frozen=True):
    framework: str
    operators: list[Covered]
    run: str = ""
    """The run that the outcomes are from; empty if there is none."""

    def of_tier(self, tier: int) -> list[Covered]:
        return [covered for covered in self.operators if tier in covered.tiers]

    def count(self, among: Iterable[Covered], phase: str) -> int:
        """Those that were measured in a phase."""
        return sum(covered.outcomes.get(phase) == "ok" for covered in among)

    def uncovered(self) -> list[Covered]:
        return [covered for covered in self.operators if covered.reason]


class Implemented(Struct, frozen=True):
    """An operator of the catalogue, and what computes it."""

    op: str
    category: str
    differentiable: bool
    backends: dict[str, list[str]]
    """Labels of its implementations, by the backends that have any."""
    lacks: dict[str, str] = {}
    """Why a backend that has an implementation cannot run it, where that is known beforehand."""
    verified: dict[str, list[str]] = {}
    """Phases in which a stored run found its result right, by backend."""


class Matrix(Struct, frozen=True):
    """Operators x backends, told without importing a framework."""

    backends: dict[str, str]
    """What computes, by name, with the name that it has without its device: `torch-cpu` is `torch`."""
    differentiate: list[str]
    """Those of them that can run a backward phase."""
    operators: list[Implemented]
    runs: int = 0
    """Stored ones that were looked at."""

    def forward(self, backend: str) -> frozenset[str]:
        return frozenset(one.op for one in self.operators if backend in one.backends and backend not in one.lacks)

    def backward(self, backend: str) -> frozenset[str]:
        gradients = {one.op for one in self.operators if one.differentiable}
        return self.forward(backend) & gradients if backend in self.differentiate else frozenset()

    def verified(self, backend: str, phase: str) -> frozenset[str]:
        return frozenset(one.op for one in self.operators if phase in one.verified.get(backend, ()))
