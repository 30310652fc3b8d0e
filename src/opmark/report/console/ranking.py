"""Prints rankings: the fastest implementation of each case or group of cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from opmark import units
from opmark.analysis.rows import case_parameters
from opmark.plugin.registry import way_of
from opmark.report.console.side_by_side import WayColumn, heads
from opmark.report.console.table import plain_table
from opmark.schema import Case, ranking
from opmark.schema.case import shown_case
from opmark.schema.ranking import RankedCase, RankedImplementation, Ranking, Tally

Names = Mapping[tuple[str, str], str]
"""Short names by backend and implementation."""

_UNDECIDED = "?"
_TOGETHER = ("chip", "threads", "phase", "quantity", "cache")
"""What the cases of a table have in common."""


def ranking_text(found: Ranking, by: str) -> Group:
    """Return, for each chip, phase, number of threads, quantity and state of the caches, a table of the cases or groups
    and one of all together."""
    if not found.cases:
        return Group(Text("nothing in these runs was verified and measured undisturbed; `opmark show` says why"))
    parts: list[RenderableType] = []
    for whole in found.summary:
        places = [place for place in found.cases if _together(place, whole)]
        groups = [group for group in found.groups if _together(group, whole)]
        names, device = _names(places)
        on = f", backends NAME-{device}" if device else ""
        counts = f"{units.count_noun(whole.cases, 'case')}, {whole.contested} with more than one backend"
        where = f"{whole.chip}, {units.count_noun(whole.threads, 'thread')}, {whole.phase}{on}"
        title = f"{where}, by {whole.quantity} {whole.cache}: {counts}"
        parts += [Text(title, style="bold"), _by_case(places, names) if by == "case" else _by_group(groups, by, names)]
        parts += [Text(), _summary(whole, names), Text()]
    return Group(*parts, *map(Text, _legend(found, by)))


def _together(one: RankedCase | ranking.RankingGroup, whole: ranking.RankingGroup) -> bool:
    return all(getattr(one, name) == getattr(whole, name) for name in _TOGETHER)


def _names(places: Sequence[RankedCase]) -> tuple[Names, str]:
    """Return names without the device that all backends share, and this device."""
    ways = dict.fromkeys((one.backend, one.implementation) for place in places for one in place.order)
    columns = {way: WayColumn(way[0], way_of(*way), places[0].threads) for way in ways}
    short = heads(list(columns.values()))
    return {way: short.of[column] for way, column in columns.items()}, short.device


def _name(one: RankedImplementation | Tally, names: Names) -> str:
    return names[one.backend, one.implementation]


def _by_case(places: Sequence[RankedCase], names: Names) -> Table:
    table = plain_table("operator", "parameters", "best", "median", "the others")
    for place in places:
        first, *others = place.order
        case = Case.of(place.op, place.params, "forward")
        best = Text(_name(first, names) + (_UNDECIDED if others and not place.best.decided else ""))
        behind = ", ".join(f"{_name(one, names)} {_times(one.ratio)}{_sure(one)}" for one in others)
        size = " ".join(filter(None, (case_parameters(case), *(f"d{name}" for name in place.wrt))))
        table.add_row(Text(shown_case(case).op), Text(size), best, _value(place, first), Text(behind))
    return table


def _value(place: RankedCase, one: RankedImplementation) -> str:
    scale, name = units.small_unit(one.median, "J" if place.quantity == "energy" else "s")
    return f"{units.significant(one.median / scale)} {name}"


def _sure(one: RankedImplementation) -> str:
    return "" if one.behind else _UNDECIDED


def _times(ratio: float) -> str:
    return f"{units.significant(ratio)}x"


def _by_group(groups: Sequence[ranking.RankingGroup], by: str, names: Names) -> Table:
    table = plain_table(by, "cases", "undecided", "wins, and times the best over the cases that all of these have")
    for group in groups:
        found = ", ".join(
            f"{_name(tally, names)} {tally.wins}" + (f" ({_times(tally.ratio)})" if tally.ratio else "")
            for tally in group.backends
        )
        table.add_row(Text(_key(group)), str(group.cases), str(group.undecided), Text(found))
    return table


def _key(group: ranking.RankingGroup) -> str:
    if "params" in group.key:
        case = Case.of(group.key["op"], group.key["params"], "forward")
        return f"{shown_case(case).op} {case_parameters(case)}".strip()
    return str(next(iter(group.key.values()))) or "none"


def _summary(whole: ranking.RankingGroup, names: Names) -> Table:
    table = plain_table("backend", "wins", "in cases", "times the best", f"over the {whole.common} that all have")
    for tally in whole.backends:
        ratio = "" if tally.ratio is None else _times(tally.ratio)
        table.add_row(Text(_name(tally, names)), str(tally.wins), str(tally.cases), _times(tally.own_ratio), ratio)
    return table


def _legend(found: Ranking, by: str) -> Iterator[str]:
    runs = found.runs[0] if len(found.runs) == 1 else f"{len(found.runs)} runs, of each way the newest verified number"
    yield f"from {runs}; a win is a lead over every other by more than chance and noise"
    if len({(place.quantity, place.cache) for place in found.cases}) > 1:
        yield "each case by what all of its backends have: device_time before latency; --quantity chooses one for all"
    if found.without:
        asked = " ".join(filter(None, (found.quantity, found.cache)))
        yield f"{units.count_noun(found.without, 'case')} not ranked: no verified {asked} of any backend"
    undecided = sum(not place.best.decided for place in found.cases if len(place.order) > 1)
    if undecided and by == "case":
        yield f"{_UNDECIDED} not apart by more than chance and noise: either may be the faster one"
    if undecided:
        yield (
            f"{units.count_noun(undecided, 'case')} undecided; `opmark run ... --processes 5` on a quiet machine "
            "decides more, and `opmark ab OP --backend A,B` measures two in turns until it is decided"
        )
    left = sum(len(place.left_out) for place in found.cases)
    if left:
        why = "failed, not verified, preempted, not measured in this quantity"
        yield f"{units.count_noun(left, 'number')} not in the order ({why}); --json says why"
