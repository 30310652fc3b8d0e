"""opmark list"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opmark.plugin.registry import catalogue
from opmark.report.console.operators import catalogue_page
from opmark.schema import Availability

Command = Callable[..., Any]

ISSUED = {
    "add", "exp", "gelu", "cast", "matmul", "batched_matmul", "softmax", "layer_norm", "rms_norm", "reduce_sum", "topk",
    "embedding", "conv2d", "scaled_dot_product_attention",
}  # fmt: skip


def test_every_operator_is_listed_with_its_phases(main: Command) -> None:
    rows = {row["operator"]: row for row in main("list", "ops", "--json").objects}
    assert rows.keys() == catalogue().keys()
    assert rows.keys() >= ISSUED
    assert rows["matmul"]["phases"] == ["forward", "backward"]
    assert rows["fault"]["phases"] == ["forward"]
    assert rows["matmul"]["summary"] == catalogue()["matmul"].summary


def test_the_table_of_operators_has_a_row_each(main: Command) -> None:
    lines = main("list", "ops").out.splitlines()
    assert lines[0].split() == ["operator", "category", "phases", "summary"]
    assert {line.split()[0] for line in lines[1:]} == set(catalogue())


def test_suites_are_listed_with_the_number_of_their_cases(main: Command) -> None:
    rows = {row["suite"]: row for row in main("list", "suites", "--json").objects}
    assert rows["faults"]["cases"] == 8
    assert rows["quick"]["cases"] > 20
    assert all(row["description"] for row in rows.values())


def test_a_backend_is_listed_as_installed_by_what_metadata_tells(main: Command, monkeypatch: Any) -> None:
    facts = {"torch": "2.7.1", "environment": "mine"}
    answers = [
        Availability("a", "one", None, facts, probed=False),
        Availability("b", "two", "no GPU [at all]", probed=False),
    ]
    monkeypatch.setattr("opmark.runner.survey.survey", lambda: answers)
    monkeypatch.setattr("opmark.runner.probe.probe", None)
    assert main("list", "backends", "--json").objects == [
        {"backend": "a", "here": True, "probed": False, "reason": "", "summary": "one", "facts": facts},
        {"backend": "b", "here": False, "probed": False, "reason": "no GPU [at all]", "summary": "two", "facts": {}},
    ]
    done = main("list", "backends")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines == [
        "backend here found reason summary",
        "a installed torch 2.7.1, environment mine one",
        "b no no GPU [at all] two",
    ]
    assert done.err == "`installed` is what metadata tells; --probe starts each backend to see whether it runs\n"


def test_a_backend_that_was_started_is_listed_as_running(main: Command, monkeypatch: Any) -> None:
    answers = [Availability("a", "one", None, {"torch": "2.7.1"}), Availability("b", "two", "no GPU [at all]")]
    monkeypatch.setattr("opmark.runner.probe.probe", lambda: answers)
    monkeypatch.setattr("opmark.runner.survey.survey", None)
    first, second = main("list", "backends", "--probe", "--json").objects
    assert first == {
        "backend": "a", "here": True, "probed": True, "reason": "", "summary": "one", "facts": {"torch": "2.7.1"}
    }  # fmt: skip
    assert (second["here"], second["probed"], second["reason"]) == (False, True, "no GPU [at all]")
    done = main("list", "backends", "--probe")
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert lines == ["backend here reason summary", "a runs one", "b no no GPU [at all] two"]
    assert done.err == ""


def test_only_backends_can_be_started(main: Command) -> None:
    done = main("list", "suites", "--probe")
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == "suites cannot be started"
    assert "`opmark list backends --probe`" in done.line("hint:")


def test_of_a_category_only_its_operators_are_listed(main: Command) -> None:
    category = catalogue()["softmax"].category
    rows = main("list", "ops", "--category", category, "--json").objects
    assert {row["operator"] for row in rows} == {name for name, op in catalogue().items() if op.category == category}
    lines = main("list", "ops", "--category", category).out.splitlines()
    assert {line.split()[0] for line in lines[1:]} == {row["operator"] for row in rows}


def test_a_category_that_does_not_exist_is_named_with_the_nearest(main: Command) -> None:
    done = main("list", "ops", "--category", "activaton")
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == "no category named `activaton`"
    assert "`activation`" in done.line("hint:")


def test_only_operators_have_a_category(main: Command) -> None:
    done = main("list", "suites", "--category", "activation")
    assert (done.code, done.out) == (2, "")
    assert done.line("error:") == "suites have no category"


def test_the_catalogue_is_a_page(main: Command) -> None:
    done = main("list", "ops", "--markdown")
    assert (done.code, done.err) == (0, "")
    assert done.out == catalogue_page(catalogue().values())


def test_a_category_is_a_page_of_its_own(main: Command) -> None:
    category = catalogue()["softmax"].category
    done = main("list", "ops", "--category", category, "--markdown")
    assert done.code == 0
    assert done.out == catalogue_page(op for op in catalogue().values() if op.category == category)
    assert main("list", "ops", "--category", "activaton", "--markdown").code == 2


def test_only_operators_are_a_page(main: Command) -> None:
    done = main("list", "suites", "--markdown")
    assert (done.code, done.out) == (2, "")


@pytest.mark.parametrize("kind", ["ops", "chips", "backends", "suites", "quantities", "formats"])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_table_fits_the_terminal_and_breaks_no_word(
    main: Command, monkeypatch: pytest.MonkeyPatch, kind: str, width: int
) -> None:
    facts = {"torch": "2.13.0+cpu", "environment": "mine"}
    what, why = "PyTorch, eager, on " + "whatever " * 20, "no driver " * 20
    answers = [Availability("torch-accelerator", what, why, facts, probed=False)]
    monkeypatch.setattr("opmark.runner.survey.survey", lambda: answers)
    whole = {word for line in main("list", kind).out.splitlines() for word in line.split()}
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    *lines, last = main("list", kind).out.splitlines()
    lines += [] if last.startswith("no room for ") else [last]
    assert max(map(len, lines)) <= width
    assert {word for line in lines for word in line.split()} <= whole
    starts = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert len(starts) == 1 + len(main("list", kind, "--json").objects), "each row begins at the edge, and nothing else"


def test_columns_for_which_there_is_no_room_are_named(main: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    head, *_, last = main("list", "chips").out.splitlines()
    assert head.split("  ")[0] == "chip"
    assert "vendor" not in head
    assert last == "no room for vendor, source: --json shows everything"


def test_a_name_that_is_longer_than_its_column_has_a_line_of_its_own(
    main: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    lines = main("list", "ops").out.splitlines()
    name = max(catalogue(), key=len)
    assert lines[lines.index(name) + 1].split()[0] == catalogue()[name].category


def test_models_are_listed_as_bytemlperf_does_without_a_framework(opmark: Command) -> None:
    script = """
        import sys
        from opmark.cli.main import main
        code = main()
        assert not {"torch", "transformers", "onnx"} & sys.modules.keys()
        sys.exit(code)
    """
    done = opmark("list", "models", "--json", script=script)
    rows = {row["model"]: row for row in done.objects}
    assert list(rows["bert-base"])[:7] == ["model", "domain", "purpose", "frameworks", "data set", "precision", "parameters"]  # fmt: skip # noqa: E501
    assert (rows["bert-base"]["parameters"], rows["bert-base"]["aliases"]) == (108_893_186, ["bert"])
    assert rows["llama2-7b"]["precision"] == "fp16"
    lines = opmark("list", "models").out.splitlines()
    assert len(lines) == 1 + len(rows)
    assert "109 M" in next(line for line in lines if line.startswith("bert-base "))
