"""Nights: the file that `opmark nightly` reads, and what became of each night."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

VERSION = 1
WHEN = ("changed", "failed", "always")
"""Nights on which a hook is called."""


class NightlyEnvironment(Struct, frozen=True, forbid_unknown_fields=True):
    """An environment that has to be there before anything is measured. Its key is what `opmark env create` takes."""

    install: list[str] = []
    python: str = ""
    constraint: str = ""
    renew: bool = False
    """Whether it is made anew every night, so that it has the newest release that `install` allows."""


class NightlyReport(Struct, frozen=True, forbid_unknown_fields=True):
    html: bool = True
    """Whether each run gets a report as an HTML page, beside the summary."""
    keep: int = 60
    """Number of nights whose folders are kept."""


class NightlyHook(Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to tell: a command that gets the night as JSON on its standard input, an address that it is posted to, or
    both."""

    command: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    when: str = "changed"


class NightlyFile(Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    jobs: list[dict[str, Any]]
    """The options of `opmark run` by name, and the keys of a job."""
    label: str = "nightly"
    db: str = ""
    folder: str = ""
    environments: dict[str, NightlyEnvironment] = {}
    gate: dict[str, Any] = {}
    """Options of `opmark check`."""
    history: dict[str, Any] = {}
    """Options of `opmark history`."""
    bisect: dict[str, Any] = {}
    """Options of `opmark bisect`; without any, nothing is bisected."""
    report: NightlyReport = NightlyReport()
    hook: NightlyHook = NightlyHook()
    catch_up: int = 1
    """Number of missed parts of a spread job that a night measures beside its own."""


# What became of nights: the state that is kept between them, and what a hook is told.


class CaseNews(Struct, frozen=True):
    """A case whose outcome is worth telling."""

    op: str
    params: str
    phase: str
    where: str
    quantity: str
    outcome: str
    ratio: float | None = None
    """Tonight over the baseline; of the second measurement in turns, where there was one."""
    low: float | None = None
    high: float | None = None
    why: str = ""


class LevelNews(Struct, frozen=True):
    """A change of level that the history shows for the first time."""

    op: str
    params: str
    backend: str
    quantity: str
    ratio: float
    since: str
    """Id of the first run of the new level."""
    changed: dict[str, Any] = {}
    """Facts of the environment that changed with it."""


class BisectNews(Struct, frozen=True):
    """What a bisection of a slower case found."""

    op: str
    params: str
    package: str
    """Package whose versions were searched; empty for commits."""
    good: str
    bad: str
    first: list[str] = []
    """The first slow commit or version; several, where some had to be skipped; none, where it could not be shown
    again."""
    why: str = ""
    """Why there is no result."""


class NightRun(Struct):
    """One job of a night, or one part of it."""

    job: str
    label: str
    part: str = ""
    caught_up: bool = False
    """Whether the part belongs to a night that was missed."""
    run: str = ""
    """Id of the stored run; empty until it is measured completely."""
    statuses: dict[str, int] = {}
    seconds: float = 0.0
    baseline: str = ""
    """Id of the run that it was compared with."""
    verdict: str = ""
    """`passed`, `failed`, or empty where nothing was compared."""
    counts: dict[str, int] = {}
    """Number of cases by outcome."""
    news: list[CaseNews] = field(default_factory=list)
    history: list[LevelNews] = field(default_factory=list)
    bisected: list[BisectNews] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""
    """Why it could not be measured or compared."""
    files: list[str] = field(default_factory=list)
    done: bool = False


class Night(Struct):
    date: str
    started: str
    label: str = ""
    """Label of the file."""
    runs: list[NightRun] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    """Nights before this one on which nobody started it."""
    problems: list[str] = field(default_factory=list)
    """What failed beside the runs: an environment, a hook."""
    undelivered: dict[str, str] = field(default_factory=dict)
    """By hook (`command`, `url`) that could not be told: its problem. The next start tells it again."""
    finished: str = ""

    @property
    def exit_code(self) -> int:
        failed = any(run.verdict == "failed" or run.problem for run in self.runs)
        return 1 if failed or self.problems else 0

    @property
    def changed(self) -> bool:
        return bool(self.exit_code) or any(run.news or run.history for run in self.runs)


class NightlyState(Struct):
    nights: list[Night] = field(default_factory=list)
    """Oldest first."""
    known_changes: list[str] = field(default_factory=list)
    """Changes of level that were told already."""
