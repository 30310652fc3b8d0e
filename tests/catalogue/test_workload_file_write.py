"""Writing and reading a workload returns the same; joining neighbours changes neither cases nor their order."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import compact, json_text, load, suite, yaml_text
from opmark.plugin.registry import operator, operators_like
from opmark.schema import Case, Entry, Workload
from opmark.schema.workload import VERSION

TEXTS = {"yaml": yaml_text, "json": json_text}


def cases(entries: list[Entry]) -> list[Case]:
    return expand(Workload(VERSION, "w", entries), operator, match=operators_like)


@pytest.mark.parametrize("ending", TEXTS)
@pytest.mark.parametrize("name", ["quick", "param", "recsys"])
def test_what_is_written_reads_the_same(name: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"w.{ending}"
    path.write_text(TEXTS[ending](suite(name)))
    assert load(path) == suite(name)


def test_each_entry_stands_on_a_line_of_its_own_without_defaults() -> None:
    text = yaml_text(
        Workload(VERSION, "two", [Entry("exp", {"shape": [4]}), Entry("torch.add", args=["4 float32", 1])])
    )
    assert text.splitlines() == [
        "schema: 1",
        'name: "two"',
        "cases:",
        '  - {"op":"exp","params":{"shape":[4]}}',
        '  - {"op":"torch.add","args":["4 float32",1]}',
    ]


def points(dtypes: list[str], shapes: list[list[int]]) -> list[Entry]:
    return [Entry("add", {"shape": shape, "dtype": dtype}, source="f#a") for dtype in dtypes for shape in shapes]


def test_neighbours_become_rows() -> None:
    (joined,) = compact(points(["float32", "float16"], [[4, 8], [16, 8]]))
    assert joined.params == {
        "shape.dtype": [[[4, 8], "float32"], [[16, 8], "float32"], [[4, 8], "float16"], [[16, 8], "float16"]]
    }


def test_what_does_not_change_stands_once() -> None:
    (joined,) = compact(points(["float32"], [[4, 8], [16, 8]]))
    assert joined.params == {"dtype": "float32", "shape": [[4, 8], [16, 8]]}


def test_how_a_foreign_file_writes_a_case_is_not_written() -> None:
    one, other = (Entry("exp", {"shape": [[n]]}, written_as=f'{{"arguments": {n}}}') for n in (4, 8))
    assert compact([one, other]) == [Entry("exp", {"shape": [[4], [8]]})]


def test_other_sources_phases_or_operators_stay_apart() -> None:
    entries = [
        Entry("add", {"shape": [4]}, source="f#a"),
        Entry("add", {"shape": [8]}, source="f#b"),
        Entry("add", {"shape": [16]}, source="f#b", phases=["backward"]),
        Entry("sub", {"shape": [16]}, source="f#b", phases=["backward"]),
    ]
    assert compact(entries) == entries


@given(
    st.lists(
        st.sampled_from(
            [
                *points(["float32", "float16"], [[4], [8], [4, 8]]),
                Entry("matmul", {"M": 1, "N": 2, "K": 3}),
                Entry("matmul", {"M": 4, "N": 2, "K": 3}),
                Entry("matmul", {"M": 4, "N": 2, "K": 3, "dtype": "float64"}),
                Entry("torch.add", args=["4 float32", 1]),
            ]
        ),
        min_size=1,
        max_size=12,
    )
)
def test_joining_changes_no_case_and_no_place(entries: list[Entry]) -> None:
    each = list(chain.from_iterable(cases([entry]) for entry in entries))
    joined = list(chain.from_iterable(cases([entry]) for entry in compact(entries)))
    assert list(dict.fromkeys(case.id for case in joined)) == list(dict.fromkeys(case.id for case in each))
