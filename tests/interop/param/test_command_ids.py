"""--resume-id and --stop-id of `opmark param`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import UserError
from opmark.interop.param.exporter import ConfigPosition, place_of
from opmark.interop.param.results import select_range

PLACES = [ConfigPosition(op, f"{c}|0|0_{i}") for op in ("torch.add", "aten::mm") for c in range(2) for i in range(3)]


def chosen(resume: str | None = None, stop: str | None = None) -> list[str]:
    return [str(place) for place in PLACES[select_range(PLACES, resume, stop)]]


def test_without_ids_everything_runs() -> None:
    assert chosen() == [str(place) for place in PLACES]


@given(st.integers(0, 11), st.integers(0, 11))
def test_resume_is_inclusive_and_stop_exclusive(first: int, last: int) -> None:
    resume, stop = str(PLACES[first]), str(PLACES[last])
    if first < last:
        assert chosen(resume, stop) == [str(place) for place in PLACES[first:last]]
    else:
        with pytest.raises(UserError, match="nothing is left"):
            chosen(resume, stop)


@pytest.mark.parametrize("text", ["aten::mm|1|0|0_1", "aten::mm:1|0|0_1", "aten::mm:1:0:0_1"])
def test_bars_and_colons_name_the_same_case(text: str) -> None:
    assert chosen(text)[0] == "aten::mm|1|0|0_1"


def test_an_id_that_never_matches_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no case of this config has the id `torch\.add") as error:
        chosen("torch.add|1|0|0_7")
    assert "torch.add|1|0|0_" in (error.value.hint or "")


def test_an_id_unlike_any_other_gets_no_guess() -> None:
    with pytest.raises(UserError) as error:
        chosen("nothing like it")
    assert "did you mean" not in (error.value.hint or "")
    assert "--dry-run" in (error.value.hint or "")


IN_FILES = [ConfigPosition("torch.add", f"0|0|{i}", file) for file in ("one.json", "sub/two.json") for i in range(2)]


def test_an_id_in_two_files_names_them() -> None:
    with pytest.raises(UserError, match=r"2 files have the id .*: one\.json, sub/two\.json") as error:
        select_range(IN_FILES, "torch.add|0|0|1", None)
    assert "'one.json#torch.add|0|0|1'" in (error.value.hint or "")


@pytest.mark.parametrize("text", ["sub/two.json#torch.add|0|0|0", "sub/two.json#torch.add:0:0:0"])
def test_the_file_tells_them_apart(text: str) -> None:
    assert select_range(IN_FILES, "one.json#torch.add|0|0|1", text) == slice(1, 2)


def test_a_stop_that_never_matches_is_a_mistake_too() -> None:
    with pytest.raises(UserError, match="--stop-id"):
        chosen(stop="torch.mul|0|0|0")


def test_an_id_without_its_operator_must_be_the_only_one() -> None:
    with pytest.raises(UserError, match="an id of 2 operators") as error:
        chosen("0|0|0_1")
    assert "torch.add|0|0|0_1" in (error.value.hint or "")
    single = PLACES[:3]
    assert select_range(single, "0|0|0_1", None) == slice(1, 3)


@given(st.text(alphabet="abc#.:| ", max_size=8), st.from_regex(r"[a-z]+(::|\.)[a-z_]+", fullmatch=True))
def test_a_source_names_its_place_whatever_the_file_is_called(file: str, op: str) -> None:
    place = ConfigPosition(op, "0|1_2|3_4", file)
    assert place_of(f"{file}#{op}|0|1_2|3_4") == place
    assert place_of(place.source) == place


@pytest.mark.parametrize("source", ["", "page 3 of a paper", "gemm.json#gemm", "x.json#a|b"])
def test_other_sources_are_no_places(source: str) -> None:
    assert place_of(source) is None
