"""Times of the operators of a program, predicted in place of measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from opmark.catalogue.expansion import cases_of
from opmark.errors import Unsupported, UserError
from opmark.hardware.datasheets import datasheet
from opmark.plugin import BackendInfo
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.prediction.fusion import fuse, queue_seconds
from opmark.prediction.measured import bound_call, device_name
from opmark.prediction.predictor import ENERGY, FAR, Prediction, Predictor, shipped
from opmark.prediction.readers import find_chip
from opmark.prediction.samples import (
    BEYOND_CACHE,
    ChipFigures,
    Samples,
    class_of,
    least_flops,
    samples_of,
    sizes_of_case,
)
from opmark.runner.plan import default_threads
from opmark.runner.worker_process import environ_for
from opmark.schema import Case
from opmark.schema.call_sizes import CalledOperator, CallSizes
from opmark.schema.machine import Peaks
from opmark.schema.schedule import DescribedProgram
from opmark.traces.schedule_question import ProgramProcess

HERE = ("here", "cpu")
"""Names of the machine that a model was trained on."""
End = Literal["seconds", "low", "high"]
ENDS: tuple[End, End] = ("low", "high")


@dataclass(frozen=True)
class ProgramTimes:
    """The predicted times of a program on a chip."""

    chip: str
    operators: int
    """Number of operators; those that only make views have no call."""
    owners: tuple[int, ...]
    """For each call that was predicted, its operator."""
    predictions: tuple[Prediction, ...]
    floors: tuple[float, ...]
    """Seconds of the smallest call of the same operator."""
    samples: Samples
    unknown: dict[int, str]
    """By operator: why it could not be predicted."""

    def seconds(self, share: float = 1.0, of: End = "seconds") -> list[float]:
        """Return the time of each operator, or an end of its interval.

        With a share of the cores: they compute as much less, and move data as fast as all of them.
        """
        whole = [0.0] * self.operators
        computing, moving = self.samples.computing, self.samples.moving
        for place, owner in enumerate(self.owners):
            full, part = (max(computing[place] / some, moving[place]) + self.floors[place] for some in (1.0, share))
            whole[owner] += float(getattr(self.predictions[place], of)) * float(part / full)
        return whole


@dataclass(frozen=True)
class WholeProgram:
    """A program as a whole, with its launches."""

    seconds: float
    low: float
    high: float
    calls: int
    """Number of calls that compute something, as the backend makes them; without those that could not be predicted."""
    made: int
    """The same before fusion."""
    views: int
    launch: float
    """Seconds of a launch: the smallest call that was learnt."""
    hidden: bool
    """Whether launches are hidden behind the work of a device, as far as there is enough of it."""
    unknown: str = ""
    """What could not be predicted, and is not in the sum."""


def predict_program(program: DescribedProgram, on: str, predictor: Predictor, *, far: bool = False) -> ProgramTimes:
    """Predict every operator of a program on a chip."""
    name, peaks = find_chip_of(on, predictor)
    owners, calls, devices, bounds = list[int](), list[CallSizes](), list[str](), list[float]()
    chips, unknown = {}, dict[int, str]()
    for number, called in enumerate(program.calls):
        for one in called:
            sizes = _sizes_of(one)
            if reason := why_not_learnt(sizes, one.dtype, name, predictor):
                unknown[number] = reason
                continue
            device = device_name(name, one.dtype)
            chips[device], bound = place_call(sizes, one.dtype, name, peaks, predictor)
            owners.append(number)
            calls.append(sizes)
            devices.append(device)
            bounds.append(bound)
    samples = samples_of(calls, devices, [float("nan")] * len(calls), chips, bounds)
    predictions = predictor.predict(samples)
    for owner, guess in zip(owners, predictions, strict=True):
        if guess.distance > FAR and not far:
            unknown[owner] = f"it lies far outside of what was learnt: 2^{guess.distance:.1f} times beyond it"
    floors = floors_of(samples, predictor)
    return ProgramTimes(
        name, len(program.calls), tuple(owners), tuple(predictions), tuple(floors), samples, unknown
    )  # fmt: skip


def case_of_call(call: CalledOperator) -> Case | None:
    """Return the case of a call that the catalogue or a callable makes in the very same way."""
    if call.entry is None:
        return None
    (case,) = cases_of(call.entry, find_operator)
    return case


def _sizes_of(call: CalledOperator) -> CallSizes:
    """Return the sizes by which a model was trained, else those of the call itself."""
    case = case_of_call(call)
    return (sizes_of_case(find_operator(case.op), case) if case else None) or call.sizes


def name_unknown(times: ProgramTimes, names: Sequence[str], most: int = 3) -> str:
    """Return what could not be predicted, and why, as text."""
    reasons: dict[str, None] = {}
    for number, why in times.unknown.items():
        reasons[f"{names[number].rpartition('::')[2]}: {why}"] = None
    more = f"; and {len(reasons) - most} more" if len(reasons) > most else ""
    return "; ".join(list(reasons)[:most]) + more


def predict_whole(case: Case, on: str, predictor: Predictor, info: BackendInfo, *, far: bool = False) -> WholeProgram:
    """Return how long the calls of a program take in their order, as a backend makes them.

    What torch.compile fuses is one call. A view costs a launch where nothing is compiled. On a device, launches go on
    while it works; elsewhere a call waits for the one before. What could not be predicted takes nothing. Raise
    Unsupported for a backend of another framework, whose calls are not known.
    """
    if info.framework != "torch":
        raise Unsupported(f"which calls {info.name} makes of it is not known")
    threads = default_threads()
    looking = find_backend("torch-cpu")
    with ProgramProcess(case.op, dict(case.params), looking.name, threads, environ_for(looking, threads)) as process:
        program = process.describe()
    made = sum(map(len, program.calls))
    if info.compiles:
        program = fuse(program)
    times = predict_program(program, on, predictor, far=far)
    launch, hidden = min(times.floors, default=0.0), info.device == "cuda"
    own: list[list[int]] = [[] for _ in program.calls]
    for place, owner in enumerate(times.owners):
        if owner not in times.unknown:
            own[owner].append(place)
    views = [] if info.compiles else [number for number, calls in enumerate(program.calls) if not calls]

    def whole(of: End) -> float:
        spent = [float(getattr(one, of)) for one in times.predictions]
        if not hidden:
            return sum(spent[place] for places in own for place in places) + launch * len(views)
        works = [max(time - floor, one.bound) for time, floor, one in
                 zip(spent, times.floors, times.predictions, strict=True)]  # fmt: skip
        no_work = {number: [0.0] for number in views}
        return queue_seconds([work for number, places in enumerate(own) for work in
                              no_work.get(number, [works[place] for place in places])], launch)  # fmt: skip

    made -= sum(len(program.calls[number]) for number in times.unknown)
    return WholeProgram(
        whole("seconds"), whole("low"), whole("high"), sum(map(len, own)), made, len(views), launch, hidden,
        name_unknown(times, program.graph.operators) if times.unknown else "",
    )  # fmt: skip


def place_call(
    call: CallSizes, dtype: str, name: str, peaks: Peaks | None, predictor: Predictor
) -> tuple[ChipFigures, float]:
    """Return the figures of a chip and the least time of a call there; without peaks, the chip is known by its records
    alone."""
    if peaks is not None:
        return bound_call(call, dtype, peaks)
    figures = predictor.chips.get(device_name(name, dtype)) or predictor.chips[name]
    # Small data may lie in a cache of unknown bandwidth: only computing bounds it.
    moving = call.nbytes / figures.bandwidth if call.nbytes > BEYOND_CACHE * figures.cache else 0.0
    return figures, max(least_flops(call) / figures.flops, moving)


def find_chip_of(on: str, predictor: Predictor) -> tuple[str, Peaks | None]:
    """Return the name of a chip as the predictor knows it, and its datasheet; None if only records of it are known."""
    if on in predictor.chips:
        return on, datasheet(on)
    own = sorted({name.partition(" [")[0] for name in predictor.chips})  # without the element type
    if on.casefold() in HERE and predictor.data_hash != shipped().data_hash:
        if len(own) == 1:
            return own[0], None
        raise UserError(f"the model knows {', '.join(own)}: `{on}` is one of them", "--on NAME says which")
    if sheet := find_chip(on, {*predictor.chips, *predictor.probes}):
        return sheet.chip, sheet
    known = [name for name in own if on.casefold() in name.casefold()]
    if len(known) == 1:
        return known[0], None
    raise UserError(
        f"no datasheet for `{on}`, and nothing was measured there",
        "`opmark list chips` lists those that ship; docs/add-a-chip.md says how to add one; "
        "`opmark predict train` learns a chip from the store",
    )


def why_not_learnt(call: CallSizes, dtype: str, name: str, predictor: Predictor) -> str:
    """Return why a call cannot be predicted: its class was not learnt, or no chip of the training data has its element
    type, whose efficiency is another one."""
    suffixes = {chip.partition(" [")[2] for chip in predictor.chips}
    if device_name(name, dtype).removeprefix(name).removeprefix(" [") in suffixes:
        kind = class_of(call.operator)
        return "" if predictor.knows(kind) else f"nothing was learnt about operators of class {kind}"
    learnt = ", ".join(sorted(suffix.rstrip("]") or "float32" for suffix in suffixes))
    return f"the model has learnt {learnt} alone, not {dtype}"


def floors_of(samples: Samples, predictor: Predictor) -> list[float]:
    """Return the time of the smallest call of the operator of each call."""
    floors = []
    for row in range(len(samples)):
        model = predictor.model_of(class_of(str(samples.operator[row])))
        one = samples.take([row])
        unit = one.chips[str(one.device[0])].power if predictor.quantity == ENERGY else 1.0
        floors.append(unit * float(model.floor_of(one, unseen=str(samples.device[row]) not in model.own)[0]))
    return floors
