"""Turns points into entries; points that are refused for one reason are one problem with their number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opmark.errors import nearest
from opmark.importers.bytemicroperf.communication import expand_point
from opmark.importers.bytemicroperf.form import Form
from opmark.importers.bytemicroperf.spread import Spread, check_point_count
from opmark.importers.bytemicroperf.tasks import ARGUMENTS, forms_of
from opmark.importers.bytemicroperf.values import Arguments, Refused, quote, similar_name
from opmark.schema import Entry, Imported, Problem
from opmark.units import counted

ARG_TYPES = ("default", "llm", "batch_llm", "llm_batch")


@dataclass
class Taken:
    """Entries, problems and notes collected while a file is read."""

    path: Path
    entries: list[Entry] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    requests: dict[str, Any] = field(default_factory=dict)
    """Options of the measurement that the file sets."""

    def result(self) -> Imported:
        return Imported(tuple(self.entries), (), tuple(self.problems), tuple(self.notes), self.requests)

    def problem(self, place: str, message: str, hint: str = "") -> None:
        self.problems.append(Problem(f"{self.path}: {place}", message, hint))

    def note(self, text: str) -> None:
        self.notes[f"{self.path.name}: {text}"] = None

    def take(self, task: str, place: str, spreads: Iterable[Spread]) -> None:
        """Import all objects of one operator; an operator that opmark does not know is one problem."""
        before = len(self.problems), len(self.entries)
        try:
            forms = forms_of(task)
        except Refused as refused:
            points = sum(len(spread) for spread in self._report_flaws(spreads))
            self.problem(place, f"{refused.message} ({counted(points, 'point')})", refused.hint)
            return
        for spread in self._report_flaws(spreads):
            self._take_points(spread, forms)
        if before == (len(self.problems), len(self.entries)):
            self.problem(place, "the objects expand to no case", "an object needs arguments, each with a value")

    def _report_flaws(self, spreads: Iterable[Spread]) -> Iterator[Spread]:
        for spread in spreads:
            for flaw in spread.flaws:
                self.problem(flaw.place, flaw.message, flaw.hint)
            for axis in spread.axes if not spread.flaws else ():
                if not axis.rows:
                    self.problem(spread.place_of_axis(axis), "an empty list expands to no case")
            yield spread

    def _take_points(self, spread: Spread, forms: Sequence[Form]) -> None:
        refusals: dict[tuple[str, str], tuple[Refused, int]] = {}
        for point in spread.points():
            try:
                self._take_point(spread, forms, point)
            except Refused as refused:
                where = spread.place_of(refused.argument, point.get(refused.argument))
                count = refusals.get((where, refused.message), (refused, 0))[1]
                refusals[where, refused.message] = (refused, count + 1)
        for (where, message), (first, count) in refusals.items():
            self.problem(where, f"{message} ({counted(count, 'point')})", first.hint)

    def _take_point(self, spread: Spread, forms: Sequence[Form], written: Arguments) -> None:
        source = f"{self.path.name}#{spread.name}"
        points, note = expand_point(spread.task, written)
        if len(points) > 1:
            check_point_count(len(self.entries) + len(points))
        for point in points:
            form = _choose_form(forms, point)
            entry = Entry(form.op, form.params(point), tags=[form.tag] if form.tag else [], source=source)
            self._notes(form, point)
            self.entries.append(entry)
        if note:
            self.note(note)

    def _notes(self, form: Form, point: Arguments) -> None:
        """Note differences and ignored arguments; refuse an unknown argument that resembles a missing one."""
        for note in form.notes(point):
            self.note(note)
        if point.keys() <= form.names:
            return
        for name in sorted(point.keys() - form.names):
            near = None if name in ARGUMENTS else similar_name(name, form.names.difference(point))
            if near:
                raise Refused(f"`{form.task}` has no argument `{name}`", hint=f"did you mean `{near}`?")
            self.note(f"`{form.task}` has no argument `{name}`; it is ignored, as in ByteMicroPerf")


def _choose_form(forms: Sequence[Form], point: Arguments) -> Form:
    kind = point.get("arg_type", "default")
    if kind not in ARG_TYPES:
        near = nearest(str(kind), ARG_TYPES)
        raise Refused(f"argument `arg_type`: expected one of {', '.join(ARG_TYPES[:3])}, got {quote(kind)}", "arg_type",
                      f"did you mean `{near}`?" if near else "")  # fmt: skip
    return next((form for form in forms if form.when(point)), forms[-1])
