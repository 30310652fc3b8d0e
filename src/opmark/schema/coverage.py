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
