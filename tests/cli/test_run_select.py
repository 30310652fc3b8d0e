"""opmark run with --op, --category, --tag, --size: a part of a workload, or of the whole catalogue."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opmark.plugin.registry import COMMUNICATION, DRILL, catalogue

Command = Callable[..., Any]

PLAN = ("--dry-run", "--json", "--backend", "null")
WORKLOAD = """
schema: 1
name: mine
cases:
  - {op: exp, sizes: [small, large], tags: [llm]}
  - {op: softmax, sizes: [small], tags: [llm, decode], phases: [forward, backward]}
  - {op: matmul, params: {M: 4, N: 4, K: [4, 8]}, tags: [decode]}
  - {op: conv2d, sizes: [typical]}
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.yaml"
    path.write_text(WORKLOAD)
    return str(path)


def planned(done: Any) -> list[str]:
    """The operators of a plan, one for each of its cases."""
    assert (done.code, done.err) == (0, "")
    cases: dict[str, str] = {row["case"]: row["op"] for row in done.objects}
    return list(cases.values())


@pytest.mark.parametrize(
    ("asked", "ops"),
    [
        ([], ["exp", "exp", "softmax", "softmax", "matmul", "matmul", "conv2d"]),
        (["--op", "exp"], ["exp", "exp"]),
        (["--op", "exp,conv*"], ["exp", "exp", "conv2d"]),
        (["--op", "exp", "--op", "mm"], ["exp", "exp", "matmul", "matmul"]),
        (["--tag", "decode"], ["softmax", "softmax", "matmul", "matmul"]),
        (["--tag", "decode", "--tag", "llm", "--op", "*m*"], ["softmax", "softmax", "matmul", "matmul"]),
        (["--size", "small"], ["exp", "softmax", "softmax"]),
        (["--size", "small,typical"], ["exp", "softmax", "softmax", "conv2d"]),
        (["--size", "small", "--tag", "decode", "--phase", "backward"], ["softmax"]),
        (["--category", catalogue()["matmul"].category], ["matmul", "matmul"]),
    ],
)
def test_of_a_workload_only_what_is_asked_for_is_run(
    main: Command, mine: str, asked: list[str], ops: list[str]
) -> None:
    if "--category" in asked:
        asked = ["--category", catalogue()["matmul"].category]
    assert planned(main("run", "-w", mine, *asked, *PLAN)) == ops


def test_of_a_suite_too(main: Command) -> None:
    whole = planned(main("run", "--suite", "quick", *PLAN))
    part = planned(main("run", "--suite", "quick", "--op", "*matmul", *PLAN))
    assert set(part) == {"matmul", "batched_matmul"}
    assert part == [op for op in whole if op in part]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--op", "nothing*"], "--op nothing*"),
        (["--tag", "vision"], "--tag vision"),
        (["--size", "tiny"], "--size tiny"),
        (["--category", "no-such-thing"], "--category no-such-thing"),
        (["--op", "conv2d", "--tag", "llm"], "--op conv2d, --tag llm"),
        (["--op", "matmul", "--size", "small"], "--op matmul, --size small"),
    ],
)
def test_where_nothing_is_left_of_a_workload_nothing_runs_and_it_says_so(
    main: Command, mine: str, db: Path, asked: list[str], said: str
) -> None:
    done = main("run", "-w", mine, *asked, "--backend", "null")
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == f"{mine} has no case for {said}"
    assert not db.exists()


def test_nothing_left_of_a_suite_names_the_suite(main: Command) -> None:
    done = main("run", "--suite", "quick", "--tag", "nowhere", "--backend", "null")
    assert done.code == 2
    assert done.line("error:") == "suite quick has no case for --tag nowhere"


# Of the whole catalogue


def test_a_category_alone_is_all_of_its_operators_in_their_typical_size(main: Command) -> None:
    category = catalogue()["softmax"].category
    done = main("run", "--category", category, *PLAN)
    assert planned(done) == [name for name, op in catalogue().items() if op.category == category]
    by_op = {row["op"]: row["params"] for row in done.objects}
    assert by_op["softmax"]["shape"] == catalogue()["softmax"].preset("typical")["shape"]


def test_categories_are_alternatives_and_sizes_multiply(main: Command) -> None:
    categories = sorted({catalogue()[name].category for name in ("softmax", "matmul")})
    found = planned(main("run", "--category", ",".join(categories), "--size", "small,large", *PLAN))
    known = [name for name, op in catalogue().items() if op.category in categories]
    assert set(found) == set(known)
    assert len(found) == 2 * len(known)


def test_a_name_alone_is_the_operator_or_all_that_it_matches(main: Command) -> None:
    assert planned(main("run", "--op", "exp", *PLAN)) == ["exp"]
    assert planned(main("run", "--op", "mm", *PLAN)) == ["matmul"]
    assert planned(main("run", "--op", "conv?d", *PLAN)) == [
        name for name in catalogue() if name.startswith("conv") and name.endswith("d") and len(name) == 6
    ]


def test_a_name_and_a_category_go_together(main: Command) -> None:
    category = catalogue()["conv2d"].category
    found = planned(main("run", "--op", "*2d", "--category", category, *PLAN))
    assert "conv2d" in found
    assert found == [name for name in catalogue() if name in found]
    assert {catalogue()[name].category for name in found} == {category}


def test_a_pattern_for_everything_leaves_out_what_fails_on_purpose_and_what_takes_several_processes(
    main: Command,
) -> None:
    found = planned(main("run", "--op", "*", "--size", "small", *PLAN))
    assert set(found) == {name for name, op in catalogue().items() if op.category not in (DRILL, COMMUNICATION)}


def test_communication_is_had_by_its_category_or_by_a_pattern_of_names(main: Command) -> None:
    options = ("--size", "small", "--backend", "torch-cpu", "--dry-run", "--json")
    every = planned(main("run", "--category", "communication", *options))
    assert set(every) == {name for name, op in catalogue().items() if op.category == COMMUNICATION}
    assert {"all_reduce", "all_gather"} <= set(planned(main("run", "--op", "all_*", *options)))


def test_a_category_that_does_not_exist_is_named_with_the_nearest(main: Command) -> None:
    done = main("run", "--category", "activaton", "--backend", "null")
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == "no category named `activaton`"
    assert "`activation`" in done.line("hint:")


def test_nothing_left_of_the_catalogue_is_said(main: Command) -> None:
    category = catalogue()["softmax"].category
    done = main("run", "--op", "matmul", "--category", category, "--backend", "null")
    assert done.code == 2
    assert done.line("error:") == f"the catalogue has no case for --op matmul, --category {category}"


def test_an_unknown_name_alone_is_named_with_the_nearest(main: Command) -> None:
    done = main("run", "--op", "matmull", "--backend", "null")
    assert done.code == 2
    assert "`matmul`" in done.line("hint:")


@pytest.mark.parametrize("asked", [["--tag", "llm"], ["--size", "small"]])
def test_a_tag_or_a_size_alone_asks_of_what(main: Command, asked: list[str]) -> None:
    done = main("run", *asked, "--backend", "null")
    assert (done.code, done.out) == (2, "")
    assert "expected operators, a workload or a suite" in done.line("error:")


# Beside operators: nothing that is asked for is passed over


@pytest.mark.parametrize(
    "asked", [["--tag", "llm"], ["--op", "matmul"], ["--category", "no-such-thing"], ["--op", "exp", "--tag", "llm"]]
)
def test_a_selection_that_fits_no_operator_named_is_not_passed_over(main: Command, asked: list[str]) -> None:
    done = main("run", "exp", *asked, *PLAN)
    assert (done.code, done.out) == (2, "")


def test_a_tag_beside_a_category_is_not_passed_over(main: Command) -> None:
    done = main("run", "--category", catalogue()["softmax"].category, "--tag", "llm", *PLAN)
    assert (done.code, done.out) == (2, "")


def test_of_operators_that_are_named_only_those_of_a_category_are_run(main: Command) -> None:
    category = catalogue()["softmax"].category
    assert planned(main("run", "softmax", "matmul", "--category", category, *PLAN)) == ["softmax"]


def test_what_is_selected_is_measured(main: Command, mine: str) -> None:
    done = main("run", "-w", mine, "--tag", "llm", "--size", "small", "--backend", "null", "--effort", "quick",
                "--phase", "forward", "--json")  # fmt: skip
    assert done.code == 0
    assert [(row["op"], row["status"]) for row in done.objects] == [("exp", "ok"), ("softmax", "ok")]
