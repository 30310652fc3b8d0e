"""TunedEntry: what a tuning has found for one case on one target, with the verdicts that it rests on."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, to_builtins

from opmark.schema.case import Phase, content_id
from opmark.schema.comparison import Verdict

KnobValue = bool | int | float | str | tuple[int, ...]


class TuningTarget(Struct, frozen=True):
    """Where a configuration was tuned: on another chip, with another driver, compiler or number of threads, another one
    may be the best."""

    device: str
    """`cpu`, `cuda`, or the vendor's name of the device."""
    chip: str
    driver: str = ""
    versions: dict[str, str] = {}
    """Versions of the framework and of the compilers that it uses."""
    threads: int = 0
    """0 for a device that does not compute with threads of the host."""

    @property
    def id(self) -> str:
        return content_id(to_builtins(self))

    def differences(self, other: TuningTarget) -> list[str]:
        """Return in what another target differs, for people: `driver 570.1, now 580.2`."""
        mine, theirs = self.facts(), other.facts()
        return [
            f"{name} {mine.get(name) or 'unknown'}, now {theirs.get(name) or 'unknown'}"
            for name in dict.fromkeys((*mine, *theirs))
            if mine.get(name) != theirs.get(name)
        ]

    def facts(self) -> dict[str, Any]:
        plain = {"device": self.device, "chip": self.chip, "driver": self.driver, "threads": self.threads}
        return {**plain, **self.versions}


class TunedEntry(Struct, frozen=True):
    op: str
    params: dict[str, Any]
    case: str
    """Id of the case."""
    backend: str
    """Name of the backend, without `/tuned` and without an interpreter."""
    implementation: str
    """Label of the implementation that the configuration is for; empty where the default stays."""
    configuration: dict[str, KnobValue]
    """Empty where the default stays: nothing that was tried is surely faster."""
    target: TuningTarget
    source: str = ""
    """Hash of the sources of the implementation and of its space; empty if unknown, as for an imported entry."""
    phase: Phase = "forward"
    dtype: str = ""
    verdict: Verdict | str = ""
    """The tuned configuration against the default, measured in turns; empty where that was not measured."""
    default_seconds: float | None = None
    tuned_seconds: float | None = None
    library: str = ""
    """The vendor library that both were compared with."""
    library_seconds: float | None = None
    library_verdict: Verdict | str = ""
    """The tuned configuration, or the default where that stays, against the library."""
    tuner: str = ""
    trials: int = 0
    """Configurations that were tried."""
    run: str = ""
    """Id of the run whose records are all that was tried."""
    compared: tuple[str, ...] = ()
    """Ids of the runs that were measured in turns for the verdicts."""
    made: str = ""
    """UTC, ISO 8601."""
    origin: str = "opmark"
    """The system that tuned it, for an entry that was imported."""
    note: str = ""

    @property
    def id(self) -> str:
        return content_id(to_builtins(self))

    @property
    def default_stays(self) -> bool:
        return not self.configuration
