"""Coverage: which operators of a framework can be measured, and how."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

TIERS = {
    1: "curated: parameters, cost, reference",
    2: "any callable, with arguments that you give",
    3: "with a sample of the framework's own, enlarged where that works",
}


class CoveredOperator(Struct, frozen=True):
    """One operator of a framework."""

    name: str
    function: str
    tiers: list[int]
    catalogue: list[str]
    """Operators of the catalogue that use this function."""
    differentiable: bool
    outcomes: dict[str, str] = {}
    """Outcome by phase in the run that was read: `ok`, or status and reason."""

    @property
    def reason(self) -> str:
        """Why the operator is not covered, or why measuring it failed; empty if neither applies."""
        if not self.tiers:
            return "the framework names no function for it, and its database has no sample here"
        return self.outcomes.get("forward", "ok").removeprefix("ok")


class Coverage(Struct, frozen=True):
    framework: str
    operators: list[CoveredOperator]
    run: str = ""
    """The run that the outcomes are from; empty if no run was read."""

    def of_tier(self, tier: int) -> list[CoveredOperator]:
        return [covered for covered in self.operators if tier in covered.tiers]

    def count(self, among: Iterable[CoveredOperator], phase: str) -> int:
        """Return how many of the operators were measured in a phase."""
        return sum(covered.outcomes.get(phase) == "ok" for covered in among)

    def uncovered(self) -> list[CoveredOperator]:
        return [covered for covered in self.operators if covered.reason]


class ImplementedOperator(Struct, frozen=True):
    """An operator of the catalogue, and the backends that compute it."""

    op: str
    category: str
    differentiable: bool
    backends: dict[str, list[str]]
    """Labels of its implementations, by backend."""
    lacks: dict[str, str] = {}
    """Reasons why a backend that has an implementation still cannot run it, as far as known without running."""
    verified: dict[str, list[str]] = {}
    """Phases in which a stored run verified the result, by backend."""


class Matrix(Struct, frozen=True):
    """Operators x backends, made without importing a framework."""

    backends: dict[str, str]
    """Name of every backend that computes, and its name without the device: `torch-cpu` is `torch`."""
    differentiate: list[str]
    """Backends that can run a backward phase."""
    operators: list[ImplementedOperator]
    runs: int = 0
    """Number of stored runs that were read."""

    def forward(self, backend: str) -> frozenset[str]:
        return frozenset(one.op for one in self.operators if backend in one.backends and backend not in one.lacks)

    def backward(self, backend: str) -> frozenset[str]:
        gradients = {one.op for one in self.operators if one.differentiable}
        return self.forward(backend) & gradients if backend in self.differentiate else frozenset()

    def verified(self, backend: str, phase: str) -> frozenset[str]:
        return frozenset(one.op for one in self.operators if phase in one.verified.get(backend, ()))
