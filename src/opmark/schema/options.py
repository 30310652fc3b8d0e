"""The options that choose cases and say how to measure them. Each option is defined here, once.

An option is a field of a class below. Its type, default, range and help are where the command line, the keyword
arguments of the Python functions, the validation and docs/options.md come from, and its name is the same in all of
them: `--rel-ci` is `rel_ci`. The annotations are evaluated, so this module does without `from __future__`.
"""

import dataclasses
import math
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin

from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.schema.case import LONGEST_NAME, PHASES
from opmark.schema.evaluation import DataChoice
from opmark.schema.load import ARRIVALS
from opmark.schema.measurement import CACHES, QUANTITIES
from opmark.schema.task import EFFORTS, MODES, TimerName
from opmark.schema.workload import Workload

MOST_THREADS = 4096
MOST_RANKS = 65_536
MOST_PROCESSES = 1000
MOST_CLIENTS = 1024
MOST_RATE = 1e6
MOST_SAMPLES = 10_000_000
LONGEST = 1e6
MOST_SEED = 2**63 - 1
TIMERS = tuple(name for name in get_args(TimerName) if name)
EXECUTORS = ("local", "ray")
DEFAULT_TIMEOUT = 60.0
DEFAULT_COMPILE_TIMEOUT = 300.0
DEFAULT_RETRIES = 3

SECONDS = "seconds"
"""Unit of an option that is a duration."""
_DURATIONS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
"""Seconds of each unit."""

_Number = TypeVar("_Number", int, float)
PathLike: TypeAlias = str | os.PathLike[str]
Names: TypeAlias = str | Sequence[str]
"""One name, several in one text with commas between them, or a list of names."""
Numbers: TypeAlias = int | Sequence[int]
Rates: TypeAlias = float | Sequence[float]
Source: TypeAlias = str | os.PathLike[str] | Workload | Mapping[str, Any]
"""A workload: a file or a folder, an object made in code, or the content of a file as data."""
Form = Literal["plain", "names", "numbers", "rates", "texts", "path", "params", "yaml", "share", "duration"]
"""How the text of the command line becomes the value of the field."""


@dataclass(frozen=True)
class Option:
    """What is known of an option beside its name, its type and its default."""

    help: str
    flags: tuple[str, ...] = ()
    """Names on the command line, where these are not made from the name of the field."""
    known: Collection[str] = ()
    """The values that a name may have."""
    noun: str = ""
    """What such a value is called in an error message, where that is not the name of the field."""
    least: float | None = None
    above: float | None = None
    below: float | None = None
    most: float | None = None
    unit: str = ""
    example: str = ""
    """A value for the hint of an error message."""
    printable: bool = False
    pattern: str = ""
    """A regular expression that the whole text has to match; `unit` says it in words."""
    argument: str | None = None
    """How the usage line writes it, where it is an argument of the command line and not an option."""
    form: Form | None = None
    """None: the form that the type has."""

    @property
    def range(self) -> str:
        """The values that are allowed, in words; empty where any value of the type is."""
        if self.known:
            return ", ".join(self.known)
        if self.pattern:
            return self.unit
        if self.least is not None and self.most is not None:
            return f"from {self.least} to {self.most}"
        if self.least is not None and self.below is not None:
            return f"from {self.least:g} to below {self.below:g}"
        if self.least is not None:
            return f"of at least {self.least:g}"
        return f"above {self.above:g} and up to {self.most:g}" if self.above is not None else ""


class OptionField(NamedTuple):
    """An option as the command line and the reference page see it."""

    name: str
    type: Any
    members: tuple[Any, ...]
    """The types of a union; else the one type."""
    default: Any
    """dataclasses.MISSING where a value has to be given."""
    option: Option
    form: Form
    flag: str
    """The name of the option on the command line."""

    def check(self, value: Any) -> None:
        """Raise UserError where the value is of the wrong type or out of range."""
        empty = isinstance(value, str | Sequence) and not value
        if value is self.default or (empty and self.default in (None, "", ())):
            return
        hint = f"as in {self.flag} {self.option.example}" if self.option.example else None
        if self.option.known:
            check_type(self.name, value, self.type, hint)
            for name in [value] if self.form == "plain" else split_names(value):
                if name not in self.option.known:
                    raise UnknownName(self.option.noun or self.name, name, self.option.known)
        elif bool in self.members:
            if not isinstance(value, bool):
                raise InvalidParameter(f"{self.name}: expected True or False, got {value!r}")
        elif int in self.members:
            numbers: list[Any] = [value] if isinstance(value, str) else as_list(value)
            for number in numbers:
                if not fits(number, int) or not self._within(number):
                    message = f"{self.name}: expected a whole number {self.option.range}, got {number!r}"
                    raise InvalidParameter(message, hint)
        elif float in self.members:
            expected = " ".join(filter(None, (self.option.unit or "a number", self.option.range)))
            listed = self.form == "rates" and isinstance(value, Sequence) and not isinstance(value, str)
            for number in value if listed else [value]:
                if not fits(number, float):
                    raise InvalidParameter(f"{self.name}: expected {expected}, got {number!r}", hint)
                if not math.isfinite(number) or not self._within(number):
                    raise InvalidParameter(f"{self.name}: expected {expected}, got {number:g}", hint)
        else:
            check_type(self.name, value, self.type, hint)
            if self.option.pattern and not re.fullmatch(self.option.pattern, value):
                raise InvalidParameter(f"{self.name}: expected {self.option.unit}, got {value!r}", hint)
            if self.option.printable and not value.isprintable():
                raise UserError(f"{self.name}: expected printable text, got {value!a}")
            if self.option.printable and len(value) > LONGEST_NAME:
                raise UserError(f"{self.name}: expected at most {LONGEST_NAME} characters, got {len(value)}")

    def _within(self, value: float) -> bool:
        option = self.option
        return (
            (option.least is None or value >= option.least)
            and (option.above is None or value > option.above)
            and (option.below is None or value < option.below)
            and (option.most is None or value <= option.most)
        )


@cache
def options_of(request: Any) -> Mapping[str, OptionField]:
    """The options of a class by name, in their order. Fields without an Option, such as callbacks, are left out."""
    found = {}
    for one in dataclasses.fields(request):
        if get_origin(one.type) is Annotated:
            kind, option = get_args(one.type)
            members = get_args(kind) if isinstance(kind, UnionType) else (kind,)
            several = any(get_origin(member) is Sequence for member in members)
            lists: Form = "numbers" if int in members else "rates" if float in members else "names"
            usual: Form = "duration" if option.unit == SECONDS else lists if several else "plain"
            form: Form = option.form or usual
            flag = option.flags[-1] if option.flags else f"--{one.name.replace('_', '-')}"
            found[one.name] = OptionField(one.name, kind, members, one.default, option, form, flag)
    return found


def read_duration(text: str, name: str = "", flag: str = "") -> float:
    """Return the seconds of a duration such as 90, 90s, 10m or 2h. A message names the option as `name`, and in what to
    type as `flag`, if that is another text."""
    unit = re.sub(r"^.*?([a-z]*)$", r"\1", text.strip(), flags=re.ASCII)
    try:
        return float(text.strip().removesuffix(unit)) * _DURATIONS[unit]
    except (KeyError, ValueError):
        pass
    try:
        return float(text)  # `inf` and `nan`, which a range refuses in its own words
    except ValueError:
        raise InvalidParameter(
            f"{name}{': ' * bool(name)}expected a duration, got `{text}`",
            " ".join(filter(None, ("as in", flag or name, "90s, 10m or 2h"))),
        ) from None


def duration_text(seconds: float) -> str:
    """Return a duration as people type it."""
    unit = next((unit for unit in ("h", "m") if seconds >= _DURATIONS[unit] and not seconds % _DURATIONS[unit]), "s")
    return f"{seconds / _DURATIONS[unit]:g}{unit}"


class OptionSet:
    """The base of classes of options: a value that is not allowed is refused when the object is made. Durations may be
    texts: they become seconds."""

    def __post_init__(self) -> None:
        request: Any = type(self)  # mypy holds that a class is not hashable
        for name, found in options_of(request).items():
            value = getattr(self, name)
            if found.form == "duration" and isinstance(value, str):
                value = read_duration(value, name, found.flag)
                object.__setattr__(self, name, value)  # the class is frozen
            found.check(value)
        for one in dataclasses.fields(request):
            if one.name not in options_of(request):
                check_type(one.name, getattr(self, one.name), one.type)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Selection(OptionSet):
    """Which cases to measure: operators with parameters, a workload, or a suite; of these, a part."""

    ops: Annotated[
        Names, Option("Operators, as in `opmark list ops`; any callable, as in torch.add.", argument="OPS")
    ] = field(default=(), kw_only=False)  # fmt: skip
    workload: Annotated[
        Source | None,
        Option("A workload file or a folder; also one of another system.", ("-w", "--workload"), form="path"),
    ] = None
    allow: Annotated[
        Names,
        Option(
            "Modules whose functions a workload file may call, beside those of frameworks and of its own folder. "
            "[default: $OPMARK_ALLOW]"
        ),
    ] = ()
    strict: Annotated[bool, Option("Stop if a part of a foreign file cannot be used.")] = False
    suite: Annotated[str | None, Option("A workload that ships with opmark.")] = None
    op: Annotated[Names, Option("Only these operators of a workload, as in 'conv*'; alone, of all operators.")] = ()
    category: Annotated[Names, Option("Only operators of these categories.")] = ()
    tag: Annotated[Names, Option("Only cases of a workload with one of these tags.")] = ()
    params: Annotated[
        Mapping[str, Any] | None,
        Option("NAME=VALUE or NAME=VALUE,VALUE; lists multiply.", ("-p", "--param"), form="params"),
    ] = None
    args: Annotated[
        Sequence[Any] | None,
        Option("Arguments of a callable such as torch.add: [8x64 float32, 8x64 float32].", form="yaml"),
    ] = None
    kwargs: Annotated[Mapping[str, Any] | None, Option("Keyword arguments of a callable: {alpha: 2}.", form="yaml")] = (
        None
    )
    build: Annotated[
        Mapping[str, Any] | Sequence[Any] | None,
        Option("Arguments that make an object of a class such as torch.nn.Linear: {args: [64, 32]}.", form="yaml"),
    ] = None
    size: Annotated[Names, Option("small, typical, large: presets; of a workload, only these.")] = ()
    sample: Annotated[
        int | None,
        Option(
            "Only so many cases, drawn with --seed: at least one of each operator, if there is room. [default: all]",
            least=1, example="500",
        ),
    ] = None  # fmt: skip
    part: Annotated[
        str,
        Option(
            "Only the K-th of N parts of the cases, as in 2/7; the id of a case says which part it is in. "
            "[default: all]",
            pattern=r"[1-9]\d{0,5}/[1-9]\d{0,5}", unit="a part K/N", example="2/7",
        ),
    ] = ""  # fmt: skip
    phase: Annotated[
        Names, Option("forward, backward, both; of a workload, only these. [default: forward]", known=PHASES)
    ] = ()
    wrt: Annotated[Names, Option("Compute gradients of these inputs only.")] = ()
    ranks: Annotated[
        Numbers,
        Option(
            "Processes that communicate, as in 2,4. [default: as the case says]",
            least=1, most=MOST_RANKS, example="2,4",
        ),
    ] = ()  # fmt: skip
    group_size: Annotated[
        Numbers,
        Option(
            "Ranks of one group, as in 2,4; all groups at once. [default: all ranks]",
            least=1, most=MOST_RANKS, example="2,4",
        ),
    ] = ()  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MeasureOptions(OptionSet):
    """How to measure: where, how carefully, and for how long."""

    backend: Annotated[
        Names, Option("As in `opmark list backends`, or `all`. [default: torch-cpu, or numpy-cpu]")
    ] = ()  # fmt: skip
    python: Annotated[
        Names,
        Option("Interpreters to run the backends in, by path or as in `opmark env list`; each in turn."),
    ] = ()
    impl: Annotated[
        Names,
        Option(
            "Implementations by name, or functions as FILE.py:FUNCTION; functions alone run beside the built-in ones. "
            "[default: all that the backend has]"
        ),
    ] = ()
    threads: Annotated[
        Numbers,
        Option(
            "Numbers of threads, each in turn. [default: $OMP_NUM_THREADS, or all cores]",
            least=1,
            most=MOST_THREADS,
            example="1,2",
        ),
    ] = ()
    effort: Annotated[str, Option("How carefully to measure: quick, standard, thorough.", known=EFFORTS)] = "standard"
    quantity: Annotated[
        Names, Option(f"What to measure: {', '.join(QUANTITIES)}. [default: what the backend has]", known=QUANTITIES)
    ] = ()
    cache: Annotated[
        Names,
        Option(
            "State of the caches: cold, warm, rotated. [default: cold, warm for what a device did, else warm]",
            known=CACHES,
        ),
    ] = ()
    processes: Annotated[
        int | None,
        Option(
            "Fresh processes per case, in turns. [default: 1, 5, 10 by effort; on a device 1, 1, 5]",
            least=1, most=MOST_PROCESSES, example="5",
        ),
    ] = None  # fmt: skip
    rel_ci: Annotated[
        float | None,
        Option("Stop at this half-width of the median's interval. [default: by effort]", above=0, most=1,
               unit="a fraction of the median", example="0.005"),
    ] = None  # fmt: skip
    min_time: Annotated[
        float | None,
        Option("Seconds to sample at least. [default: by effort]", above=0, most=LONGEST, unit=SECONDS, example="0.1"),
    ] = None
    max_time: Annotated[
        float | None,
        Option("Seconds to sample at most. [default: by effort]", above=0, most=LONGEST, unit=SECONDS, example="2"),
    ] = None
    min_samples: Annotated[
        int | None, Option("Samples to take at least. [default: by effort]", least=1, most=MOST_SAMPLES, example="30")
    ] = None  # fmt: skip
    warmup: Annotated[
        int | None, Option("Exactly so many calls of warm-up.", least=0, most=MOST_SAMPLES, example="100")
    ] = None
    samples: Annotated[
        int | None, Option("Exactly so many samples, of one call each.", least=1, most=MOST_SAMPLES, example="100")
    ] = None
    mode: Annotated[str, Option("As in PARAM: discrete, continuous, continuous_events.", known=MODES)] = ""
    timer: Annotated[
        str, Option("For what a device did: cupti, torch-profiler, on AMD roctracer, events, graph.", known=TIMERS)
    ] = ""  # fmt: skip
    clocks: Annotated[
        str,
        Option(
            "Lock the clocks of the GPU while it measures: at the clock that its power limit sustains, or at so many "
            "MHz; where that is not permitted, it measures all the same. [default: as they are]",
            pattern=r"lock(=[1-9]\d{0,4})?", unit="`lock` or `lock=MHZ`", example="lock=1500",
        ),
    ] = ""  # fmt: skip
    clients: Annotated[
        Numbers,
        Option(
            "Clients that send requests to one loaded model at the same time, as in 1,2,4; each number in turn. "
            "[default: no load; 1 with the options below]",
            least=1, most=MOST_CLIENTS, example="1,2,4",
        ),
    ] = ()  # fmt: skip
    arrival: Annotated[
        str,
        Option(
            "When requests are due: closed (each client waits for its answer), constant, poisson. [default: closed]",
            known=ARRIVALS,
        ),
    ] = ""
    rate: Annotated[
        Rates,
        Option(
            "Requests per second of all clients, as in 50,100; each in turn. For constant and poisson arrivals.",
            above=0, most=MOST_RATE, unit="requests per second", example="50,100",
        ),
    ] = ()  # fmt: skip
    requests: Annotated[
        int | None, Option("Requests of each client. [default: 100]", least=1, most=MOST_SAMPLES, example="1000")
    ] = None
    request_timeout: Annotated[
        float | None,
        Option("Seconds after which a request counts as hanging. [default: 30]", above=0, most=LONGEST,
               unit=SECONDS, example="30"),
    ] = None  # fmt: skip
    seed: Annotated[int, Option("Seed of the input data.", least=0, most=MOST_SEED, example="1")] = 0
    verify: Annotated[bool, Option("Check results before timing.")] = True
    compile_only: Annotated[bool, Option("Build, compile and verify; measure nothing but the time to compile.")] = False
    artifact: Annotated[
        PathLike | None,
        Option("Folder to write what was compiled to; a module of StableHLO on JAX becomes FILE.xla, which runs as "
               "model:FILE.xla without compiling.", form="path"),
    ] = None  # fmt: skip
    timeout: Annotated[
        float, Option("Seconds that a task may take.", above=0, most=LONGEST, unit=SECONDS, example="60")
    ] = DEFAULT_TIMEOUT
    compile_timeout: Annotated[
        float, Option("Seconds that compiling may take.", above=0, most=LONGEST, unit=SECONDS, example="300")
    ] = DEFAULT_COMPILE_TIMEOUT
    data_choice: DataChoice | None = None
    """Labelled data to evaluate the accuracy on, in place of measuring: `opmark evaluate`."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class StoreOptions(OptionSet):
    """Where the records go, and what the run is called."""

    label: Annotated[str, Option("A name for this run.", printable=True)] = ""
    db: Annotated[
        PathLike | None,
        Option(
            "The store: a file, or postgresql://user@host/database. [default: $OPMARK_DB or the data directory]"
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExecutorOptions(OptionSet):
    """Where tasks run: on this machine, or on the nodes of a Ray cluster."""

    executor: Annotated[
        str, Option("Where tasks run: local, this machine, or ray, the nodes of a cluster.", known=EXECUTORS)
    ] = "local"
    address: Annotated[
        str, Option("The Ray cluster: auto, the one that this machine is a node of, or HOST:PORT of its head.")
    ] = "auto"
    nodes: Annotated[Names, Option("Only these nodes of the cluster, by name. [default: all]")] = ()
    chip: Annotated[
        str, Option("Only nodes whose chip has this in its name, where a cluster has several kinds.")
    ] = ""  # fmt: skip
    unfit: Annotated[bool, Option("Also use nodes that find themselves unfit: busy, throttled, swapping.")] = False
    wait: Annotated[
        float,
        Option("Seconds to wait while no node takes work; what is left is then done by --resume.", least=0,
               most=LONGEST, unit=SECONDS, example="600"),
    ] = 600.0  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.executor != "local":
            return
        for one in dataclasses.fields(ExecutorOptions):
            given = getattr(self, one.name)
            if given != one.default and given not in ("", []):
                flag = options_of(ExecutorOptions)[one.name].flag
                raise InvalidParameter(
                    f"{flag} is about the nodes of a cluster, and this runs here", "add --executor ray"
                )


# Types of values, for whoever calls from Python: a wrong one is a message, and not an error somewhere inside.

_WORDS = {str: "text", bool: "True or False", int: "a whole number", float: "a number", bytes: "bytes"}
_ABSTRACT: dict[Any, str] = {
    Mapping: "a mapping", Callable: "a function", os.PathLike: "a path", list: "a list", tuple: "a tuple",
}  # fmt: skip
_SHOWN = 80
"""Characters of a wrong value that a message quotes."""


def check_type(name: str, value: Any, kind: Any, hint: str | None = None) -> None:
    """Raise InvalidParameter where a value is not of the type that an annotation says."""
    if not fits(value, kind):
        shown = repr(value)
        got = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
        raise InvalidParameter(f"{name}: expected {_in_words(kind)}, got {got}", hint)


def fits(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type. A type that is quoted, because its module is not imported, is compared by
    its name."""
    if isinstance(kind, str):
        if value is None:
            return kind.endswith("| None")
        if kind.startswith("Callable"):
            return callable(value)
        several = value if isinstance(value, list | tuple) and "Sequence" in kind else [value]
        return all({cls.__name__ for cls in type(one).__mro__} & set(re.findall(r"\w+", kind)) for one in several)
    origin = get_origin(kind)
    if kind is Any:
        return True
    if kind in (None, type(None)):
        return value is None
    if isinstance(kind, UnionType) or origin is Union:
        return any(fits(value, member) for member in get_args(kind))
    if origin is Literal:
        return value in get_args(kind)
    if origin is Sequence:
        if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
            return False
        return not isinstance(value, Collection) or all(fits(item, get_args(kind)[0]) for item in value)
    if kind in (int, float):
        return not isinstance(value, bool) and isinstance(value, int if kind is int else int | float)
    if (origin or kind) is Callable:
        return callable(value)
    return not isinstance(origin or kind, type) or isinstance(value, origin or kind)


def _in_words(kind: Any) -> str:
    origin = get_origin(kind)
    if isinstance(kind, str):
        return "a function" if kind.startswith("Callable") else kind.removesuffix(" | None")
    if isinstance(kind, UnionType) or origin is Union:
        members = [member for member in get_args(kind) if member is not type(None)]
        return " or ".join(dict.fromkeys(map(_in_words, members)))
    if origin is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if origin is Sequence:
        return f"a list of {_in_words(get_args(kind)[0])}"
    return _WORDS.get(kind) or _ABSTRACT.get(origin or kind) or f"a {getattr(kind, '__name__', kind)}"


def split_names(value: Names) -> list[str]:
    """The names in a text with commas between them, or those of a list."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else list(value)


def names_function(name: str) -> bool:
    """Return whether the name of an implementation means a function of the user: `FILE.py:FUNCTION` or
    `MODULE:FUNCTION`."""
    return ":" in name


def as_list(value: _Number | Sequence[_Number]) -> list[_Number]:
    return list(value) if isinstance(value, Sequence) else [value]
