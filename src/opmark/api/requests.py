"""One request per command: all of its options, as one object that travels to the plan.

A request is made from the command line or from keyword arguments. `Selection`, `MeasureOptions` and `StoreOptions` are
the parts that the commands share; the other fields of a request are the command's own. Fields with an Option are also
options of the command line, fields without are for Python alone. Annotations are evaluated where they are not quoted.
"""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from opmark.errors import UserError, nearest
from opmark.schema.case import MODEL_PREFIX, PHASES
from opmark.schema.comparison import FAIL_ON
from opmark.schema.options import (
    DEFAULT_COMPILE_TIMEOUT,
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT,
    LONGEST,
    MOST_RANKS,
    MOST_SEED,
    MOST_THREADS,
    SECONDS,
    ExecutorOptions,
    MeasureOptions,
    Names,
    Numbers,
    Option,
    OptionSet,
    PathLike,
    Selection,
    StoreOptions,
    check_type,
    options_of,
)
from opmark.schema.progress import OnStep, ignore_step
from opmark.stats.accuracy import MARGIN as ACCURACY_MARGIN
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

_EFFORT = options_of(MeasureOptions)["effort"].option
_TIMEOUT = options_of(MeasureOptions)["timeout"].option
_DB = options_of(StoreOptions)["db"].option
_REPO = Option("The git repository. [default: that of the current folder]", form="path")
_RETRIES = Option(
    "Further tries, at the end, of what other work on the machine disturbed.", least=0, most=100, example="3"
)
_FEWER_THREADS = Option("Measure what stays disturbed once more, with half of its threads.")
_MAKE = Option("A command to run in a revision's files first, as in 'make -C kernels'.")

_PROCESSES = Option(
    f"Processes per side at most. [default: {', '.join(map(str, STAGES))} until it is decided]",
    least=2, most=STAGES[-1], example="10",
)  # fmt: skip
_BUDGET = Option(
    "Seconds after which no further pair of processes is started.",
    above=0, most=LONGEST, unit=SECONDS, example="900",
)  # fmt: skip
_MARGIN = Option(
    "Differences up to this are called the same: 0.01 or 1%.", least=0, unit="a share", form="share", example="3%"
)

P = ParamSpec("P")
RequestT = TypeVar("RequestT")
ReturnT = TypeVar("ReturnT")


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


def keywords_of(
    request: Callable[P, RequestT],
) -> Callable[[Callable[[RequestT], ReturnT]], Callable[P, ReturnT]]:
    """Decorate a function of one request, so that it takes the fields of the request as keyword arguments.

    Type checkers, editors and `inspect.signature` see the full signature. The function that takes the request is still
    available as `__wrapped__`.
    """

    def decorate(function: Callable[[RequestT], ReturnT]) -> Callable[P, ReturnT]:
        signature = inspect.signature(request)
        known = {
            name: parameter.replace(annotation=_plain(parameter)) for name, parameter in signature.parameters.items()
        }

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ReturnT:
            for name in kwargs:
                if name not in known:
                    near = nearest(name, known)
                    meant = f"; did you mean '{near}'?" if near else ""
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'{meant}")
            return function(request(*args, **kwargs))

        returned = inspect.signature(function).return_annotation
        call.__signature__ = inspect.Signature(list(known.values()), return_annotation=returned)  # type: ignore[attr-defined]
        return call

    return decorate


def typed(function: Callable[P, ReturnT]) -> Callable[P, ReturnT]:
    """Decorate a public function that takes no request, so that an argument of a wrong type is refused with a message.

    The annotations are evaluated at the first call.
    """
    signature = inspect.signature(function)
    hints: dict[str, Any] = {}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> ReturnT:
        if not hints:
            # What a function returns may be a name that its module imports for type checkers alone.
            given = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
            holder = type("Parameters", (), {"__annotations__": given})
            hints.update(get_type_hints(holder, vars(sys.modules[function.__module__])))
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            several = value if kind is inspect.Parameter.VAR_POSITIONAL else [value]
            for one in several:
                check_type(name, one, hints.get(name, Any))
        return function(*args, **kwargs)

    return call


def _plain(parameter: inspect.Parameter) -> object:
    """Return the type of a parameter without its Option."""
    annotation = parameter.annotation
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlanRequest(MeasureOptions, Selection):
    """`opmark run --dry-run`"""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RunRequest(ExecutorOptions, StoreOptions, PlanRequest):
    """`opmark run`"""

    resume: Annotated[bool, Option("Continue an interrupted run.")] = False
    retries: Annotated[int, _RETRIES] = DEFAULT_RETRIES
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

    effort: Annotated[str, _EFFORT] = "quick"
    processes: Annotated[int | None, _PROCESSES] = None
    budget: Annotated[float, _BUDGET] = 900.0
    margin: Annotated[float, _MARGIN] = MARGIN

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_compile_only(self)


_MODEL_PARAMS = Option("NAME=VALUE: parameters of the model.", ("-p", "--param"), form="params")
_MODEL_SIZE = Option("small, typical, large: a preset of the model. [default: typical, without parameters]")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CaptureRequest(OptionSet):
    """`opmark capture`"""

    program: Annotated[
        Names,
        Option("A script and its arguments; FILE.py:FUNCTION, a function without arguments that makes one step; or a "
               "model, as in model:resnet50.", argument="PROGRAM", form="texts"),
    ] = field(default=(), kw_only=False)  # fmt: skip
    output: Annotated[
        PathLike | None,
        Option("File of the execution trace; times go to NAME.kineto.json beside it. [default: PROGRAM.trace.json]",
               ("-o", "--output"), form="path"),
    ] = None  # fmt: skip
    skip: Annotated[int, Option("Steps to leave alone first.", least=0, most=10**9, example="10")] = 2
    warmup: Annotated[int, Option("Steps after these in which the profiler warms up.", least=0, most=1000)] = 1
    steps: Annotated[int, Option("Steps to capture; one ends when the optimizer has stepped.", least=1, most=10**6)] = 2
    module: Annotated[bool, Option("PROGRAM is the name of a module, as with python -m.", ("-m",))] = False
    top: Annotated[
        bool, Option("Print the operators by share of time, and how far they are from the roofline; ends the program.")
    ] = False
    stop: Annotated[bool, Option("End the program once the steps are captured.")] = False
    values: Annotated[bool, Option("Keep values of tensors too: numbers read from them, and indices.")] = False
    ranges: Annotated[bool, Option("Record the smallest and the largest value of integer tensors, for a replay.")] = (
        True
    )
    kernels: Annotated[bool, Option("Keep the source of kernels that torch.compile made, in NAME_resources.")] = False
    overwrite: Annotated[bool, Option("Replace files that exist.")] = False
    db: Annotated[PathLike | None, _DB] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExtractRequest(OptionSet):
    """`opmark extract`"""

    model: Annotated[str, Option("A model, as in model:bert-base.", argument="MODEL")] = field(kw_only=False)
    params: Annotated[Mapping[str, Any] | None, _MODEL_PARAMS] = None
    size: Annotated[str, _MODEL_SIZE] = ""
    graph: Annotated[
        str,
        Option("Whose operators: torch's calls, the nodes of the onnx graph, or a backend's own graph after fusion."),
    ] = "torch"
    device: Annotated[str, Option("Device that torch's calls are meant for: cpu, cuda.")] = "cpu"
    real: Annotated[bool, Option("Compute the model, instead of following shapes alone.")] = False
    with_model: Annotated[
        bool, Option("The model itself as the first case, so that `opmark ledger` can explain a run of the file.")
    ] = False


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ModelExportRequest(OptionSet):
    """`opmark model export`"""

    model: Annotated[str, Option("A model, as in model:bert-base.", argument="MODEL")] = field(kw_only=False)
    output: Annotated[PathLike, Option("File to write.", ("-o", "--output"), form="path")] = field()
    to: Annotated[str, Option("Form: mlir (StableHLO; text, or bytecode in a .mlirbc file) or onnx.")] = "mlir"
    params: Annotated[Mapping[str, Any] | None, _MODEL_PARAMS] = None
    size: Annotated[str, _MODEL_SIZE] = ""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LedgerRequest(StoreOptions, MeasureOptions):
    """`opmark ledger`"""

    what: Annotated[
        str | None,
        Option("A run of a model and its operators; or a model to measure now, as in model:bert-base. "
               "[default: the last run]", argument="RUN"),
    ] = field(default=None, kw_only=False)  # fmt: skip
    params: Annotated[Mapping[str, Any] | None, _MODEL_PARAMS] = None
    size: Annotated[str, _MODEL_SIZE] = ""
    effort: Annotated[str, _EFFORT] = "quick"
    retries: Annotated[int, _RETRIES] = DEFAULT_RETRIES
    on_start: "Callable[[Run, Plan, list[Record]], None] | None" = None
    on_record: "Callable[[Record], None] | None" = None
    say: Callable[[str], None] = talk


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
    margin: Annotated[float, _MARGIN] = MARGIN
    effort: Annotated[str, _EFFORT] = "quick"
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
class ScheduleRequest(OptionSet):
    """`opmark schedule`"""

    program: Annotated[
        Names,
        Option("A model (model:inception_v3), a trace (trace:step.json), a saved schedule (FILE.json), or tables of "
               "times per device (FILE.yaml ...).", argument="PROGRAM", form="texts"),
    ] = field(default=(), kw_only=False)  # fmt: skip
    params: Annotated[Mapping[str, Any] | None, _MODEL_PARAMS] = None
    size: Annotated[str, _MODEL_SIZE] = ""
    on: Annotated[
        Names,
        Option(
            "cpu or cuda; or resources that are not shared: both of them (cpu,cuda), cores (cpu:1,cpu:1), or devices "
            "of the tables."
        ),
    ] = ()
    method: Annotated[
        str,
        Option("best, sequential, stages (concurrent on shared resources), equilibrium (resources that are not "
               "shared), or optimum."),
    ] = "best"  # fmt: skip
    measure: Annotated[
        bool, Option("Run the schedule and compare it with sequential in turns.", ("--run/--no-run",))
    ] = True
    search: Annotated[
        float,
        Option("How long stages are timed, as in 20s or 2m.", above=0, most=LONGEST, unit=SECONDS, example="20s"),
    ] = 20.0
    threads: Annotated[
        int | None, Option("Threads to use. [default: all cores]", least=1, most=MOST_THREADS, example="4")
    ] = None
    save: Annotated[PathLike | None, Option("Write the schedule to a file, which `opmark schedule FILE` runs.")] = None
    predict: Annotated[
        Names,
        Option("Take the times of the operators from `opmark predict`, in place of measuring them: on this machine "
               "(here), or on chips as in `opmark list chips`."),
    ] = ()  # fmt: skip
    far: Annotated[bool, Option("With --predict, answer even far outside of what was learnt.", ("--far",))] = False
    slowdowns: Annotated[
        bool,
        Option("Take what operators lose beside each other from co-runs in the store, in place of timing stages.",
               ("--slowdowns",)),
    ] = False  # fmt: skip
    times: Annotated[
        PathLike | None, Option("Write the times of the operators to a table, for a schedule over several devices.")
    ] = None
    effort: Annotated[str, _EFFORT] = "quick"
    processes: Annotated[int | None, _PROCESSES] = None
    budget: Annotated[float, _BUDGET] = 300.0
    margin: Annotated[float, _MARGIN] = MARGIN
    timeout: Annotated[float, _TIMEOUT] = DEFAULT_TIMEOUT
    compile_timeout: Annotated[
        float, Option("Seconds that finding the graph and making the model may take, in each process.", above=0,
                      most=LONGEST, unit=SECONDS, example="300")
    ] = DEFAULT_COMPILE_TIMEOUT  # fmt: skip
    label: Annotated[str, options_of(StoreOptions)["label"].option] = ""
    db: Annotated[PathLike | None, _DB] = None
    on_step: OnStep = ignore_step
    on_turn: "Callable[[TurnProgress], None] | None" = None
    say: Callable[[str], None] = talk


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
    effort: Annotated[str, _EFFORT] = "quick"
    retries: Annotated[int, _RETRIES] = 1
    resume: Annotated[bool, Option("Continue an interrupted study.")] = False
    on_progress: "Callable[[FactorProgress], None]" = lambda progress: None
    on_record: "Callable[[Record], None] | None" = None
    say: Callable[[str], None] = talk

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_compile_only(self)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ReplayRequest(StoreOptions, MeasureOptions):
    """`opmark replay`"""

    trace: Annotated[
        PathLike,
        Option("A trace: a file, a folder with one file per rank, or NAME.json for NAME.rank-0.json and so on.",
               argument="TRACE"),
    ] = field(kw_only=False)  # fmt: skip
    step: Annotated[
        str, Option("Number of a step that the profiler marked, `last` (the last complete one) or `all`.")
    ] = "last"
    subgraph: Annotated[
        str, Option("Only the calls below this label; a part of it that no other label has will do.")
    ] = ""
    only: Annotated[str, Option("compute, comms or all.", known=("all", "compute", "comms"))] = "all"
    skip: Annotated[Names, Option("Leave these operators out, as in 'aten::copy_*'.")] = ()
    scale: Annotated[
        Names,
        Option("OLD=NEW: what if a recorded size were another one, as in 32=64 for twice the batch.", form="texts"),
    ] = ()
    ranks: Annotated[
        int | None,
        Option("Processes; with fewer than recorded, missing ones are simulated by shape. [default: as recorded]",
               least=1, most=MOST_RANKS, example="2"),
    ] = None  # fmt: skip
    iterations: Annotated[
        int | None, Option("Exactly so many replays. [default: by effort]", least=1, example="10")
    ] = None  # fmt: skip
    trace_out: Annotated[
        PathLike | None,
        Option("Write a trace that Perfetto opens, with recorded and replayed calls side by side.", form="path"),
    ] = None
    effort: Annotated[str, _EFFORT] = "quick"
    retries: Annotated[int, _RETRIES] = DEFAULT_RETRIES
    on_start: "Callable[[Run, Plan, list[Record]], None] | None" = None
    on_record: "Callable[[Record], None] | None" = None
    say: Callable[[str], None] = talk


def _measuring(name: str) -> Option:
    """Return an option that measuring has too."""
    return options_of(MeasureOptions)[name].option


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class EvaluateRequest(StoreOptions):
    """`opmark evaluate`"""

    ops: Annotated[Names, Option("Models, as in model:resnet50.", argument="MODELS")] = field(kw_only=False)
    data: Annotated[str, Option("Labelled data: NAME, or NAME:PATH of a file or folder, as in imagenet:/data/val.")] = (
        ""
    )
    data_percent: Annotated[
        float, Option("Share of the samples, drawn at random by the seed.", above=0, most=100, unit="percent",
                      example="10")
    ] = 100.0  # fmt: skip
    data_option: Annotated[
        Names, Option("NAME=VALUE: a file or choice that the data set takes, as in vocab=vocab.txt.", form="texts")
    ] = ()
    reference: Annotated[
        str, Option("Backend that the others are compared with, in float32 if asked for. [default: the first backend]")
    ] = ""
    margin: Annotated[
        float,
        Option("Differences up to this are called the same: 0.005 or 0.5%.", least=0, below=1, unit="a share",
               form="share", example="0.5%"),
    ] = ACCURACY_MARGIN  # fmt: skip
    params: Annotated[Mapping[str, Any] | None, options_of(Selection)["params"].option] = None
    size: Annotated[Names, options_of(Selection)["size"].option] = ()
    backend: Annotated[Names, _measuring("backend")] = ()
    python: Annotated[Names, _measuring("python")] = ()
    threads: Annotated[Numbers, _measuring("threads")] = ()
    seed: Annotated[int, Option("Seed that draws the samples.", least=0, most=MOST_SEED, example="1")] = 0
    verify: Annotated[bool, Option("Check results against the float64 reference first.")] = True
    timeout: Annotated[
        float, Option("Seconds that a batch may take.", above=0, most=LONGEST, unit=SECONDS, example="60")
    ] = DEFAULT_TIMEOUT
    compile_timeout: Annotated[float, _measuring("compile_timeout")] = DEFAULT_COMPILE_TIMEOUT
    resume: Annotated[bool, Option("Continue an interrupted run.")] = False
    on_start: "Callable[[Run, Plan, list[Record]], None] | None" = None
    on_record: "Callable[[Record], None] | None" = None
    say: Callable[[str], None] = talk


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CorunRequest(StoreOptions):
    """`opmark corun`"""

    ops: Annotated[
        Names,
        Option("Operators that run at the same time, two or more; the same one may be named twice. "
               "Models too, as in model:resnet50.", argument="OPS", form="texts"),
    ] = field(default=(), kw_only=False)  # fmt: skip
    workload: Annotated[
        PathLike | None,
        Option(
            "A workload file: each of its cases is an operator, which also runs beside itself.",
            ("-w", "--workload"),
            form="path",
        ),
    ] = None
    params: Annotated[
        Names,
        Option("NAME=VALUE for all operators, or N.NAME=VALUE for the N-th, as in 2.M=512.", ("-p", "--param"),
               form="texts"),
    ] = ()  # fmt: skip
    size: Annotated[
        Names, Option("small, typical, large: for all, or one for each. [default: typical, without parameters]")
    ] = ()  # fmt: skip
    phase: Annotated[
        Names, Option("forward, backward, both: for all, or one for each. [default: forward]", known=PHASES)
    ] = ()
    backend: Annotated[
        Names, Option("A backend for all, or one for each operator, in their order. [default: torch-cpu, or numpy-cpu]")
    ] = ()  # fmt: skip
    impl: Annotated[
        Names, Option("An implementation for all, or one for each. [default: the first that the backend has]")
    ] = ()  # fmt: skip
    cores: Annotated[
        Names,
        Option("split, cores of its own for each; shared, all cores for all; or a set for each, as in --cores 0-1 "
               "--cores 2,3. [default: split]", form="texts", example="0-1 --cores 2-3"),
    ] = ()  # fmt: skip
    threads: Annotated[
        Numbers,
        Option("Threads of each operator beside the others: one number for all, or one for each. [default: one per "
               "core that it may use]", least=1, most=MOST_THREADS, example="1,2"),
    ] = ()  # fmt: skip
    group: Annotated[bool, Option("All operators at once, too; without it, three or more run in pairs.")] = False
    tune: Annotated[
        bool,
        Option("Search cores, threads and knobs of all operators together for the least makespan, and compare it with "
               "one after the other, each at its own best."),
    ] = False  # fmt: skip
    trials: Annotated[
        int, Option("For --tune: candidates to measure at most.", least=1, most=10**4, example="40")
    ] = 24  # fmt: skip
    effort: Annotated[str, _EFFORT] = "quick"
    processes: Annotated[
        int | None,
        Option(f"Rounds of fresh processes at most. [default: {', '.join(map(str, STAGES))} until it is decided]",
               least=1, most=STAGES[-1], example="10"),
    ] = None  # fmt: skip
    resume: Annotated[bool, Option("Continue an interrupted co-run.")] = False
    budget: Annotated[
        float,
        Option("How long to measure, as in 90s, 10m or 2h: no co-run is begun that would not be done by then.", above=0,
               most=LONGEST, unit=SECONDS, example="15m"),
    ] = 900.0  # fmt: skip
    margin: Annotated[float, _MARGIN] = MARGIN
    seed: Annotated[int, _measuring("seed")] = 0
    verify: Annotated[bool, _measuring("verify")] = True
    timeout: Annotated[float, _measuring("timeout")] = DEFAULT_TIMEOUT
    compile_timeout: Annotated[float, _measuring("compile_timeout")] = DEFAULT_COMPILE_TIMEOUT
    on_step: OnStep = ignore_step
    """Called with the number of rounds done, how many there may be, and what is measured now."""
    on_record: "Callable[[Record], None] | None" = None
    say: Callable[[str], None] = talk


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
    retries: Annotated[int, _RETRIES] = DEFAULT_RETRIES
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
    effort: Annotated[str, _EFFORT] = "standard"
    processes: Annotated[int | None, _PROCESSES] = None
    budget: Annotated[float, _BUDGET] = 900.0
    margin: Annotated[float, _MARGIN] = MARGIN
    timeout: Annotated[
        float, Option("Seconds that a call may take.", above=0, most=LONGEST, unit=SECONDS, example="60")
    ] = DEFAULT_TIMEOUT
    compile_timeout: Annotated[
        float, Option("Seconds that loading it may take.", above=0, most=LONGEST, unit=SECONDS, example="300")
    ] = DEFAULT_COMPILE_TIMEOUT
    db: Annotated[PathLike | None, _DB] = None
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
    db: Annotated[PathLike | None, _DB] = None


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
    db: Annotated[PathLike | None, _DB] = None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CalibrateRequest(OptionSet):
    """`opmark calibrate`"""

    backend: Annotated[
        str | None, Option("As in `opmark list backends`. [default: torch-cpu, or numpy-cpu]")
    ] = field(default=None, kw_only=False)  # fmt: skip
    threads: Annotated[
        int | None, Option("Threads to use. [default: all cores]", least=1, most=MOST_THREADS, example="4")
    ] = None
    timeout: Annotated[float, _TIMEOUT] = DEFAULT_TIMEOUT
    db: Annotated[PathLike | None, _DB] = None
    say: Callable[[str], None] = talk
    on_step: OnStep = ignore_step
