"""One request per command: all of its options, as one object that travels to the plan.

A request is made from the command line or from keyword arguments. `Selection`, `MeasureOptions` and `StoreOptions` are
the parts that the commands share; the other fields of a request are the command's own. Fields with an Option are also
options of the command line, fields without are for Python alone. Annotations are evaluated where they are not quoted.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from opmark.errors import UserError
from opmark.schema.case import MODEL_PREFIX
from opmark.schema.comparison import FAIL_ON
from opmark.schema.options import (
    DEFAULT_COMPILE_TIMEOUT,
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT,
    LONGEST,
    MOST_THREADS,
    SECONDS,
    ExecutorOptions,
    MeasureOptions,
    Names,
    Option,
    OptionSet,
    PathLike,
    Selection,
    StoreOptions,
    options_of,
)
from opmark.schema.progress import OnStep, ignore_step
from opmark.stats.change_point import MARGIN as HISTORY_MARGIN
from opmark.stats.verdict import DRIFT, MARGIN, STAGES

if TYPE_CHECKING:
    from opmark.analysis.rows import Row
    from opmark.api.ab import TurnProgress
    from opmark.api.result import Result
    from opmark.runner.plan import Plan
    from opmark.runner.profilers.profile_run import Profiling
    from opmark.runner.supervisor import WorkerPool
    from opmark.schema import Environment, Record, Run
    from opmark.schema.chart import Chart
    from opmark.schema.comparison import Candidate, Compared
    from opmark.tuning.factor_search import FactorProgress
    from opmark.tuning.search import Trial

EFFORT_OPTION = options_of(MeasureOptions)["effort"].option
TIMEOUT_OPTION = options_of(MeasureOptions)["timeout"].option
DB_OPTION = options_of(StoreOptions)["db"].option
_REPO = Option("The git repository. [default: that of the current folder]", form="path")
RETRIES_OPTION = Option(
    "Further tries, at the end, of what other work on the machine disturbed.", least=0, most=100, example="3"
)
_FEWER_THREADS = Option("Measure what stays disturbed once more, with half of its threads.")
_MAKE = Option("A command to run in a revision's files first, as in 'make -C kernels'.")

PROCESSES_OPTION = Option(
    f"Processes per side at most. [default: {', '.join(map(str, STAGES))} until it is decided]",
    least=2, most=STAGES[-1], example="10",
)  # fmt: skip
BUDGET_OPTION = Option(
    "Seconds after which no further pair of processes is started.",
    above=0, most=LONGEST, unit=SECONDS, example="900",
)  # fmt: skip
MARGIN_OPTION = Option(
    "Differences up to this are called the same: 0.01 or 1%.", least=0, unit="a share", form="share", example="3%"
)


def talk(message: str) -> None:
    """Print a message to stderr; stdout is for data. Control characters are escaped, because a message may quote
    labels."""
    from opmark.report.text import fold_for, harmless

    print(fold_for(sys.stderr, harmless(message)), file=sys.stderr)


def parse_params(ops: Sequence[str], texts: Sequence[str]) -> dict[str, Any]:
    """Return the parameters that `-p NAME=VALUE,VALUE` stands for, with the types that the operators declare."""
    from opmark.runner import selection

    return selection.parse_params(ops, texts)


def model_name(name: str) -> str:
    """Return the name of a model as an operator: where only a model can be meant, the prefix may be left out."""
    return name if name.startswith(MODEL_PREFIX) else f"{MODEL_PREFIX}{name}"


def parse_call(name: str, text: str) -> Any:
    """Return the value of `--args`, `--kwargs` or `--build`, which are written as YAML."""
    from opmark.runner import selection

    return selection.parse_call(name, text)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlanRequest(MeasureOptions, Selection):
    """`opmark run --dry-run`"""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunRequest(ExecutorOptions, StoreOptions, PlanRequest):
    """`opmark run`"""

    resume: Annotated[bool, Option("Continue an interrupted run.")] = False
    retries: Annotated[int, RETRIES_OPTION] = DEFAULT_RETRIES
    fewer_threads: Annotated[bool, _FEWER_THREADS] = False
    profile: "Profiling | Sequence[Profiling] | None" = None
    """Profilers that run the measured cases again, afterwards."""
    session: str = ""
    """Marks the run as a part of something larger, so that histories leave it out."""
    on_start: "Callable[[Run, Plan, list[Record]], None] | None" = None
    on_record: "Callable[[Record], None] | None" = None
    on_row: "Callable[[Row], None] | None" = None
    """Called with each row as soon as its last process has a record."""
    on_environment: "Callable[[Environment], None] | None" = None
    pool: "WorkerPool | None" = None
    """Workers that were started before."""
    say: Callable[[str], None] = talk


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ProfileOptions(OptionSet):
    """The profiler of `opmark run`; Python takes a `Profiling` instead."""

    profiler: Annotated[
        str | None, Option("Profiler to look at what was measured, afterwards: trace, ncu, nsys, command.")
    ] = None  # fmt: skip
    profiler_bin: Annotated[str | None, Option("The profiler's program. [default: found on PATH]")] = None
    profiler_args: Annotated[
        PathLike | None, Option("A file with more arguments for the profiler.", form="path")
    ] = None  # fmt: skip
    profiler_command: Annotated[
        str | None, Option('Command line of any other profiler: "vendorprof -o {output}.csv {program}".')
    ] = None
    profile_iterations: Annotated[
        int, Option("Calls of each task that the profiler sees.", least=1, example="3")
    ] = 1  # fmt: skip
    profile_batch: Annotated[int, Option("Tasks per start of the profiler, at most.", least=1, example="10")] = 50
    profile_timeout: Annotated[
        float, Option("Seconds that a batch may take.", above=0, most=LONGEST, unit=SECONDS, example="600")
    ] = 600.0
    profile_dir: Annotated[
        PathLike | None, Option("Folder for the files of the profiler. [default: opmark-profiles]", form="path")
    ] = None  # fmt: skip


def refuse_compile_only(options: MeasureOptions) -> None:
    if options.compile_only:
        raise UserError(
            "--compile-only measures no calls, so that there is nothing to compare", "`opmark run` has this option"
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TurnOptions(MeasureOptions):
    """How to measure two sides in turns: short processes, because more samples of one process do not help."""

    effort: Annotated[str, EFFORT_OPTION] = "quick"
    processes: Annotated[int | None, PROCESSES_OPTION] = None
    budget: Annotated[float, BUDGET_OPTION] = 900.0
    margin: Annotated[float, MARGIN_OPTION] = MARGIN

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_compile_only(self)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SpaceRequest(Selection):
    """`opmark space`"""

    backend: Annotated[
        Names, Option("Only these backends; none of them has to be installed. [default: all that have knobs]")
    ] = ()  # fmt: skip
    impl: Annotated[str, Option("Only this implementation. [default: all that have knobs]")] = ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TuneRequest(StoreOptions, MeasureOptions, Selection):
    """`opmark tune`"""

    tuner: Annotated[
        str,
        Option("Who chooses the candidates: guided, gridsearch, random, ga, xgb, xgb-rank, xgb_knob, xgb_itervar, "
               "xgb_curve, or one that the backend brings."),
    ] = "guided"  # fmt: skip
    trials: Annotated[
        int, Option("Candidates to measure for each case, at most.", least=1, most=10**6, example="200")
    ] = 100  # fmt: skip
    budget: Annotated[
        float,
        Option("How long the search may take, as in 90s, 10m or 2h; the verdicts come on top.", above=0, most=LONGEST,
               unit=SECONDS, example="10m"),
    ] = 600.0  # fmt: skip
    library: Annotated[
        str, Option("Backend of the vendor library to compare with, or none. [default: torch on the same device]")
    ] = ""  # fmt: skip
    margin: Annotated[float, MARGIN_OPTION] = MARGIN
    effort: Annotated[str, EFFORT_OPTION] = "quick"
    resume: Annotated[bool, Option("Continue an interrupted tuning.")] = False
    operators: frozenset[str] = frozenset()
    """Ids of cases: of the operators of a model, only these are tuned. Empty: all that have knobs."""
    on_case: "Callable[[str, int, int], None] | None" = None
    """Called with each case, its place and the number of cases, before it is searched."""
    on_trial: "Callable[[Trial], None]" = lambda trial: None
    on_record: "Callable[[Record], None] | None" = None
    on_turn: "Callable[[TurnProgress], None] | None" = None
    say: Callable[[str], None] = talk

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_compile_only(self)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FactorsRequest(StoreOptions, MeasureOptions, Selection):
    """`opmark factors`"""

    factor: Annotated[
        Names,
        Option("What to vary: NAME, NAME=LOW:HIGH or NAME=VALUE,VALUE, as in threads=1:8. [default: what --list marks]",
               form="texts"),
    ] = ()  # fmt: skip
    listing: Annotated[
        bool, Option("List what can be varied, its range and how it is controlled here, or why not.", ("--list",))
    ] = False
    run: Annotated[str | None, Option("Read a stored run, instead of measuring.")] = None
    trials: Annotated[
        int, Option("Points to measure at most, each in all processes.", least=3, most=10**6, example="60")
    ] = 60  # fmt: skip
    budget: Annotated[
        float,
        Option("How long to measure, as in 90s, 10m or 2h.", above=0, most=LONGEST, unit=SECONDS, example="10m"),
    ] = 600.0
    interactions: Annotated[bool, Option("Measure pairs of factors too.")] = True
    processes: Annotated[
        int,
        Option("Fresh processes of each point: what differs between them is noise.", least=2, most=100, example="3"),
    ] = 3  # fmt: skip
    effort: Annotated[str, EFFORT_OPTION] = "quick"
    retries: Annotated[int, RETRIES_OPTION] = 1
    resume: Annotated[bool, Option("Continue an interrupted study.")] = False
    on_progress: "Callable[[FactorProgress], None]" = lambda progress: None
    on_record: "Callable[[Record], None] | None" = None
    say: Callable[[str], None] = talk

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_compile_only(self)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ABRequest(ExecutorOptions, StoreOptions, TurnOptions, Selection):
    """`opmark ab`"""

    env: Annotated[
        Names,
        Option("VAR=VALUE for B; twice: for A, then for B. VAR= sets it empty, VAR alone is without it.", form="texts"),
    ] = ()
    rev: Annotated[
        Names, Option("A git revision for A, the files as they are now for B; twice: A, then B.", form="texts")
    ] = ()
    repo: Annotated[PathLike | None, _REPO] = None
    make: Annotated[str, _MAKE] = ""
    same: Annotated[bool, Option("Compare a thing with itself: how much is noise?")] = False
    on_turn: "Callable[[TurnProgress], None] | None" = None
    on_interrupted: "Callable[[Compared], None] | None" = None
    """Called with the comparison so far before Ctrl-C passes on."""
    say: Callable[[str], None] = talk


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class BisectRequest(StoreOptions, TurnOptions, Selection):
    """`opmark bisect`"""

    good: Annotated[str, Option("A git revision that was fast; with --package, a version.")] = ""
    bad: Annotated[str, Option("A later one that is slow.")] = "HEAD"
    package: Annotated[
        str, Option("Search the versions of this package, as in torch, each in an environment of its own.")
    ] = ""
    versions: Annotated[
        Names, Option("These versions, oldest first. [default: all between the two that pip finds]")
    ] = ()  # fmt: skip
    repo: Annotated[PathLike | None, _REPO] = None
    make: Annotated[str, _MAKE] = ""
    on_turn: "Callable[[TurnProgress], None] | None" = None
    on_step: "Callable[[Candidate], None] | None" = None
    say: Callable[[str], None] = talk


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CheckRequest(StoreOptions, MeasureOptions, Selection):
    """`opmark check`"""

    baseline: Annotated[str, Option("The run to hold it against: its label, its id, or STORE::RUN.")] = ""
    current: Annotated[str | None, Option("A stored run to check, instead of measuring now.", ("--run",))] = None
    retries: Annotated[int, RETRIES_OPTION] = DEFAULT_RETRIES
    margin: Annotated[
        float,
        Option(
            "Differences up to this are called the same: 0.03 or 3%.",
            least=0,
            below=1,
            unit="a share",
            form="share",
            example="3%",
        ),
    ] = 0.03
    drift: Annotated[
        float,
        Option(
            "How far apart two sessions of the same code may be; 0 where clocks are locked.",
            least=0,
            below=1,
            unit="a share",
            form="share",
            example="3%",
        ),
    ] = DRIFT
    fail_on: Annotated[
        Names,
        Option(
            f"What makes the check fail: {', '.join(FAIL_ON)}, none. [default: slower,failed]",
            known=(*FAIL_ON, "none"),
            noun="reason to fail",
        ),
    ] = ("slower", "failed")
    against_rev: Annotated[
        str,
        Option(
            "Measure the baseline again as this git revision, or without --baseline, hold the files against it. "
            "[default: the one it is of]"
        ),
    ] = ""
    against_python: Annotated[
        str, Option("Measure the baseline again in this interpreter. [default: the one it was made in]")
    ] = ""
    against_backend: Annotated[str, Option("Measure the baseline again on this backend.")] = ""
    make: Annotated[str, _MAKE] = ""
    budget: Annotated[
        float, Option("Seconds that measuring again may take.", above=0, most=LONGEST, unit=SECONDS, example="900")
    ] = 900.0
    unlike: Annotated[bool, Option("Also where the machines are not alike.")] = False
    on_turn: "Callable[[TurnProgress], None] | None" = None
    measure: "Callable[[RunRequest], Result] | None" = None
    """Measures the current code; None: as `opmark.run` does."""
    in_turns: "Callable[..., Compared] | None" = None
    """Measures two sides in turns; None: as `opmark.ab` does."""
    say: Callable[[str], None] = talk

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_compile_only(self)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class NightlyRequest(OptionSet):
    """`opmark nightly`"""

    file: Annotated[
        PathLike | None, Option("The YAML file that says what a night is.", argument="FILE", form="path")
    ] = field(default=None, kw_only=False)  # fmt: skip
    night: Annotated[str, Option("The date of the night, as in 2030-12-31. [default: today, in UTC]")] = ""
    again: Annotated[bool, Option("Measure the night once more, although it is done.")] = False
    db: Annotated[PathLike | None, Option("The store, in place of the one that the file names.")] = None
    measure: "Callable[[RunRequest], Result] | None" = None
    """Measures a run; None: as `opmark.run` does."""
    on_turn: "Callable[[TurnProgress], None] | None" = None
    say: Callable[[str], None] = talk


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class JudgeRequest(OptionSet):
    """`opmark judge`"""

    candidate: Annotated[
        str, Option("The function to judge: FILE.py:FUNCTION or MODULE:FUNCTION.", argument="CANDIDATE")
    ] = field(kw_only=False)  # fmt: skip
    like: Annotated[str, Option("The operator that it computes, as in `opmark list ops`.")] = ""
    params: Annotated[
        Mapping[str, Any] | None, Option("NAME=VALUE: parameters of the operator.", ("-p", "--param"), form="params")
    ] = None
    size: Annotated[str, Option("small, typical, large: a preset. [default: typical, without parameters]")] = ""
    backend: Annotated[
        str, Option("Whose tensors it takes: torch-cpu, torch-cuda, numpy-cpu, jax-cpu. [default: torch-cpu]")
    ] = ""  # fmt: skip
    baseline: Annotated[
        str, Option("What to compare with: an implementation, or FILE.py:FUNCTION. [default: the backend's first]")
    ] = ""
    threads: Annotated[
        int | None, Option("Threads that it may use. [default: all cores]", least=1, most=MOST_THREADS, example="4")
    ] = None
    effort: Annotated[str, EFFORT_OPTION] = "standard"
    processes: Annotated[int | None, PROCESSES_OPTION] = None
    budget: Annotated[float, BUDGET_OPTION] = 900.0
    margin: Annotated[float, MARGIN_OPTION] = MARGIN
    timeout: Annotated[
        float, Option("Seconds that a call may take.", above=0, most=LONGEST, unit=SECONDS, example="60")
    ] = DEFAULT_TIMEOUT
    compile_timeout: Annotated[
        float, Option("Seconds that loading it may take.", above=0, most=LONGEST, unit=SECONDS, example="300")
    ] = DEFAULT_COMPILE_TIMEOUT
    db: Annotated[PathLike | None, DB_OPTION] = None
    on_pair: Callable[[int, int], None] = lambda pair, until: None
    """Called with the number of the pair of processes that begins, and the number after which there may be a
    verdict."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareOptions(OptionSet):
    """How stored runs are compared."""

    run: Annotated[
        str | None, Option("The run whose backends or interpreters are compared. [default: the last run]")
    ] = None  # fmt: skip
    quantity: Annotated[
        str, Option("As in latency, latency:cold, all. [default: what stands for the case on both sides]")
    ] = ""  # fmt: skip
    margin: Annotated[
        float,
        Option("Differences up to this are called the same: 0.01 or 1%.", least=0, below=1, unit="a share",
               form="share", example="3%"),
    ] = MARGIN  # fmt: skip
    drift: Annotated[
        float | None,
        Option("How far apart two sessions of the same code may be; 0 where clocks are locked. [default: estimated "
               "from stored runs]", least=0, below=1, unit="a share", form="share", example="3%"),
    ] = None  # fmt: skip
    unlike: Annotated[bool, Option("Also where the machines are not alike.")] = False
    db: Annotated[PathLike | None, DB_OPTION] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompareRequest(CompareOptions):
    """`opmark compare`"""

    a: Annotated[
        str,
        Option("A run (id, label, LABEL~1), a store file or STORE::RUN; or a backend or interpreter.", argument="A"),
    ] = field(kw_only=False)
    b: Annotated[
        str, Option("The same: this one is faster or slower than A.", argument="B")
    ] = field(kw_only=False)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReportRequest(CompareOptions):
    """`opmark report`"""

    runs: Annotated[
        Names,
        Option("A run, or several: each is compared with the first. As `compare` takes them. [default: the last run]",
               argument="RUN", form="texts"),
    ] = field(default=(), kw_only=False)  # fmt: skip
    format: str = "html"
    """`html`; `md`, short enough for a pull request; or `pdf` as bytes."""
    title: Annotated[str, Option("Title of the report. [default: the label of the run]")] = ""
    browser: Annotated[
        PathLike | None, Option("Browser used to print the PDF. [default: $OPMARK_BROWSER or an installed one]")
    ] = None  # fmt: skip
    charts: "Sequence[Chart]" = ()
    """Further figures of the first run, which stand before its own."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class HistoryRequest(OptionSet):
    """`opmark history`"""

    ops: Annotated[
        Names, Option("Operators, also 'conv*'. [default: every series that changed]", argument="OPS")
    ] = field(default=(), kw_only=False)  # fmt: skip
    params: Annotated[
        Mapping[str, Any] | None,
        Option("NAME=VALUE or NAME=VALUE,VALUE: only these cases.", ("-p", "--param"), form="params"),
    ] = None
    case: Annotated[str, Option("The id of a case, or its beginning.")] = ""
    backend: Annotated[Names, Option("Only these, also 'torch*'.")] = ()
    phase: Annotated[Names, Option("Only these: forward, backward, both.")] = ()
    quantity: Annotated[str, Option("As in `opmark list quantities`, or all. [default: the headline]")] = ""
    label: Annotated[str, Option("Only runs of this label, also 'nightly*'.")] = ""
    since: Annotated[str, Option("Only runs started since: 2030-12-31, or 30d.")] = ""
    last: Annotated[int | None, Option("Only so many of the newest runs.", least=1, example="100")] = None
    sessions: Annotated[bool, Option("Also runs that were measured in turns, as `opmark ab` does.")] = False
    margin: Annotated[
        float,
        Option(
            "Changes up to this are none: 0.02 or 2%.", least=0, below=1, unit="a share", form="share", example="2%"
        ),
    ] = HISTORY_MARGIN
    everything: Annotated[bool, Option("Also series without a change.", ("--all",))] = False
    db: Annotated[PathLike | None, DB_OPTION] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CalibrateRequest(OptionSet):
    """`opmark calibrate`"""

    backend: Annotated[
        str | None, Option("As in `opmark list backends`. [default: torch-cpu, or numpy-cpu]")
    ] = field(default=None, kw_only=False)  # fmt: skip
    threads: Annotated[
        int | None, Option("Threads to use. [default: all cores]", least=1, most=MOST_THREADS, example="4")
    ] = None
    timeout: Annotated[float, TIMEOUT_OPTION] = DEFAULT_TIMEOUT
    db: Annotated[PathLike | None, DB_OPTION] = None
    say: Callable[[str], None] = talk
    on_step: OnStep = ignore_step
