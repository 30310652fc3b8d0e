"""Two stored things held against each other: `opmark compare`."""

from __future__ import annotations

from contextlib import ExitStack

from opmark.analysis.compare import Side, ids, side_of
from opmark.analysis.compare import compare as compare_sides
from opmark.api.finding import Finder
from opmark.errors import InvalidParameter
from opmark.interfaces import Store
from opmark.schema import Case
from opmark.schema.comparison import Compared
from opmark.schema.options import PathLike
from opmark.stats.verdict import DRIFT, MARGIN


def compare(
    a: str,
    b: str,
    *,
    db: PathLike | None = None,
    run: str | None = None,
    quantity: str = "",
    margin: float = MARGIN,
    drift: float = DRIFT,
    unlike: bool = False,
) -> Compared:
    """B as A has it: faster, slower, same or undecided, case by case.

    Each is a run (its id, the beginning of it, its label, `LABEL~1`), a store (`other.db`, `other.db::RUN`,
    `postgresql://...::RUN`), or a backend or an interpreter of one run: of `run`, or of the last one.
    """
    check_share(margin, "margin")
    check_share(drift, "drift")
    with ExitStack() as stack:
        found = Finder(stack, db).two(a, b, run)
        one = side_of(found[0].store, found[0].run, found[0].name, found[0].chosen)
        beside = one if found[0].store is found[1].store else None
        other = side_of(found[1].store, found[1].run, found[1].name, found[1].chosen, beside)
        cases = cases_of((found[0].store, one), (found[1].store, other))
        return compare_sides(one, other, cases, quantity=quantity, margin=margin, drift=drift, unlike=unlike)


def cases_of(*sides: tuple[Store, Side]) -> dict[str, Case]:
    """What the ids stand for, each looked up once."""
    known: dict[str, Case] = {}
    for store, side in sides:
        known |= store.cases(set(ids(side)) - known.keys())
    return known


def check_share(value: float, name: str) -> None:
    if not 0 <= value < 1:
        raise InvalidParameter(
            f"{name}: expected a share from 0 to below 1, got {value:g}", f"as in --{name} 0.03 or --{name} 3%"
        )
