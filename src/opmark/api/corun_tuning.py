"""Tune operators together: cores, threads and knobs of all of them, for the least makespan: `opmark corun --tune`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from msgspec.structs import replace as replace_fields

from opmark.api.result import open_store
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.space import THREADS, Configuration, format_configuration
from opmark.runner.corun import Member, pinned_to, round_of, run_company
from opmark.runner.session import RunRecorder
from opmark.runner.supervisor import Supervisor, WorkerOptions
from opmark.schema import Record, Task
from opmark.schema.company import cores_text
from opmark.schema.measurement import MAKESPAN
from opmark.schema.record import MEASURED
from opmark.tuning.database import with_configuration
from opmark.tuning.spaces import find_tunables
from opmark.units import count_noun, seconds

if TYPE_CHECKING:
    from opmark.api.corun import Corun, CorunSession

_SEARCH_SHARE = 0.5
"""Share of the budget that the search may take; the rest is for the verdict."""
_SOLO_SHARE = 0.4
"""Share of the search that finds the best of each operator alone."""
_PARTS = 8
"""Cores are handed out in so many parts, or one by one where there are fewer."""


@dataclass(frozen=True)
class _Choice:
    """A way to run one operator: its task, which has threads and a configuration, and its cores."""

    task: Task
    cores: tuple[int, ...]

    @property
    def text(self) -> str:
        settings = self.task.settings
        where = f" on {cores_text(self.cores)}" if self.cores else ""
        knobs = {name: value for name, value in settings.configuration if name != THREADS}
        chosen = f", {format_configuration(knobs)}" if knobs else ""
        return f"{self.task.case.op} {count_noun(settings.threads, 'thread')}{where}{chosen}"


def tune_company(session: CorunSession) -> Corun:
    """Search for each operator what is best alone, then for all together what has the least makespan, and hold the two
    against each other in turns, in fresh processes: the best of many short measurements is the luckiest."""
    return _JointSearch(session).run()


class _JointSearch:
    def __init__(self, session: CorunSession) -> None:
        self.session, self.request = session, session.request
        self.places = range(len(session.operators))
        self.hosts = [place for place in self.places if session.operators[place].on_host]
        self.whole = session.whole_cores(self.hosts)
        self.random = Random(session.request.seed)
        self.began = time.monotonic()
        self.until = self.began + _SEARCH_SHARE * session.request.budget
        self.longest = 0.0
        """Seconds of the longest candidate: none is begun that would not be done in time."""
        self.done: dict[str, Record] = {}
        self.tried = 0
        self.notes: list[str] = []

    def run(self) -> Corun:
        session = self.session
        with closing(open_store(self.request.db, create=True, say=self.request.say)) as store:
            whole = [session.members(tuple(self.places))]
            recorder, self.done = session.recorder(store, whole, 1, "search")
            workers = WorkerOptions(
                self.request.timeout, self.request.compile_timeout, self.request.say, store.add_environment
            )
            ranked = [self._rank_alone(place, workers, recorder) for place in self.places]
            best = self._search_together(ranked, workers, recorder)
        members = [
            Member(one.task, one.cores, ranked[place][0].task, ranked[place][0].cores) for place, one in enumerate(best)
        ]
        alone = "; ".join(own[0].text for own in ranked)
        self.notes += [
            f"{count_noun(self.tried, 'candidate')} together were tried; their run is {recorder.run.id}",
            f"best together: {'; '.join(one.text for one in best)}",
            f"best alone, which the sequence has where it is quicker: {alone}",
        ]
        return session.run([members], self.notes, self.began)

    # Alone.

    def _rank_alone(self, place: int, workers: WorkerOptions, recorder: RunRecorder) -> list[_Choice]:
        """Return ways to run an operator with all cores to itself, the fastest first; those that fail are left out."""
        until = time.monotonic() + _SOLO_SHARE * (self.until - time.monotonic()) / (len(self.places) - place)
        on_host = place in self.hosts
        cores = self.whole if on_host else ()
        found: list[tuple[float, _Choice]] = []
        for number, task in enumerate(self._candidates_alone(place, cores)):
            began = time.monotonic()
            if found and (number >= self.request.trials or began > until or began + self.longest > self.until):
                break
            self.request.on_step(0, 0, f"{task.case.op} alone, candidate {number + 1}")
            record = self._measure_alone(task, cores, workers)
            if task.id not in self.done:
                recorder.add(record)
            self.longest = max(self.longest, time.monotonic() - began)
            if (spent := _latency(record)) is not None:
                found.append((spent, _Choice(task, cores)))
        if not found:  # the default, whose failure the verdict will show
            return [_Choice(next(self._candidates_alone(place, cores)), cores)]
        found.sort(key=lambda one: one[0])
        best, choice = found[0]
        self.notes.append(f"{choice.task.case.op} alone: {seconds(best)} is the best of {len(found)}: {choice.text}")
        return [one for _, one in found]

    def _candidates_alone(self, place: int, cores: tuple[int, ...]) -> Iterator[Task]:
        """Yield the default, then other numbers of threads, then other knobs, drawn at random."""
        session = self.session
        most = session.threads[place] or max(1, len(cores))
        counts = [most, *(count for count in _powers_of_two(most)[::-1] if not session.threads[place])]
        for count in counts:
            yield self._with_knobs(session.task(place, count), {})
        operator = session.operators[place]
        for tunable in find_tunables(operator.case, operator.info):
            if self.request.impl and tunable.implementation.label != operator.implementation:
                continue
            for index in tunable.space.draw(self.random, self.request.trials):
                configuration = tunable.space.at(index)
                task = replace_fields(session.task(place, most), implementation=tunable.implementation.label)
                if session.threads[place] and configuration.get(THREADS, most) != most:
                    continue
                yield self._with_knobs(task, configuration)

    def _with_knobs(self, task: Task, configuration: Configuration) -> Task:
        return with_configuration(task, configuration, task.implementation) if configuration else task

    def _measure_alone(self, task: Task, cores: tuple[int, ...], workers: WorkerOptions) -> Record:
        if known := self.done.get(task.id):
            return known
        info = find_backend(task.backend)
        worker = Supervisor(info, task.settings.threads, workers, resources=pinned_to(cores))
        try:
            return worker.run(task)
        finally:
            worker.close()

    # Together.

    def _search_together(
        self, ranked: Sequence[Sequence[_Choice]], workers: WorkerOptions, recorder: RunRecorder
    ) -> list[_Choice]:
        """Return the ways with the least makespan: first every division of the cores, each operator as it is best
        alone; then, from the best of these, other ways for one operator after the other."""
        best: list[_Choice] | None = None
        least = float("inf")
        seen: set[tuple[str, ...]] = set()

        def attempt(choices: list[_Choice]) -> bool:
            """Whether a candidate is the best so far; False too for one that was tried before."""
            nonlocal best, least
            key = tuple(f"{one.task.id} {one.cores}" for one in choices)
            if key in seen:
                return False
            seen.add(key)
            self.tried += 1
            self.request.on_step(self.tried - 1, self.request.trials, "; ".join(one.text for one in choices))
            spent = self._makespan(choices, workers, recorder)
            if best is None or (spent is not None and spent < least):
                best, least = choices, spent if spent is not None else least
                return True
            return False

        divisions = list(self._divisions())
        for cores in divisions:
            if best is not None and self._is_over():
                break
            attempt([self._fit(ranked[place][0], cores.get(place, ())) for place in self.places])
        assert best is not None
        improved = True
        while improved and not self._is_over():
            improved = False
            for place in self.places:
                for other in ranked[place][1:]:
                    if self._is_over():
                        break
                    choices = list(best)
                    choices[place] = self._fit(other, best[place].cores, keep_threads=True)
                    improved |= attempt(choices)
        return best

    def _is_over(self) -> bool:
        return self.tried >= self.request.trials or time.monotonic() + self.longest > self.until

    def _divisions(self) -> Iterator[dict[int, tuple[int, ...]]]:
        """Yield ways to divide the cores among the operators that need some: all for all, then the most equal ones
        first."""
        if not self.hosts:
            yield {}
            return
        count, cores = len(self.hosts), [core for core in self.session.cores if core in self.whole]
        parts = min(_PARTS, len(cores))
        ends = [round(len(cores) * i / parts) for i in range(parts + 1)]
        cuts = sorted(combinations(range(1, parts), count - 1), key=lambda cut: _inequality(cut, parts))
        every = iter([(0, *cut, parts) for cut in cuts])
        if first := next(every, None):
            yield self._divided(first, ends, cores)
        yield dict.fromkeys(self.hosts, tuple(sorted(cores)))
        for cut in every:
            yield self._divided(cut, ends, cores)

    def _divided(self, cut: Sequence[int], ends: Sequence[int], cores: Sequence[int]) -> dict[int, tuple[int, ...]]:
        sets = (tuple(sorted(cores[ends[a] : ends[b]])) for a, b in pairwise(cut))
        return dict(zip(self.hosts, sets, strict=True))

    def _fit(self, choice: _Choice, cores: tuple[int, ...], *, keep_threads: bool = False) -> _Choice:
        """Return a way to run an operator with at most as many threads as it has cores."""
        if not cores:
            return choice
        given = choice.task.settings
        threads = min(given.threads, len(cores)) if keep_threads else len(cores)
        configuration = tuple((name, threads if name == THREADS else value) for name, value in given.configuration)
        settings = replace_fields(given, threads=threads, configuration=configuration)
        return replace(choice, task=replace_fields(choice.task, settings=settings), cores=cores)

    def _makespan(self, choices: Sequence[_Choice], workers: WorkerOptions, recorder: RunRecorder) -> float | None:
        found, began = None, time.monotonic()
        members = [Member(one.task, one.cores) for one in choices]
        records = round_of(members, 0, self.done)
        if not records:
            records = list(run_company(members, 0, workers))
            recorder.add(*records)
        for record in records:
            measured = record.measurement(MAKESPAN) if record.status in MEASURED else None
            if measured and measured.samples:
                found = median(measured.samples)
        self.longest = max(self.longest, time.monotonic() - began)
        return found


def _latency(record: Record) -> float | None:
    measured = record.measurement() if record.status in MEASURED else None
    return median(measured.samples) if measured and measured.samples else None


def _powers_of_two(below: int) -> list[int]:
    return [1 << exponent for exponent in range(below.bit_length()) if 1 << exponent < below]


def _inequality(cut: Sequence[int], parts: int) -> int:
    places = (0, *cut, parts)
    sizes = [b - a for a, b in pairwise(places)]
    return max(sizes) - min(sizes)
