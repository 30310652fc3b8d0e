"""Simulated sessions and nights with known effects, for the benchmarks and the tests.

The unit is the process: the logarithm of its median is that of the true time, plus noise, plus drift.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from opmark.analysis.compared_side import ComparedSide, side_of
from opmark.analysis.comparison import compare
from opmark.schema import EFFORTS, Case, Environment, Measurement, Record, Run, Settings, Task
from opmark.schema.comparison import Verdict
from opmark.schema.record import Figure
from opmark.stats import change_point
from opmark.stats.verdict import ALPHA, STAGES, rank_sum_p
from opmark.store.memory import MemoryStore

Values = NDArray[np.float64]
Shape = Callable[[np.random.Generator, int], Values]
"""Returns the drift of each process in the order of time, with a range of one."""


def _walk(draw: np.random.Generator, processes: int) -> Values:
    steps = np.cumsum(draw.normal(size=processes))
    return np.asarray((steps - steps.min()) / np.ptp(steps))


def _sine(draw: np.random.Generator, processes: int) -> Values:
    """Return one to three waves per session, with a random phase."""
    waves, begin = draw.uniform(1, 3), draw.uniform(0, 2 * np.pi)
    return np.asarray(np.sin(begin + np.linspace(0, 2 * np.pi * waves, processes)) / 2)


DRIFTS: dict[str, Shape] = {
    "none": lambda draw, processes: np.zeros(processes),
    "linear": lambda draw, processes: np.linspace(0, 1, processes),
    "a step in the middle": lambda draw, processes: (np.arange(processes) >= processes // 2).astype(float),
    "a step anywhere": lambda draw, processes: (np.arange(processes) >= draw.integers(1, processes)).astype(float),
    "sine": _sine,
    "random walk": _walk,
    "in the first pairs": lambda draw, processes: np.minimum(np.arange(processes) / (2 * STAGES[0] - 1), 1),
}
_TRUTH = 1e-5
# The processes of B in the order ABBA ABBA ...
_B = np.tile([False, True, True, False], STAGES[-1] // 2)


class Session(NamedTuple):
    """Parameters of a simulated comparison."""

    spread: float
    """Standard deviation between processes that run the same code."""
    drift: str = "none"
    by: float = 0.02
    effect: float = 0.0
    """Share by which B is truly slower."""
    within: float = 0.01
    """Standard deviation between the iterations of a process, for tests that pool them."""
    states: float = 0.0
    """Share of processes that are in a slower state for all of their life, as a placement of memory makes it."""
    slower: float = 0.05
    """Share by which that state is slower."""
    tick: float = 0.0
    """Resolution of the clock in seconds; values are multiples of it."""

    def medians(self, draw: np.random.Generator, is_b: NDArray[np.bool_]) -> Values:
        """Return the medians of the processes, one after the other."""
        drift = np.log1p(self.by) * DRIFTS[self.drift](draw, len(is_b)) * draw.choice([-1, 1])
        noise = draw.normal(0, self.spread, len(is_b))
        if self.states:
            noise += np.log1p(self.slower) * (draw.random(len(is_b)) < self.states)
        if not self.tick:
            return np.asarray(_TRUTH * np.exp(np.log1p(self.effect) * is_b + noise + drift))
        short = draw.uniform(30, 60) * self.tick * np.exp(np.log1p(self.effect) * is_b + noise + drift)
        return np.asarray(np.round(short / self.tick) * self.tick)


class SessionResult(NamedTuple):
    verdict: Verdict
    processes: int
    """Processes per side."""


Rule = Callable[[Session, np.random.Generator], SessionResult]


def shares(rule: Rule, session: Session, trials: int, seed: int = 8) -> tuple[dict[Verdict, float], float]:
    """Return the share of each verdict, and the mean number of processes per side."""
    draw = np.random.default_rng(seed)
    ended = [rule(session, draw) for _ in range(trials)]
    counts = Counter(one.verdict for one in ended)
    return {one: counts[one] / trials for one in get_args(Verdict)}, sum(one.processes for one in ended) / trials


Medians = Sequence[Sequence[float]]
"""Medians by case and process."""


def side(name: str, cases: Medians, session: str = "") -> ComparedSide:
    """Return a run whose processes have these medians, by case."""
    found = [
        Figure(name, f"case {i}", "op", "null", "null", 1, process, "ok", "", "2030", "latency", "warm", float(median))
        for i, medians in enumerate(cases)
        for process, median in enumerate(medians)
    ]
    return ComparedSide(name, Run(name, "2030", "plan", len(found), session=session), found)


def verdicts(a: Medians, b: Medians, session: str = "", **how: float) -> list[Verdict]:
    """Return opmark's verdict of each case."""
    found = compare(side("a", a, session), side("b", b, session), {}, **how)  # type: ignore[arg-type]
    return [pair.verdict for pair in sorted(found.pairs, key=lambda pair: int(pair.case.partition(" ")[2]))]


def compare_live(session: Session, draw: np.random.Generator, stages: tuple[int, ...] = STAGES) -> SessionResult:
    """Compare in turns and in stages until a verdict, as `opmark ab` does, with the drift of the longest session."""
    is_b = _B[: 2 * stages[-1]]
    medians = session.medians(draw, is_b)
    a, b = medians[~is_b], medians[is_b]
    for pairs in stages:
        (verdict,) = verdicts([a[:pairs]], [b[:pairs]], "turns")
        if verdict != "undecided":
            break
    return SessionResult(verdict, pairs)


def compare_many(session: Session, draw: np.random.Generator, cases: int = 100) -> SessionResult:
    """Compare many cases at once, as `opmark ab` does; the verdict is that of any case that differs."""
    medians = [session.medians(draw, _B) for _ in range(cases)]
    done = np.full(cases, STAGES[0])
    found: list[Verdict] = ["undecided"] * cases
    for pairs in STAGES:
        done = np.where(np.array(found) == "undecided", pairs, done)
        sides = ([values[is_b][:n] for values, n in zip(medians, done, strict=True)] for is_b in (~_B, _B))
        found = verdicts(*sides, session="turns")
        if "undecided" not in found:
            break
    called = [one for one in found if one in ("slower", "faster")]
    return SessionResult(called[0] if called else "same", int(done.max()))


def compare_stored(session: Session, draw: np.random.Generator, processes: int, **how: float) -> SessionResult:
    """Compare two runs, all of A and then all of B, as `opmark compare` does."""
    is_b = np.arange(2 * processes) >= processes
    medians = session.medians(draw, is_b)
    (verdict,) = verdicts([medians[~is_b]], [medians[is_b]], **how)
    return SessionResult(verdict, processes)


def compare_single(
    session: Session, draw: np.random.Generator, cases: int = 20, loud: int = 0, past: int = 4
) -> tuple[list[Verdict], list[Verdict]]:
    """Compare the last two of several runs of one process each, of identical code; return the verdicts of the `loud`
    cases, whose processes differ by 4 %, and of the others."""
    store, environment = MemoryStore(), Environment.of({"cpu": "simulated", "backend": "null", "threads": 1})
    store.add_environment(environment)
    ops = [Case.of("op", {"shape": [i]}, "forward") for i in range(cases)]
    settings = Settings(1, "quick", EFFORTS["quick"])
    noisy = session._replace(spread=0.04)
    for night in range(past):
        store.begin(Run(f"run {night}", f"2030-01-{night + 1:02}", "plan", cases, revision="one"))
        for i, case in enumerate(ops):
            (median,) = (noisy if i < loud else session).medians(draw, np.array([False])).tolist()
            found = (Measurement("latency", "warm", "virtual", [median], 1, 0.0, 1, 0.0, "count"),)
            store.append(
                f"run {night}",
                Record(Task(case, "null", "null", settings), "ok", "", found, environment=environment.id),
            )
    b, a = (side_of(store, run) for run in store.runs()[:2])
    pairs = {pair.case: pair.verdict for pair in compare(a, b, {}).pairs}
    every = [pairs[case.id] for case in ops]
    return every[:loud], every[loud:]


class Machine(NamedTuple):
    """Noise that outlives a session: runs follow each other, in so many processes each."""

    spread: float = 0.005
    """Standard deviation between processes."""
    sessions: float = 0.0
    """Standard deviation between sessions."""
    apart: float = 0.0
    """Share by which the slower of two states of the machine is slower."""
    lasting: float = 10.0
    """Processes that a state lasts, on average."""

    def runs(self, draw: np.random.Generator, count: int, processes: int) -> Values:
        """Return the medians by run and process."""
        moves = draw.random(count * processes) < 1 / self.lasting
        state = (np.cumsum(moves) + draw.integers(2)) % 2
        noise = draw.normal(0, self.spread, (count, processes)) + draw.normal(0, self.sessions, (count, 1))
        return np.asarray(_TRUTH * np.exp(noise + np.log1p(self.apart) * state.reshape(count, processes)))


def compare_sessions(
    machine: Machine, draw: np.random.Generator, past: int, processes: int = 5, effect: float = 0.0, **how: float
) -> Verdict:
    """Return the verdict on the last two runs of a store that has so many older ones, as `opmark compare` gives it."""
    store, environment = MemoryStore(), Environment.of({"cpu": "simulated", "backend": "null", "threads": 1})
    store.add_environment(environment)
    case = Case.of("op", {"shape": [1]}, "forward")
    for night, medians in enumerate(machine.runs(draw, past + 2, processes)):
        slower = 1 + effect if night == past + 1 else 1.0
        store.begin(Run(f"run {night}", f"2030-01-{night + 1:02}", "plan", processes, revision="one"))
        records = []
        for process, median in enumerate((slower * medians).tolist()):
            settings = Settings(1, "quick", EFFORTS["quick"], process=process)
            found = (Measurement("latency", "warm", "virtual", [median], 1, 0.0, 1, 0.0, "count"),)
            records.append(Record(Task(case, "null", "null", settings), "ok", "", found, environment=environment.id))
        store.extend(f"run {night}", records)
    b, a = (side_of(store, run) for run in store.runs()[:2])
    (pair,) = compare(a, b, {}, **how).pairs  # type: ignore[arg-type]
    return pair.verdict


def compare_pooled(
    session: Session, draw: np.random.Generator, processes: int = 10, iterations: int = 50
) -> SessionResult:
    """Pool all iterations of a side in a rank-sum test, as many tools do; in turns, which favours the rule."""
    is_b = _B[: 2 * processes]
    medians = session.medians(draw, is_b)
    times = medians[:, None] * np.exp(draw.normal(0, session.within, (2 * processes, iterations)))
    a, b = times[~is_b].ravel(), times[is_b].ravel()
    different = rank_sum_p(a.tolist(), b.tolist()) < ALPHA
    return SessionResult(
        ("slower" if np.median(b) > np.median(a) else "faster") if different else "undecided", processes
    )


def compare_by_threshold(
    session: Session, draw: np.random.Generator, processes: int = 10, by: float = 0.07
) -> SessionResult:
    """Compare the medians with a fixed threshold; in turns, which favours the rule."""
    is_b = _B[: 2 * processes]
    medians = session.medians(draw, is_b)
    ratio = np.median(medians[is_b]) / np.median(medians[~is_b])
    return SessionResult("slower" if ratio > 1 + by else "faster" if ratio < 1 - by else "undecided", processes)


class Nights(NamedTuple):
    """A series of medians, one per night."""

    length: int = 100
    noise: float = 0.01
    carried: float = 0.0
    """Share of a night's deviation that remains in the next one, as in AR(1)."""
    outliers: float = 0.0
    """Share of nights that were slower by 5 to 20 %, for reasons of their own."""
    apart: float = 0.0
    """Share by which the slower of two states is slower."""
    lasting: float = 5.0
    """Nights that a state lasts, on average."""
    walk: float = 0.0
    """Standard deviation of the step that a random walk makes each night."""
    drift: float = 0.0
    """Share by which the last night is slower than the first, along a straight line."""

    def series(self, draw: np.random.Generator, steps: dict[int, float] | None = None) -> Values:
        """Return a series; `steps` maps a night to the slowdown from there on."""
        fresh = draw.normal(0, self.noise, self.length)
        noise = np.empty(self.length)
        noise[0] = fresh[0]
        for night in range(1, self.length):
            noise[night] = self.carried * noise[night - 1] + np.sqrt(1 - self.carried**2) * fresh[night]
        if self.apart:
            moves = np.cumsum(draw.random(self.length) < 1 / self.lasting) + draw.integers(2)
            noise += np.log1p(self.apart) * (moves % 2)
        if self.walk:
            noise += np.cumsum(draw.normal(0, self.walk, self.length))
        noise += np.log1p(self.drift) * np.linspace(0, 1, self.length)
        noise += (draw.random(self.length) < self.outliers) * np.log1p(draw.uniform(0.05, 0.2, self.length))
        for night, step in (steps or {}).items():
            noise[night:] += np.log1p(step)
        return np.asarray(_TRUTH * np.exp(noise))


UNCHANGED = {
    "independent nights": Nights(),
    "AR(1) 0.3": Nights(carried=0.3),
    "AR(1) 0.5": Nights(carried=0.5),
    "AR(1) 0.6": Nights(carried=0.6),
    "states 3 % apart for 3 nights": Nights(noise=0.005, apart=0.03, lasting=3),
    "states 3 % apart for 5 nights": Nights(noise=0.005, apart=0.03, lasting=5),
    "states 5 % apart for 5 nights": Nights(apart=0.05, lasting=5),
    "states 3 % apart for 10 nights": Nights(noise=0.005, apart=0.03, lasting=10),
    "states 5 % apart for 10 nights": Nights(apart=0.05, lasting=10),
    "random walk of 0.3 %": Nights(noise=0.0, walk=0.003),
    "random walk of 0.3 % and 0.5 % noise": Nights(noise=0.005, walk=0.003),
    "random walk of 0.3 % and 1 % noise": Nights(walk=0.003),
    "random walk of 0.6 %": Nights(noise=0.0, walk=0.006),
    "drift of 4 %": Nights(drift=0.04),
    "drift of 4 % and 0.5 % noise": Nights(noise=0.005, drift=0.04),
    "drift of 4 % and AR(1) 0.3": Nights(carried=0.3, drift=0.04),
}
"""Series in which the code has not changed."""


def first_alarm(values: Sequence[float], every: int = 1, since: int = 6) -> int | None:
    """Return the first night on which `opmark history` lists a change, looked at every so many nights; None if on
    none."""
    for night in range(since, len(values) + 1, every):
        # Before a level can have lasted, only a large step is listed.
        early = night <= change_point.LASTING and max(values[:night]) < (1 + change_point.LARGE) * min(values[:night])
        if not early and any(change.settled for change in change_point.change_points(values[:night])):
            return night
    return None
