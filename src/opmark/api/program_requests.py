"""Requests of the commands about programs: models, traces, and operators that run beside each other.

As in requests.py, annotations are evaluated where they are not quoted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from opmark.api.requests import (
    BUDGET_OPTION,
    DB_OPTION,
    EFFORT_OPTION,
    MARGIN_OPTION,
    PROCESSES_OPTION,
    RETRIES_OPTION,
    TIMEOUT_OPTION,
    talk,
)
from opmark.schema.case import PHASES
from opmark.schema.options import (
    DEFAULT_COMPILE_TIMEOUT,
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT,
    LONGEST,
    MOST_RANKS,
    MOST_SEED,
    MOST_THREADS,
    SECONDS,
    MeasureOptions,
    Names,
    Numbers,
    Option,
    OptionSet,
    PathLike,
    Selection,
    StoreOptions,
    options_of,
)
from opmark.schema.progress import OnStep, ignore_step
from opmark.stats.accuracy import MARGIN as ACCURACY_MARGIN
from opmark.stats.verdict import MARGIN, STAGES

if TYPE_CHECKING:
    from opmark.api.ab import TurnProgress
    from opmark.runner.plan import Plan
    from opmark.schema import Record, Run

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
    db: Annotated[PathLike | None, DB_OPTION] = None


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
    effort: Annotated[str, EFFORT_OPTION] = "quick"
    retries: Annotated[int, RETRIES_OPTION] = DEFAULT_RETRIES
    on_start: "Callable[[Run, Plan, list[Record]], None] | None" = None
    on_record: "Callable[[Record], None] | None" = None
    say: Callable[[str], None] = talk


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
    effort: Annotated[str, EFFORT_OPTION] = "quick"
    processes: Annotated[int | None, PROCESSES_OPTION] = None
    budget: Annotated[float, BUDGET_OPTION] = 300.0
    margin: Annotated[float, MARGIN_OPTION] = MARGIN
    timeout: Annotated[float, TIMEOUT_OPTION] = DEFAULT_TIMEOUT
    compile_timeout: Annotated[
        float, Option("Seconds that finding the graph and making the model may take, in each process.", above=0,
                      most=LONGEST, unit=SECONDS, example="300")
    ] = DEFAULT_COMPILE_TIMEOUT  # fmt: skip
    label: Annotated[str, options_of(StoreOptions)["label"].option] = ""
    db: Annotated[PathLike | None, DB_OPTION] = None
    on_step: OnStep = ignore_step
    on_turn: "Callable[[TurnProgress], None] | None" = None
    say: Callable[[str], None] = talk


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
    effort: Annotated[str, EFFORT_OPTION] = "quick"
    retries: Annotated[int, RETRIES_OPTION] = DEFAULT_RETRIES
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
    effort: Annotated[str, EFFORT_OPTION] = "quick"
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
    margin: Annotated[float, MARGIN_OPTION] = MARGIN
    seed: Annotated[int, _measuring("seed")] = 0
    verify: Annotated[bool, _measuring("verify")] = True
    timeout: Annotated[float, _measuring("timeout")] = DEFAULT_TIMEOUT
    compile_timeout: Annotated[float, _measuring("compile_timeout")] = DEFAULT_COMPILE_TIMEOUT
    on_step: OnStep = ignore_step
    """Called with the number of rounds done, how many there may be, and what is measured now."""
    on_record: "Callable[[Record], None] | None" = None
    say: Callable[[str], None] = talk
