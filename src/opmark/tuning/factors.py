"""What can be varied of a case here: sizes, parameters, knobs, threads and resources. Each has its range and the way in
which it is controlled, or the reason why it cannot be."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.hardware import resctrl, topology
from opmark.hardware.host import affinity
from opmark.hardware.multiprocessors import Multiprocessors, multiprocessors
from opmark.plugin import BackendInfo
from opmark.plugin.operator import count_elements, resize, rules_allow, size_places
from opmark.plugin.param import Param, parse_bytes, short_bytes
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.space import THREADS, format_configuration, format_value
from opmark.runner.survey import survey
from opmark.schema import Case, Resources, Settings, Task
from opmark.schema.factors import FactorSetting
from opmark.schema.load import Load
from opmark.tuning.spaces import as_pairs, find_tunables

LARGEST_SIZE = 4096
LEAST_BYTES, MOST_BYTES = 1 << 20, 128 << 20
"""Default ranges of sizes and working sets."""
_MOST_CATEGORIES = 8
_FIRST_LEVELS = 5
"""Levels of a range that are measured before the curve says where more are needed."""
_MEMORY_SHARE = 8
"""A case may take an eighth of the memory: references, inputs and outputs are held several times."""
_MOST_FLOPS = 3e11
_CLIENTS = 8
_HOSTS = ("cpu", "none")
"""Devices whose calls are computed by threads of the worker; `none` is the null backend, whose threads do nothing."""
_MPS = "CUDA_MPS_PIPE_DIRECTORY"
_FIRST_WITH_GREEN_STREAMS = (2, 11)

Value = bool | int | float | str | tuple[int, ...]


@dataclass
class TaskDraft:
    """A task in the making: factors set its parts one after the other."""

    params: dict[str, Any]
    configuration: dict[str, Any]
    settings: Settings
    resources: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CaseFactor:
    """One thing that can be varied."""

    name: str
    group: str
    control: str
    apply: Callable[[TaskDraft, Any], None]
    base: Value = 0
    levels: tuple[Value, ...] = ()
    """All values of a choice; empty for a range."""
    low: float = 0
    high: float = 0
    touches: frozenset[str] = frozenset()
    """Parts of a task that it sets: factors that share one are not varied together."""
    whole: bool = True
    why_not: str = ""
    default: bool = False
    in_bytes: bool = False
    step: int = 0
    """Values are multiples of this, or the end of the range; 0 for usual steps."""
    implementation: str = ""
    """For a knob: the implementation that has it."""

    @property
    def ordered(self) -> bool:
        """Whether its values are numbers, so that there may be more between two of them."""
        return not self.levels

    def setting(self) -> FactorSetting:
        if self.levels:
            shown = [self.format(value) for value in self.levels]
            more = [f"... {shown[-1]}"] if len(shown) > _MOST_CATEGORIES else []
            text = ", ".join([*shown[: _MOST_CATEGORIES - len(more)], *more])
        else:
            text = f"{self.format(self.low)} to {self.format(self.high)}" if self.high else ""
        return FactorSetting(self.name, self.group, text, self.control, self.why_not, self.default)

    def format(self, value: Any) -> str:
        return (
            short_bytes(int(value))
            if self.in_bytes
            else f"{value:g}"
            if isinstance(value, float)
            else format_value(value)
        )

    def first_levels(self) -> list[Value]:
        """Return the values to begin with: all of a choice, or a range in equal ratios with the base among them."""
        if self.levels:
            return list(self.levels)
        if self.high <= self.low:
            return [self.base]
        steps = [self.low * (self.high / self.low) ** (i / (_FIRST_LEVELS - 1)) for i in range(_FIRST_LEVELS)]
        return sorted({self.base, *(self._round(step) for step in steps)})

    def between(self, low: Any, high: Any) -> Value | None:
        """Return a value between two others; None if there is none."""
        middle = self._round(math.sqrt(low * high))
        return middle if low < middle < high else None

    def _round(self, value: float) -> Any:
        """Return a value as the factor takes it. Large sizes become multiples of 8 or 64, because odd ones would add an
        effect of alignment to the curve."""
        if not self.whole:
            return value
        step = self.step or (64 if value >= 512 else 8 if value >= 48 else 1)
        if not self.step and (self.in_bytes or self.group == "resource"):
            step = 1
        if self.step and value >= self.high:
            return int(self.high)
        return int(min(max(round(value / step) * step, self.low), self.high))


def find_factors(base: Task, info: BackendInfo) -> list[CaseFactor]:
    """Return everything that can be varied of a task, and what cannot be, with the reason."""
    case, settings = base.case, base.settings
    return [
        *_sizes(case), *_parameters(case, info), *_knobs(base, info), *_threads(settings, info),
        *_placements(settings, info), *_cache(settings, info), *_device(settings, info), *_parallelism(settings, info),
    ]  # fmt: skip


def with_knobs(base: Task, factors: Sequence[CaseFactor]) -> Task:
    """Return the task with the implementation whose knobs are varied, if any are."""
    label = next((factor.implementation for factor in factors if factor.implementation), "")
    return replace(base, implementation=label) if label else base


def make_task(base: Task, factors: Sequence[CaseFactor], point: Mapping[str, Value]) -> Task:
    """Return the task of a point. InvalidParameter if the operator does not take such parameters."""
    settings = base.settings
    draft = TaskDraft(dict(base.case.params), dict(settings.configuration), settings)
    for factor in factors:
        factor.apply(draft, point[factor.name])
    case = base.case
    if draft.params != case.params:
        operator = find_operator(case.op)
        operator.check_rules(draft.params)
        case = Case.of(case.op, draft.params, case.phase, case.tags, case.wrt)
    configuration = draft.configuration
    if configuration and case is not base.case:
        configuration = _fit_knobs(case, base, configuration)
    resources = Resources(**draft.resources) if draft.resources else None
    changed = replace(draft.settings, configuration=as_pairs(configuration), resources=resources)
    return replace(base, case=case, settings=changed)


def _fit_knobs(case: Case, base: Task, configuration: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration for another shape: a split keeps its inner factors as far as possible."""
    spaces = [
        one.space for one in find_tunables(case, find_backend(base.backend))
        if one.implementation.label == base.implementation
    ]  # fmt: skip
    fitted = spaces[0].fit(configuration) if spaces else None
    if fitted is None:
        raise InvalidParameter(f"the knobs of {base.implementation} do not fit {format_configuration(case.params)}")
    return {name: value for name, value in fitted.items() if name in configuration}


def choose_factors(texts: Sequence[str], known: Sequence[CaseFactor], base: Task) -> list[CaseFactor]:
    """Return the factors that `--factor NAME`, `NAME=LOW:HIGH` or `NAME=V,V` name, or the default ones."""
    by_name = {factor.name: factor for factor in known}
    if not texts:
        chosen = [factor for factor in known if factor.default and not factor.why_not and _varies(factor)]
    else:
        chosen = []
        for text in texts:
            name, given, values = text.partition("=")
            if name not in by_name:
                raise UnknownName("factor", name, by_name, f"opmark factors --list {base.case.op}")
            factor = by_name[name]
            if factor.why_not:
                raise UserError(f"factor `{name}` cannot be varied here: {factor.why_not}", _LIST)
            if factor in chosen or any(one.name == name for one in chosen):
                raise InvalidParameter(f"--factor {name} is named twice", "name each factor once")
            chosen.append(_restrict(factor, values) if given else factor)
    order = {factor.name: place for place, factor in enumerate(known)}
    chosen.sort(key=lambda factor: order[factor.name])
    if not chosen:
        raise UserError(f"nothing of {base.case.op} can be varied on {base.backend}", _LIST)
    for factor in chosen:
        if not _varies(factor):
            shown = factor.setting().range or factor.format(factor.base)
            raise UserError(f"factor `{factor.name}` has one level here ({shown}): there is nothing to vary", _LIST)
    for first, second in ((a, b) for i, a in enumerate(chosen) for b in chosen[:i]):
        if shared := sorted(first.touches & second.touches):
            raise UserError(
                f"factors `{second.name}` and `{first.name}` both set {', '.join(shared)}", "vary one of them"
            )
    return chosen


_LIST = "`opmark factors --list OP` says what can be varied here, and how"


def _varies(factor: CaseFactor) -> bool:
    return len(factor.first_levels()) > 1


def _restrict(factor: CaseFactor, text: str) -> CaseFactor:
    """Return the factor with the range or the levels that were typed."""
    hint = f"as in --factor {factor.name}={_example(factor)}"
    low, colon, high = text.partition(":")
    if colon:
        if factor.levels and not all(isinstance(value, int | float) for value in factor.levels):
            raise InvalidParameter(
                f"factor `{factor.name}` has no range: its levels are {factor.setting().range}", hint
            )
        bounds = [_number(factor, part, hint) for part in (low, high)]
        if not 0 < bounds[0] < bounds[1]:
            raise InvalidParameter(
                f"--factor {factor.name}: expected a range from a lower to a higher number above 0, got {text}", hint
            )
        if factor.levels:
            kept = tuple(v for v in factor.levels if bounds[0] <= v <= bounds[1])  # type: ignore[operator]
            return _with_base(dataclasses.replace(factor, levels=kept), hint)
        if factor.group == "resource" and bounds[1] > factor.high:
            raise InvalidParameter(
                f"--factor {factor.name}: {bounds[1]:g} is more than there is: {factor.setting().range}", hint
            )
        _refuse_between_steps(factor, bounds)
        base = min(max(float(factor.base), bounds[0]), bounds[1])  # type: ignore[arg-type]
        whole = int(base) if factor.whole else base
        return dataclasses.replace(factor, low=bounds[0], high=bounds[1], base=whole)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if factor.levels:
        named = {factor.format(value): value for value in factor.levels}
        for part in parts:
            if part not in named:
                raise UnknownName(f"level of factor `{factor.name}`", part, named)
        return _with_base(dataclasses.replace(factor, levels=tuple(dict.fromkeys(named[part] for part in parts))), hint)
    values = [_number(factor, part, hint) for part in parts]
    if factor.group == "resource" and (beyond := [v for v in values if not factor.low <= v <= factor.high]):
        raise InvalidParameter(
            f"--factor {factor.name}: {beyond[0]:g} is outside of what there is: {factor.setting().range}", hint
        )
    _refuse_between_steps(factor, values)
    levels = tuple(sorted({int(v) if factor.whole else v for v in values}))
    return _with_base(dataclasses.replace(factor, levels=levels), hint)


def _refuse_between_steps(factor: CaseFactor, values: Sequence[float]) -> None:
    if factor.step and (between := [v for v in values if v % factor.step and v != factor.high]):
        raise InvalidParameter(
            f"--factor {factor.name}: expected multiples of {factor.step}, or {factor.high:g}, got {between[0]:g}",
            f"as in --factor {factor.name}={_example(factor)}",
        )


def _with_base(factor: CaseFactor, hint: str) -> CaseFactor:
    if len(factor.levels) < 2:
        raise InvalidParameter(f"--factor {factor.name}: expected at least 2 levels, got {len(factor.levels)}", hint)
    if factor.base in factor.levels:
        return factor
    return dataclasses.replace(factor, base=factor.levels[len(factor.levels) // 2])


def _number(factor: CaseFactor, text: str, hint: str) -> float:
    try:
        return float(parse_bytes(text)) if factor.in_bytes else float(text)
    except ValueError:
        what = "a size such as 16M" if factor.in_bytes else "a number"
        raise InvalidParameter(f"--factor {factor.name}: expected {what}, got `{text}`", hint) from None


def _example(factor: CaseFactor) -> str:
    if factor.levels:
        return ",".join(factor.format(value) for value in factor.levels[:2])
    return f"{factor.format(factor.low or 1)}:{factor.format(factor.high or 1024)}"


# Inside of an operator: sizes and other parameters.


def _sizes(case: Case) -> Iterator[CaseFactor]:
    operator = find_operator(case.op)
    places = size_places(operator, case.params)
    moved = _moving(case)
    if not moved:
        yield CaseFactor("size", "operator", "", _nothing, why_not=f"{case.op} has no size that its data grow with")
    else:
        largest = max(places[place] for place in moved)

        def scaled(params: Mapping[str, Any], n: float) -> dict[str, Any]:
            return resize(params, moved, lambda value: max(1, round(value * n / largest)))

        high = max(_largest(case, scaled, LARGEST_SIZE), largest)
        names = list(dict.fromkeys(name for name, _ in moved))
        touches = frozenset(names)
        listed = ", ".join(names)
        together = f"{listed} together" if len(moved) > 1 else listed

        def set_size(draft: TaskDraft, n: Any) -> None:
            draft.params |= {name: scaled(draft.params, n)[name] for name in names}

        yield CaseFactor(
            "size", "operator", f"parameters of the case: {together}, in their proportions", set_size, largest,
            low=1, high=high, touches=touches, default=True,
        )  # fmt: skip
        base_bytes = _bytes(case, case.params)

        def set_bytes(draft: TaskDraft, nbytes: Any) -> None:
            set_size(draft, _size_of_bytes(case, scaled, nbytes, largest, base_bytes))

        reach = max(base_bytes, _bytes(case, scaled(case.params, high)))
        yield CaseFactor(
            "working_set", "resource", f"bytes of all tensors: {together}, in their proportions", set_bytes,
            min(max(base_bytes, LEAST_BYTES), MOST_BYTES), low=LEAST_BYTES, high=min(MOST_BYTES, reach),
            touches=touches, in_bytes=True,
        )  # fmt: skip
    for place, value in places.items():
        name, index = place
        own = name if index is None else f"{name}[{index}]"

        def set_one(draft: TaskDraft, n: Any, place: Any = place) -> None:
            draft.params |= resize(draft.params, [place], lambda _: int(n))

        yield CaseFactor(
            own, "operator", "parameter of the case", set_one, value, low=1, high=max(LARGEST_SIZE, value),
            touches=frozenset({name}),
        )  # fmt: skip


def _moving(case: Case) -> list[Any]:
    """Return the places that the input grows with: those of a shape if there is one, as of an image or a matrix, else
    all sizes that make the data larger (M, N and K of a product)."""
    operator = find_operator(case.op)
    params, found = case.params, []
    places = size_places(operator, params)
    if not places:
        return []
    before = count_elements(operator, params)
    for place, value in places.items():
        larger = resize(params, [place], lambda n: 2 * n)
        alike = [other for other, n in places.items() if n == value]
        if not rules_allow(operator, larger):
            larger = resize(params, alike, lambda n: 2 * n)
        if value > 1 and rules_allow(operator, larger) and count_elements(operator, larger) >= 1.2 * before:
            found.append(place)
    shapes = {param.name for param in operator.params if param.kind == "shape"}
    of_shapes = [place for place in found if place[0] in shapes]
    return of_shapes or found


def _largest(case: Case, scaled: Callable[[Mapping[str, Any], float], dict[str, Any]], most: int) -> int:
    """Return the largest size up to `most` that fits into memory and can be computed in a few seconds."""
    operator, memory = find_operator(case.op), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    n = most
    while n > 1:
        params = scaled(case.params, n)
        if rules_allow(operator, params):
            flops = operator.cost(params).flops or 0
            if _bytes(case, params) <= memory / _MEMORY_SHARE and flops <= _MOST_FLOPS:
                break
        n //= 2
    return n


def _bytes(case: Case, params: Mapping[str, Any]) -> int:
    """Return the bytes of all inputs, and what is written."""
    operator = find_operator(case.op)
    read = sum(spec.nbytes for spec in operator.inputs(params).values())
    return read + operator.cost(params).bytes_written


def _size_of_bytes(
    case: Case, scaled: Callable[[Mapping[str, Any], float], dict[str, Any]], nbytes: float, largest: int, known: int
) -> float:
    """Return the size whose tensors take about so many bytes, by bisection."""
    low, high = 1.0, float(largest)
    while _bytes(case, scaled(case.params, high)) < nbytes and high < 1e7:
        high *= 2
    for _ in range(40):
        middle = math.sqrt(low * high)
        if _bytes(case, scaled(case.params, middle)) < nbytes:
            low = middle
        else:
            high = middle
    return high


def _parameters(case: Case, info: BackendInfo) -> Iterator[CaseFactor]:
    """Yield parameters with choices: element types, layouts, kinds."""
    operator = find_operator(case.op)
    for param in operator.params:
        levels = _choices(param, info)
        if len(levels) > 1:
            yield CaseFactor(
                param.name, "operator", "parameter of the case", _setter(param.name),
                case.params.get(param.name, param.default), levels=levels, touches=frozenset({param.name}),
                default=True,
            )  # fmt: skip


def _choices(param: Param, info: BackendInfo) -> tuple[Value, ...]:
    if param.kind == "dtype":
        return tuple(name for name in param.choices if name in info.dtypes and name.startswith(("float", "bfloat")))
    if param.kind == "bool":
        return (False, True)
    return tuple(param.choices)


def _setter(name: str) -> Callable[[TaskDraft, Any], None]:
    def set_param(draft: TaskDraft, value: Any) -> None:
        draft.params[name] = value

    return set_param


def _nothing(draft: TaskDraft, value: Any) -> None:
    """Set nothing: the factor is not available."""


# Knobs.


def _knobs(base: Task, info: BackendInfo) -> Iterator[CaseFactor]:
    """Yield the knobs of the implementation of a task, or of the first that has any. Knobs that are not varied have
    their default."""
    found = find_tunables(base.case, info)
    own = (one for one in found if one.implementation.label == base.implementation)
    tunable = next(own, None) or next(iter(found), None)
    if tunable is None:
        return
    space, label = tunable.space, tunable.implementation.label
    for knob in space.knobs:
        if knob.name == THREADS:
            continue
        allowed = [value for value in knob.values if space.why_not({**space.default, knob.name: value}) is None]
        levels = _thin([*allowed, *([knob.usual] if knob.usual not in allowed else [])], knob.usual)

        def set_knob(draft: TaskDraft, value: Any, name: str = knob.name) -> None:
            draft.configuration[name] = value

        yield CaseFactor(
            knob.name, "knob", knob.summary or f"knob of {label} ({knob.kind})", set_knob, knob.usual,
            levels=tuple(levels), touches=frozenset({f"knob {knob.name}"}), default=True, implementation=label,
        )  # fmt: skip


def _thin(values: Sequence[Value], keep: Value) -> list[Value]:
    """Return a few values at equal distances, the ends and one more among them."""
    if len(values) <= _MOST_CATEGORIES:
        return list(values)
    last = len(values) - 1
    places = {round(i * last / (_MOST_CATEGORIES - 1)) for i in range(_MOST_CATEGORIES)} | {values.index(keep)}
    return [values[place] for place in sorted(places)]


# Resources.


def _threads(settings: Settings, info: BackendInfo) -> Iterator[CaseFactor]:
    cores = len(affinity())
    why = (
        ""
        if info.device in _HOSTS
        else (f"{info.name} computes on a device: threads of a block are knobs there (num_warps x 32, block sizes)")
    )

    def set_threads(draft: TaskDraft, value: Any) -> None:
        draft.settings = replace(draft.settings, threads=int(value))

    yield CaseFactor(
        THREADS, "resource", "number of threads of the worker, in its environment before the framework starts",
        set_threads, min(settings.threads, cores), low=1, high=cores, touches=frozenset({THREADS}), why_not=why,
        default=True,
    )  # fmt: skip


def _placements(settings: Settings, info: BackendInfo) -> Iterator[CaseFactor]:
    cores = topology.logical_cores()
    count, nodes = settings.threads, sorted({core.node for core in cores})
    on_device = "" if info.device in _HOSTS else f"{info.name} computes on a device"

    def choose(levels: Mapping[str, Callable[[int], tuple[int, ...]]]) -> Callable[[TaskDraft, Any], None]:
        def set_cores(draft: TaskDraft, level: Any) -> None:
            if level in levels:
                draft.resources |= {"placement": level, "cores": levels[level](draft.settings.threads)}

        return set_cores

    spread: dict[str, Callable[[int], tuple[int, ...]]] = {
        "scatter": lambda n: topology.scatter(cores, n), "compact": lambda n: topology.compact(cores, n),
    }  # fmt: skip
    everything = tuple(core.number for core in cores)
    distinct = {name: pick for name, pick in spread.items() if pick(count) != everything}
    if len({pick(count) for pick in distinct.values()}) < len(distinct):
        distinct.pop("compact")
    why = on_device or (
        "" if distinct else f"{count} threads on {len(cores)} cores have one placement: choose fewer --threads"
    )
    yield CaseFactor(
        "affinity", "resource", "cores of the worker (sched_setaffinity); free: the kernel moves threads",
        choose(distinct), "free", levels=("free", *distinct), touches=frozenset({"cores"}), why_not=why, default=True,
    )  # fmt: skip
    kinds = sorted({core.kind for core in cores if core.kind})
    of_kind = {kind: [core for core in cores if core.kind == kind] for kind in kinds}
    yield CaseFactor(
        "core_type", "resource", "cores of one kind (sched_setaffinity)",
        choose({kind: lambda n, own=own: topology.scatter(own, n) for kind, own in of_kind.items()}),  # type: ignore[misc]
        kinds[0] if kinds else "", levels=tuple(kinds), touches=frozenset({"cores"}),
        why_not=on_device or ("" if kinds else "all cores here are of one kind, as far as the kernel tells"),
        default=True,
    )  # fmt: skip
    single = topology.scatter(cores, len({(core.package, core.physical) for core in cores}))
    yield CaseFactor(
        "smt", "resource", "threads on physical cores of their own, or two on each (sched_setaffinity)",
        choose({"one per core": lambda n: single[:n], "siblings": spread["compact"]}), "one per core",
        levels=("one per core", "siblings"), touches=frozenset({"cores"}),
        why_not=on_device or (
            "the cores here have one thread each" if not topology.has_smt(cores)
            else f"{count} threads do not fit on {len(single)} physical cores: choose fewer --threads"
            if count > len(single) else "one thread has no sibling: choose more --threads" if count < 2 else ""
        ),
        default=True,
    )  # fmt: skip
    of_node = {f"node {node}": [core for core in cores if core.node == node] for node in nodes}
    one_node = f"this machine has one NUMA node, as far as the kernel tells ({len(cores)} cores)"
    yield CaseFactor(
        "numa", "resource", "cores of one NUMA node (sched_setaffinity); memory follows them",
        choose({name: lambda n, own=own: topology.compact(own, n) for name, own in of_node.items()}),  # type: ignore[misc]
        "node 0", levels=tuple(of_node), touches=frozenset({"cores"}),
        why_not=on_device or (one_node if len(nodes) < 2 else ""),
    )  # fmt: skip

    def set_memory(draft: TaskDraft, level: Any) -> None:
        own = of_node[f"node {nodes[0]}"]
        draft.resources |= {
            "placement": f"{level} memory", "cores": topology.compact(own, draft.settings.threads),
            "memory_node": nodes[0] if level == "local" else nodes[-1],
        }  # fmt: skip

    yield CaseFactor(
        "memory", "resource", "memory of the same or of another NUMA node (set_mempolicy)", set_memory, "local",
        levels=("local", "remote"), touches=frozenset({"cores", "memory"}),
        why_not=on_device or (one_node if len(nodes) < 2 else topology.why_no_memory_policy()), default=len(nodes) > 1,
    )  # fmt: skip


def _cache(settings: Settings, info: BackendInfo) -> Iterator[CaseFactor]:
    states = ("warm", "rotated") if info.device in _HOSTS else ("warm", "cold")

    def set_state(draft: TaskDraft, value: Any) -> None:
        draft.settings = replace(draft.settings, caches=(value,))

    yield CaseFactor(
        "cache_state", "resource", "what is in the caches when a call begins (--cache)", set_state, states[0],
        levels=states, touches=frozenset({"caches"}),
    )  # fmt: skip
    why = resctrl.why_not()
    low, high = (1, 1) if why else resctrl.way_range()

    def set_ways(draft: TaskDraft, value: Any) -> None:
        draft.resources["cache_ways"] = int(value)

    yield CaseFactor(
        "l3_ways", "resource", "ways of the last-level cache that the worker may fill (resctrl, CAT)", set_ways, high,
        low=low, high=high, touches=frozenset({"l3"}), why_not=why, default=True,
    )  # fmt: skip


def _device(settings: Settings, info: BackendInfo) -> Iterator[CaseFactor]:
    no_gpu = "" if info.device == "cuda" else f"{info.name} does not compute on an NVIDIA GPU"
    pipe = Path(os.environ.get(_MPS, "/tmp/nvidia-mps")) / "control"

    def set_share(draft: TaskDraft, value: Any) -> None:
        draft.resources["sm_percent"] = int(value)

    yield CaseFactor(
        "sm_percent", "resource", "share of the multiprocessors (CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)", set_share, 100,
        low=10, high=100, touches=frozenset({"sm"}),
        why_not=no_gpu or (
            "" if pipe.exists()
            else "no MPS daemon runs here: `nvidia-cuda-mps-control -d` starts one; factor `sms` needs none"
        ),
    )  # fmt: skip
    gpu, why = (Multiprocessors(0, 0), no_gpu) if no_gpu else _multiprocessors(settings, info)

    def set_sms(draft: TaskDraft, value: Any) -> None:
        draft.resources["sms"] = int(value)

    yield CaseFactor(
        "sms", "resource", "multiprocessors that calls run on: the stream of a green context", set_sms, gpu.total,
        low=gpu.step, high=gpu.total, step=gpu.step, touches=frozenset({"sm", "load"}), why_not=why,
    )  # fmt: skip
    clocks = () if no_gpu else _gpu_clocks()

    def set_clock(draft: TaskDraft, value: Any) -> None:
        draft.resources["clock"] = int(value)

    yield CaseFactor(
        "clock", "resource", "MHz that the clock guard locks the GPU at (NVML); it sets it back at the end", set_clock,
        clocks[-1] if clocks else 0, levels=clocks, touches=frozenset({"clock"}),
        why_not=no_gpu or ("" if clocks else "NVML does not tell which clocks this GPU has"),
    )  # fmt: skip


def _multiprocessors(settings: Settings, info: BackendInfo) -> tuple[Multiprocessors, str]:
    """Return what a green context can have here, and why there is none."""
    why = ""
    if info.framework != "torch" or info.compiles:
        why = f"{info.name} may launch on other streams than that of a green context; torch-cuda does not"
    elif settings.load:
        why = "clients call on streams of their own, which have all multiprocessors"
    elif settings.timer == "graph":
        why = "a graph is captured on a stream of its own, which has all multiprocessors"
    else:
        (found,) = survey([info])
        numbers = tuple(map(int, re.findall(r"\d+", found.facts.get("torch", ""))[:2]))
        why = found.reason or ""
        if not why and numbers < _FIRST_WITH_GREEN_STREAMS:
            why = f"streams of green contexts came with torch 2.11, and this is {found.facts.get('torch', 'unknown')}"
    if why:
        return Multiprocessors(0, 0), why
    try:
        return multiprocessors(), ""
    except OSError as error:
        return Multiprocessors(0, 0), str(error)


def _gpu_clocks() -> tuple[Value, ...]:
    """Return a few of the clocks that the first visible GPU can be locked at, in MHz."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return ()
    from opmark.hardware.sensors import visible_handles

    try:
        pynvml.nvmlInit()
        for _, handle in visible_handles(pynvml):
            memory = max(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle))
            clocks = sorted(pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory))
            half = [clock for clock in clocks if clock >= clocks[-1] / 2]
            return tuple(_thin(half, half[-1]))
    except pynvml.NVMLError:
        return ()
    return ()


# Between operators.


def _parallelism(settings: Settings, info: BackendInfo) -> Iterator[CaseFactor]:
    def set_clients(draft: TaskDraft, value: Any) -> None:
        draft.settings = replace(draft.settings, load=Load(int(value)), quantities=(), caches=())

    most = len(affinity()) if info.device in _HOSTS else _CLIENTS
    what = "threads of one process that call at the same time" + ("" if info.device in _HOSTS else ", each on a stream")
    yield CaseFactor(
        "clients", "parallelism", f"{what} (--clients); the time is that of one answer", set_clients, 1, low=1,
        high=max(2, most), touches=frozenset({"load", "caches"}),
    )  # fmt: skip
    yield CaseFactor(
        "processes", "parallelism", "", _nothing, why_not="processes at the same time are `opmark corun OP OP`",
    )  # fmt: skip
    yield CaseFactor(
        "combination", "parallelism", "", _nothing, why_not="operators at the same time are `opmark corun A B`",
    )  # fmt: skip

    def set_seed(draft: TaskDraft, value: Any) -> None:
        draft.settings = replace(draft.settings, seed=int(value))

    yield CaseFactor(
        "seed", "check", "other input data of the same kind: a check that what does nothing has no effect",
        set_seed, settings.seed, levels=tuple(settings.seed + i for i in range(3)), touches=frozenset({"seed"}),
    )  # fmt: skip
