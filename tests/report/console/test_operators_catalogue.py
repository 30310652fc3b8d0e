"""The catalogue as a page."""

from __future__ import annotations

import dataclasses
import re

from opmark.plugin.registry import catalogue, operator
from opmark.report.console.operators import catalogue_page

EXP = dataclasses.replace(operator("exp"), aliases=("Exp", "aten::exp"))


def rows_of(page: str) -> dict[str, list[str]]:
    """The cells of every operator by its name."""
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in page.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line] for line in lines]
    return {first.strip("`"): rest for first, *rest in cells}


def test_an_operator_is_a_row_with_what_it_computes_its_phases_and_its_other_names() -> None:
    assert rows_of(catalogue_page([EXP])) == {"exp": [EXP.summary, "forward, backward", "Exp, aten::exp"]}


def test_without_a_gradient_there_is_no_backward_phase() -> None:
    op = dataclasses.replace(EXP, gradients=(), aliases=())
    assert rows_of(catalogue_page([op]))["exp"][1:] == ["forward", ""]


def test_views_and_what_works_in_place_are_marked() -> None:
    view = dataclasses.replace(EXP, name="a", view=True)
    in_place = dataclasses.replace(EXP, name="b", gradients=(), mutates=("x",))
    found = rows_of(catalogue_page([view, in_place]))
    assert (found["a"][1], found["b"][1]) == ("forward, backward, view", "forward, in place")


def test_a_bar_in_a_summary_does_not_end_its_cell() -> None:
    op = dataclasses.replace(EXP, summary="sum of |x|")
    page = catalogue_page([op])
    assert r"sum of \|x\|" in page
    assert len(rows_of(page)["exp"]) == 3


def test_categories_and_their_operators_are_in_alphabetical_order() -> None:
    ops = [dataclasses.replace(EXP, name=name, category=category) for category, name in ("zb", "ac", "za", "ab")]
    lines = [line for line in catalogue_page(ops).splitlines() if line.startswith(("## ", "| `"))]
    assert [line[:5] for line in lines] == ["## a", "| `b`", "| `c`", "## z", "| `a`", "| `b`"]


def test_the_head_counts_them_and_says_who_wrote_it() -> None:
    page = catalogue_page([EXP, dataclasses.replace(EXP, name="other")])
    assert page.startswith("# Operators\n\n2 operators.")
    assert "opmark list ops --markdown" in page
    assert page.endswith("|\n")


def test_the_whole_catalogue_is_on_it_each_once() -> None:
    page = catalogue_page(catalogue().values())
    found = rows_of(page)
    assert set(found) == set(catalogue())
    assert sum(line.startswith("| `") for line in page.splitlines()) == len(catalogue())
    for name, op in catalogue().items():
        assert len(found[name]) == 3, name
        assert found[name][2] == ", ".join(op.aliases)
