"""Whatever a workload comes as: recognised, every entry on its own, nothing dropped without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.catalogue.workload_file import _blank_comments
from opmark.errors import InvalidFile, UnknownName
from opmark.runner.probe import missing_callables
from opmark.runner.workload_source import file_requests, problem_lines, read_source
from opmark.schema import Entry, Imported, ImportProblem, Workload
from opmark.schema.workload import VERSION


class Shapes:
    """A foreign format for these tests: {"shapes": [[4], [8]], "op": "exp"}."""

    name = "shapes"
    summary = "lists of shapes"

    def recognises(self, path: Path, data: Any) -> bool:
        return isinstance(data, dict) and "shapes" in data

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        entries = [Entry(data["op"], {"shape": s}, source=f"{path.name}#{i}") for i, s in enumerate(data["shapes"])]
        return Imported(tuple(entries), notes=("shapes are shapes",), asked=data.get("asked", {}))


@pytest.fixture(autouse=True)
def shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.runner.workload_source.importers", lambda: {"shapes": Shapes()})


def written(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


OWN = {"schema": 1, "name": "own", "cases": [{"op": "exp", "params": {"shape": [[4], [8]]}}]}


def test_a_foreign_file_becomes_cases_with_their_sources(tmp_path: Path) -> None:
    taken = read_source(written(tmp_path / "f.json", {"op": "exp", "shapes": [[4], [8, 8]]}))
    assert taken.foreign == "shapes"
    assert [(case.params["shape"], case.sources) for case in taken.cases] == [
        ([4], ("f.json#0",)),
        ([8, 8], ("f.json#1",)),
    ]
    assert taken.workload.description == "shapes, imported from f.json"
    assert taken.notes == ("shapes are shapes",)


def test_a_file_of_our_own_stays_what_it_is(tmp_path: Path) -> None:
    taken = read_source(written(tmp_path / "own.json", OWN))
    assert (taken.foreign, taken.workload.name, len(taken.workload.cases)) == ("", "own", 1)


def test_what_says_schema_and_name_is_never_taken_for_foreign(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="unknown key `shapes`"):
        read_source(written(tmp_path / "own.json", {**OWN, "shapes": [[4]]}))


def test_a_broken_entry_is_named_and_the_others_are_taken(tmp_path: Path) -> None:
    taken = read_source(written(tmp_path / "f.json", {"op": "exp", "shapes": [[4], [-1], [8]]}))
    assert [case.params["shape"] for case in taken.cases] == [[4], [8]]
    (problem,) = taken.problems
    assert problem.where == f"{tmp_path / 'f.json'}: 1"
    assert "shape" in problem.message
    told, note = problem_lines(taken.problems, taken.notes)
    assert told.startswith(f"not imported: {tmp_path / 'f.json'}: 1: ")
    assert note == "shapes are shapes"


def test_strict_stops_and_says_what_would_be_left(tmp_path: Path) -> None:
    path = written(tmp_path / "f.json", {"op": "exp", "shapes": [[4], [-1], [8]]})
    with pytest.raises(InvalidFile, match=r"1 problem:\n.*f.json: 1: ") as caught:
        read_source(path, strict=True)
    assert "other 2 cases" in str(caught.value.hint)


def test_nothing_usable_is_an_error_with_the_first_reasons(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="7 problems") as caught:
        read_source(written(tmp_path / "f.json", {"op": "nosuch", "shapes": [[4]] * 7}))
    assert "no operator named `nosuch`" in caught.value.message
    assert "... and 2 more" in caught.value.message


def test_the_same_case_twice_is_one_with_both_sources(tmp_path: Path) -> None:
    taken = read_source(written(tmp_path / "f.json", {"op": "exp", "shapes": [[4], [8], [4]]}))
    assert len(taken.cases) == 3
    assert [case.sources for case in taken.distinct()] == [("f.json#0", "f.json#2"), ("f.json#1",)]


def test_phases_go_in_place_of_the_files_own(tmp_path: Path) -> None:
    path = written(tmp_path / "f.json", {"op": "exp", "shapes": [[4]]})
    assert [case.phase for case in read_source(path, phases=["forward", "backward"]).cases] == ["forward", "backward"]
    with pytest.raises(UnknownName, match="phase"):
        read_source(path, phases=["backwards"])


def test_a_folder_is_read_in_order_and_a_bad_file_is_a_problem(tmp_path: Path) -> None:
    written(tmp_path / "b.json", {"op": "exp", "shapes": [[8]]})
    (tmp_path / "sub").mkdir()
    written(tmp_path / "sub" / "c.json", OWN)
    written(tmp_path / "a.json", {"op": "abs", "shapes": [[4]]})
    (tmp_path / "d.json").write_text("{")
    written(tmp_path / "e.json", {"what": 1})
    (tmp_path / "notes.txt").write_text("not read")
    taken = read_source(tmp_path)
    assert [(case.op, case.params["shape"]) for case in taken.cases] == [
        ("abs", [4]), ("exp", [8]), ("exp", [4]), ("exp", [8]),
    ]  # fmt: skip
    assert [problem.where for problem in taken.problems] == [str(tmp_path / "d.json"), str(tmp_path / "e.json")]


def test_a_folder_agrees_on_what_all_its_files_ask_for(tmp_path: Path) -> None:
    asked = {"samples": 100, "warmup": 10}
    written(tmp_path / "a.json", {"op": "exp", "shapes": [[4]], "asked": asked})
    written(tmp_path / "b.json", {"op": "exp", "shapes": [[8]], "asked": {**asked, "warmup": 5}})
    assert read_source(tmp_path).asked == {"samples": 100}


def test_what_a_file_asks_for_is_said_in_options() -> None:
    (said,) = file_requests({"samples": 100, "warmup": 10})
    assert "--samples 100 --warmup 10" in said
    assert list(file_requests({})) == []


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="holds no workload"):
        read_source(tmp_path)


def test_sources_in_a_folder_say_which_file_and_hidden_ones_are_left_alone(tmp_path: Path) -> None:
    for name in ("a/f.json", "b/f.json", ".git/f.json"):
        (tmp_path / name).parent.mkdir()
        written(tmp_path / name, {"op": "exp", "shapes": [[4]]})
    taken = read_source(tmp_path)
    assert [case.sources for case in taken.cases] == [("a/f.json#0",), ("b/f.json#0",)]
    assert taken.problems == ()


def test_a_folder_has_a_name_however_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "f.json", {"op": "exp", "shapes": [[4]]})
    monkeypatch.chdir(tmp_path)
    assert read_source(".").workload.name == tmp_path.name


def test_what_nobody_recognises_is_said_with_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="of no format that is known here") as caught:
        read_source(written(tmp_path / "f.json", {"opr": "exp"}))
    assert "shapes" in str(caught.value.hint)


def test_a_format_may_be_insisted_on(tmp_path: Path) -> None:
    path = written(tmp_path / "f.json", {"schema": 1, "name": "x", "op": "exp", "shapes": [[4]]})
    assert read_source(path, format="shapes").foreign == "shapes"
    with pytest.raises(UnknownName, match="format of files"):
        read_source(path, format="shape")


@pytest.mark.parametrize("data", [None, [], [1], "x", 1, True, [[]]])
def test_what_is_no_mapping_is_of_no_format_however_one_insists(data: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="expected a file of shapes"):
        read_source(written(tmp_path / "f.json", data), format="shapes")


def test_a_text_that_is_no_path_is_an_error() -> None:
    with pytest.raises(InvalidFile, match="cannot be read"):
        read_source('{"op": "exp"}' * 100)


def test_who_is_strict_has_callables_looked_up() -> None:
    own = {"schema": 1, "name": "own", "cases": [{"op": "numpy.cumsumm", "args": ["4 float32"]}]}
    assert missing_callables({"numpy.cumsum", "exp"}) == {}
    assert "did you mean `cumsum`?" in missing_callables({"numpy.cumsumm"})["numpy.cumsumm"]
    with pytest.raises(InvalidFile, match="no function of numpy named `cumsumm`"):
        read_source(own, strict=True)


def test_objects_are_taken_as_they_are() -> None:
    workload = Workload(VERSION, "mine", [Entry("exp", {"shape": [4]})])
    assert read_source(workload).workload is workload
    assert read_source({"op": "exp", "shapes": [[4]]}).cases[0].sources == ("config#0",)
    assert read_source(OWN).workload.name == "own"


def test_a_problem_reads_as_a_line_and_a_hint() -> None:
    problem = ImportProblem("f: $.x", "expected a list, got 1", "as in [1]")
    assert str(problem) == "f: $.x: expected a list, got 1\n  hint: as in [1]"


# JSON as people write it in other systems' READMEs.

COMMENTED = """{
  // the shapes of today
  "shapes": [[4], [8],],  // a trailing comma
  "op": "exp", "asked": {"url": "http://a//b", "text": ",]",},
}
"""


def test_foreign_json_may_have_comments_and_trailing_commas(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(COMMENTED)
    found = read_source(path)
    assert [case.params["shape"] for case in found.cases] == [[4], [8]]
    assert found.asked == {"url": "http://a//b", "text": ",]"}
    assert found.notes[-1] == f"{path}: comments (//) and trailing commas were skipped; JSON has neither"
    path.write_text(json.dumps({"shapes": [[4]], "op": "exp"}))
    assert len(read_source(path).notes) == 1


def test_another_mistake_is_named_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(COMMENTED.replace('"op": "exp",', '"op": "exp"'))
    with pytest.raises(InvalidFile, match=r"x\.json:4:15"):
        read_source(path)


def test_a_workload_of_ours_is_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"schema": 1, "name": "x", "cases": [{"op": "exp", "sizes": ["small"]},]}')
    with pytest.raises(InvalidFile, match=r"x\.json:1:\d+"):
        read_source(path)


@given(st.recursive(st.text() | st.integers() | st.none(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_plain_json_is_left_as_it_is(data: Any) -> None:
    text = json.dumps(data)
    assert _blank_comments(text) == text
