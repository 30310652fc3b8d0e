"""Times of the operators of a program, predicted in place of measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from opmark.api.predict import find_chip_of, floors_of, place_call, why_not_learnt
from opmark.catalogue.expansion import cases_of
from opmark.plugin.registry import operator as find_operator
from opmark.prediction.measured import device_name
from opmark.prediction.predictor import FAR, Prediction, Predictor
from opmark.prediction.samples import Samples, samples_of, sizes_of_case
from opmark.schema import Case
from opmark.schema.call_sizes import CalledOperator, CallSizes
from opmark.schema.schedule import DescribedProgram

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
