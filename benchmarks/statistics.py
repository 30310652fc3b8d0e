"""Error rates of verdicts and change points in simulations with known effects, compared with other tools.

    python -m benchmarks.statistics

prints the rows of the targets, as `python -m benchmarks statistics` does, and three tables.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.asv_steps import THRESHOLDS, Asv, NoAsv
from benchmarks.common import Row, Shell, markdown, table
from benchmarks.simulated import (
    DRIFTS,
    UNCHANGED,
    Machine,
    Nights,
    Rule,
    Session,
    Values,
    compare_by_threshold,
    compare_live,
    compare_many,
    compare_pooled,
    compare_sessions,
    compare_single,
    compare_stored,
    first_alarm,
    shares,
)
from opmark.stats import change_point, median_inflation, median_interval
from opmark.stats.change_point import change_points, early_warning

SPREADS = (0.003, 0.005, 0.01)
DRIFTING = tuple(drift for drift in DRIFTS if drift != "none")
TRIALS = 1000
FEWER = 400
"""Trials of rules that sort a thousand iterations each time."""
SESSIONS = 100
"""Simulated sessions of many cases each."""
SERIES = 1000
WATCHED = 200
"""Series that are checked for an early warning every night."""
NIGHT = 9
"""The first night of these checks."""
NEAR = 2
"""Nights by which the location of a step may be wrong."""

KINDS = {
    "independent nights": Nights(),
    "AR(1) 0.3": Nights(carried=0.3),
    "2 % outlier nights": Nights(outliers=0.02),
    "both": Nights(carried=0.3, outliers=0.02),
}
STEP = 0.03
PLACES = {"in the middle": 50, "10 nights before the end": 90, "5 nights before the end": 95}


class Trial(NamedTuple):
    """A rule for two sides, with the number of trials and the drifts in which it is tried."""

    rule: Rule
    trials: int = TRIALS
    drifts: Sequence[str] = DRIFTING


class RuleShares(NamedTuple):
    """Shares of verdicts of a rule."""

    false: tuple[float, ...]
    """Share of verdicts on identical code under the worst drift, for each spread."""
    two: float
    """Share of +2 % that is found, at 0.5 % spread."""
    five: float
    """Share of +5 % that is found, at 1 % spread."""
    same: float
    """Share of +2 % that is called the same, at 0.5 % spread."""
    processes: float
    """Mean number of processes per side, for identical code at 0.5 % spread."""


RULES: dict[str, Trial] = {
    "`ab`: in turns, 5 to 20 processes a side": Trial(compare_live),
    "in turns, 10 processes a side": Trial(partial(compare_live, stages=(10,))),
    **{
        f"`compare --drift 2%`: one after the other, {k} a side": Trial(
            partial(compare_stored, processes=k, drift=0.02)
        )
        for k in (4, 5, 10, 20)
    },
    "`compare`, 10 a side, nothing drifts": Trial(partial(compare_stored, processes=10, drift=0.0), drifts=("none",)),
    "Mann-Whitney over pooled iterations, p < 0.01": Trial(compare_pooled, FEWER),
    "medians differ by more than 7 %": Trial(compare_by_threshold),
}


def judge_rule(trial: Trial) -> RuleShares:
    """Try a rule: false verdicts under drift, and real differences without drift, which might cancel them."""

    def wrong(spread: float, drift: str) -> float:
        found, _ = shares(trial.rule, Session(spread, drift), trial.trials)
        return found["faster"] + found["slower"]

    false = tuple(max(wrong(spread, drift) for drift in trial.drifts) for spread in SPREADS)
    two, _ = shares(trial.rule, Session(0.005, effect=0.02), trial.trials)
    five, _ = shares(trial.rule, Session(0.01, effect=0.05), trial.trials)
    _, processes = shares(trial.rule, Session(0.005, trial.drifts[0]), trial.trials)
    return RuleShares(false, two["slower"], five["slower"], two["same"], processes)


class Alarms(NamedTuple):
    """A detector, which returns the nights from which on a series was slower."""

    name: str
    find: Callable[[Sequence[Values]], list[list[int]]]


def _ours(series: Sequence[Values]) -> list[list[int]]:
    return [[change.at for change in change_points(values.tolist()) if change.settled] for values in series]


def _ours_any(series: Sequence[Values]) -> list[list[int]]:
    """Return the changes that are settled and those that are shown with a `?`."""
    return [[change.at for change in change_points(values.tolist())] for values in series]


def _day_over_day(series: Sequence[Values]) -> list[list[int]]:
    return [(np.flatnonzero(values[1:] > 1.07 * values[:-1]) + 1).tolist() for values in series]


def _asv(asv: Asv, which: int, series: Sequence[Values]) -> list[list[int]]:
    return [found[which] for found in asv.regressions([values.tolist() for values in series])]


def detectors(folder: Path) -> tuple[list[Alarms], str]:
    """Return the detectors, and a line about asv."""
    plain = [Alarms("opmark", _ours), Alarms("more than 7 % over the night before", _day_over_day)]
    try:
        asv = Asv(folder)
    except NoAsv as error:
        return plain, f"asv could not be installed, so it is missing here: {error}"
    theirs = [Alarms(f"asv, steps above {100 * by:.0f} %", partial(_asv, asv, i)) for i, by in enumerate(THRESHOLDS)]
    return plain[:1] + theirs + plain[1:], f"asv {asv.version}, one value a night."


def alarm_share(detector: Alarms, nights: Nights, count: int = SERIES) -> float:
    """Return the share of unchanged series with an alarm."""
    draw = np.random.default_rng(8)
    return sum(map(bool, detector.find([nights.series(draw) for _ in range(count)]))) / count


def location_share(detector: Alarms, nights: Nights, at: int, step: float = STEP, count: int = SERIES) -> float:
    """Return the share of series in which the step is found within two nights."""
    return found_all(detector, nights, {at: step}, count)


def found_all(detector: Alarms, nights: Nights, steps: dict[int, float], count: int = SERIES) -> float:
    """Return the share of series in which every step is found within two nights."""
    draw = np.random.default_rng(9)
    alarms = detector.find([nights.series(draw, steps) for _ in range(count)])
    return sum(all(any(abs(night - at) <= NEAR for night in found) for at in steps) for found in alarms) / count


def warning_shares(nights: Nights) -> tuple[float, float]:
    """Return early warnings per night of unchanged series, and the share of +5 % that is seen after two nights."""
    draw = np.random.default_rng(10)
    quiet = [nights.series(draw).tolist() for _ in range(WATCHED)]
    looks = range(NIGHT, nights.length + 1)
    false = sum(early_warning(values[:night]) for values in quiet for night in looks)
    slow = [nights.series(draw, {nights.length - 2: 0.05}).tolist() for _ in range(SERIES)]
    return false / (WATCHED * len(looks)), sum(map(early_warning, slow)) / SERIES


class DetectorShares(NamedTuple):
    """Shares of alarms of a detector."""

    false: tuple[float, ...]
    """Share of unchanged series with an alarm, for each kind of nights."""
    located: tuple[float, ...]
    """Share of +3 % that is located at each place, in independent nights."""
    hard: tuple[float, ...]
    """The same in nights that are neither independent nor without outliers."""


def judge_detector(detector: Alarms) -> DetectorShares:
    false = (alarm_share(detector, nights) for nights in KINDS.values())
    steps = ((location_share(detector, nights, at) for at in PLACES.values()) for nights in (Nights(), KINDS["both"]))
    return DetectorShares(tuple(false), *map(tuple, steps))


def rows(shell: Shell) -> list[Row]:
    detectors_found, _ = _judge_detectors(shell.folder)
    return [*_verdict_rows(_judge_rules()), *_hard_rows(), *_history_rows(detectors_found)]


def _judge_rules() -> dict[str, RuleShares]:
    return {name: judge_rule(trial) for name, trial in RULES.items()}


def _judge_detectors(folder: Path) -> tuple[dict[str, DetectorShares], str]:
    known, line = detectors(folder)
    return {detector.name: judge_detector(detector) for detector in known}, line


def _verdict_rows(found: dict[str, RuleShares]) -> list[Row]:
    staged, ten, *stored_names, steady, ranks, fixed = found
    false = "false verdicts on identical code, 2 % drift"
    return [
        _row(f"{false}, {staged}, 0.3, 0.5 and 1 % spread", found[staged].false, most=0.01),
        _row(
            f"{false}, `compare --drift 2%` one after the other, 4, 5, 10 and 20 a side, worst spread",
            [max(found[name].false) for name in stored_names],
            most=0.01,
        ),
        _row(f"{false}, {ranks}", found[ranks].false),
        _row(f"+2 % found at 0.5 % spread, {ten}", [found[ten].two], least=0.95),
        _row("the same, `ab`", [found[staged].two], least=0.95),
        _row(f"the same, {steady}", [found[steady].two], least=0.95),
        _row(f"the same, {fixed}", [found[fixed].two]),
        _row(f"+5 % found at 1 % spread, {ten}, and `ab`", [found[ten].five, found[staged].five], least=1.0),
        _row("+2 % called the same, `ab`", [found[staged].same], most=0.01),
    ]


def _wrong(rule: Rule, session: Session, trials: int = TRIALS) -> float:
    found, _ = shares(rule, session, trials)
    return found["faster"] + found["slower"]


def _hard_rows() -> list[Row]:
    """Try situations in which rules may fail that pass with normal noise and single cases."""
    false = "false verdicts on identical code"
    rules = (compare_live, *(partial(compare_stored, processes=k, drift=0.02) for k in (3, 4, 5, 10)))
    states = [max(_wrong(rule, Session(0.002, states=share)) for share in (0.2, 0.5)) for rule in rules]
    coarse = [
        _wrong(rule, Session(0.001, effect=0.006, tick=32e-9))
        for rule in (compare_live, partial(compare_stored, processes=5, drift=0.02))
    ]
    alike = [
        max(
            shares(partial(compare_stored, processes=k, drift=0.02), Session(0.003, drift, effect=0.05), FEWER)[0][
                "same"
            ]
            for drift in DRIFTS
        )
        for k in (4, 5, 10)
    ]
    return [
        _row(f"{false}, processes in two states 5 % apart, `ab`, `compare` 3, 4, 5 and 10 a side", states, most=0.02),
        _row(f"any {false}, 100 cases at once, `ab`, 1 and 2 % spread",
             [_wrong(compare_many, Session(spread), SESSIONS) for spread in (0.01, 0.02)], most=0.05),
        _row(f"{false}, single processes, noise learnt from 4 runs: loud ones among quiet ones; in two states",
             _single_process_errors(), most=0.02),
        _row("0.6 % called a difference with ticks of 32 ns at 1 to 2 µs, `ab`, `compare` 5 a side", coarse, most=0.01),
        _row("+5 % called the same, worst drift, `compare` 4, 5 and 10 a side", alike, most=0.01),
    ]  # fmt: skip


def _single_process_errors() -> list[float]:
    draw = np.random.default_rng(8)
    loud = [one for _ in range(SESSIONS) for one in compare_single(Session(0.003), draw, loud=6)[0]]
    states = [one for _ in range(SESSIONS) for one in compare_single(Session(0.003, states=0.2, slower=0.06), draw)[1]]
    return [sum(one in ("slower", "faster") for one in found) / len(found) for found in (loud, states)]


def _history_rows(found: dict[str, DetectorShares]) -> list[Row]:
    made = []
    for name, one in found.items():
        ours = name == "opmark"
        kinds, places = ", ".join(KINDS), ", ".join(PLACES)
        made += [
            _row(f"100 nights, 1 % noise, false alarms, {name}: {kinds}", one.false, most=0.05 if ours else None),
            _row(f"+3 % located within {NEAR} nights, {name}: {places}", one.located, least=0.85 if ours else None),
        ]
    return made


def _row(what: str, measured: Sequence[float], least: float | None = None, most: float | None = None) -> Row:
    text = ", ".join(map(_percent, measured))
    if least is not None:
        return Row(what, f"at least {100 * least:.0f} %", text, min(measured) >= least)
    if most is not None:
        return Row(what, f"at most {100 * most:.0f} %", text, max(measured) <= most)
    return Row(what, "", text, None)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    begun = time.perf_counter()
    verdicts = _judge_rules()
    with tempfile.TemporaryDirectory() as folder:
        series, line = _judge_detectors(Path(folder))
    print(markdown([*_verdict_rows(verdicts), *_hard_rows(), *_history_rows(series)]), end="\n\n")
    print(_verdict_table(verdicts), _history_table(series), line, _shapes_table(), sep="\n\n")
    print("", session_table(), coverage_table(), nightly_table(), lasting_table(), sep="\n\n")
    print(f"{time.perf_counter() - begun:.0f} s", file=sys.stderr)


def _verdict_table(found: dict[str, RuleShares]) -> str:
    head = ["rule", *(f"false, {100 * spread:g} % spread" for spread in SPREADS)]
    head += ["+2 % found (0.5 %)", "+5 % found (1 %)", "+2 % called the same", "processes a side"]
    body = []
    for name, one in found.items():
        values = [*one.false, one.two, one.five, one.same]
        body.append([name, *map(_percent, values), f"{one.processes:.1f}"])
    return table(head, body)


def _history_table(found: dict[str, DetectorShares]) -> str:
    head = ["detector", *(f"false: {kind}" for kind in KINDS), *(f"+3 % {place}" for place in PLACES)]
    head += [f"both, +3 % {place}" for place in PLACES]
    body = [[name, *map(_percent, [*one.false, *one.located, *one.hard])] for name, one in found.items()]
    return table(head, body)


def _shapes_table() -> str:
    """Return a table of other changes of a series, with opmark alone."""
    ours = Alarms("opmark", _ours_any)
    back = 1 / (1 + STEP) - 1
    shapes: dict[str, Callable[[Nights], float]] = {
        "-3 % 10 nights before the end": lambda nights: location_share(ours, nights, 90, -STEP),
        "+3 % and 30 nights later +3 % again: both": lambda nights: found_all(ours, nights, {40: STEP, 70: STEP}),
        "+3 % and back after 20 nights: both": lambda nights: found_all(ours, nights, {40: STEP, 60: back}),
        "+5 % 3 nights before the end": lambda nights: location_share(ours, nights, 97, 0.05),
        "20 nights: false alarms": lambda nights: alarm_share(ours, nights._replace(length=20)),
        "20 nights: +5 % in the middle": lambda nights: location_share(ours, nights._replace(length=20), 10, 0.05),
        "10 nights: false alarms": lambda nights: alarm_share(ours, nights._replace(length=10)),
        "10 nights: +5 % in the middle": lambda nights: location_share(ours, nights._replace(length=10), 5, 0.05),
    }
    body = [[name, *(_percent(share(nights)) for nights in KINDS.values())] for name, share in shapes.items()]
    early = [warning_shares(nights) for nights in KINDS.values()]
    body.append(["early warnings without a change, a night", *(f"{100 * false:.2f} %" for false, _ in early)])
    body.append(["+5 % of 2 nights: warned", *(_percent(share) for _, share in early)])
    return table(["series", *KINDS], body)


MACHINES = {
    "sessions spread by 0.2 %": Machine(sessions=0.002),
    "sessions spread by 1 %": Machine(sessions=0.01),
    "sessions spread by 2 %": Machine(sessions=0.02),
    "states 5 % apart for 5 processes": Machine(apart=0.05, lasting=5),
    "states 5 % apart for 10 processes": Machine(apart=0.05, lasting=10),
    "states 5 % apart for 30 processes": Machine(apart=0.05, lasting=30),
    "states 10 % apart for 10 processes": Machine(apart=0.1, lasting=10),
}
PAST = (0, 4, 18)
"""Numbers of older runs in the store."""


def session_table(trials: int = FEWER) -> str:
    """Return a table of two sessions of five processes each, on machines that are not the same in both."""

    def share(machine: Machine, past: int, effect: float, **how: float) -> str:
        draw = np.random.default_rng(8)
        found = [compare_sessions(machine, draw, past, effect=effect, **how) for _ in range(trials)]
        return _percent(sum(one == "slower" or (one == "faster" and not effect) for one in found) / trials)

    head = ["machine", "false, `--drift 2%`", *(f"false, {past} older runs" for past in PAST)]
    head += [f"+5 % found, {past} older runs" for past in PAST]
    body = []
    for name, machine in MACHINES.items():
        cells = [share(machine, 0, 0.0, drift=0.02), *(share(machine, past, 0.0) for past in PAST)]
        body.append([name, *cells, *(share(machine, past, 0.05) for past in PAST)])
    return table(head, body)


def coverage_table(repeats: int = SERIES) -> str:
    """Return how often the 95 % interval of one process holds the median, without and with the correction for samples
    that are correlated."""
    counts, carried = (20, 50, 100, 400), (0.0, 0.3, 0.6)
    body = []
    for count in counts:
        cells = []
        for share in carried:
            draw = np.random.default_rng(7)
            inside = [0, 0]
            for _ in range(repeats):
                samples = Nights(count, 0.02, share).series(draw).tolist()
                for i, inflation in enumerate((1.0, median_inflation(samples))):
                    low, high, _ = median_interval(samples, inflation=inflation)
                    inside[i] += low <= 1e-5 <= high
            cells.append(f"{_percent(inside[0] / repeats)} -> {_percent(inside[1] / repeats)}")
        body.append([str(count), *cells])
    return table(["samples", *(f"AR(1) {share:g}" for share in carried)], body)


def nightly_table(count: int = WATCHED) -> str:
    """Return the share of unchanged series that have an alarm in 100 nights of nightly looks, and of those with +3 %
    after 90 nights that have one within ten."""
    body = []
    for name, nights in UNCHANGED.items():
        draw = np.random.default_rng(11)
        found = sum(first_alarm(nights.series(draw).tolist()) is not None for _ in range(count))
        body.append([name, _percent(found / count)])
    for name, nights in (("independent nights", Nights()), ("AR(1) 0.3", Nights(carried=0.3))):
        draw = np.random.default_rng(5)
        series = [nights.series(draw, {90: STEP}).tolist() for _ in range(count)]
        found = sum(first_alarm(values, since=93) is not None for values in series)
        body.append([f"+3 % after 90 nights, {name}: listed within ten nights", _percent(found / count)])
    return table(["series", "with an alarm"], body)


LASTINGS = (20, 30, 40, 50, 60, 70)


def lasting_table(count: int = 100) -> str:
    """Return the same shares for other numbers of nights that a level has to last, looked at every third night."""
    kinds = {name: UNCHANGED[name] for name in UNCHANGED if "states" in name or "walk" in name}
    head = ["series", *(f"{nights} nights" for nights in LASTINGS)]
    body = []
    for name, nights in kinds.items():
        draw = np.random.default_rng(13)
        series = [nights.series(draw).tolist() for _ in range(count)]
        body.append([name, *(_percent(share) for share in _with_lasting(series, 6))])
    draw = np.random.default_rng(14)
    series = [Nights(carried=0.3).series(draw, {90: STEP}).tolist() for _ in range(count)]
    body.append(["+3 % after 90 nights, AR(1) 0.3: listed", *(_percent(share) for share in _with_lasting(series, 94))])
    return table(head, body)


def _with_lasting(series: Sequence[Sequence[float]], since: int) -> list[float]:
    usual, found = change_point.LASTING, []
    try:
        for change_point.LASTING in LASTINGS:
            found.append(sum(first_alarm(values, 3, since) is not None for values in series) / len(series))
    finally:
        change_point.LASTING = usual
    return found


if __name__ == "__main__":
    main()
