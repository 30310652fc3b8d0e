"""Company: a part of the settings of a task, and so of its id; and a text by which figures are told apart."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from opmark.runner.plan import settings_for
from opmark.schema import Case, Task
from opmark.schema.company import Companion, Company, cores_text, shares_cores
from opmark.schema.options import MeasureOptions

SETTINGS = settings_for(MeasureOptions(effort="quick", threads=1, processes=1))[0]
ADD = Task(Case.of("add", {"shape": [8], "dtype": "float32"}, "forward"), "null", "null", SETTINGS)
EXP = Task(Case.of("exp", {"shape": [8], "dtype": "float32"}, "forward"), "null", "null", SETTINGS)


def beside(other: Task, cores: tuple[int, ...] = (0,), theirs: tuple[int, ...] = (1,), place: int = 0) -> Task:
    company = Company((Companion.of(other, theirs),), cores, place)
    return replace(ADD, settings=replace(SETTINGS, company=company))


def test_a_task_in_company_is_another_task():
    ids = [
        ADD.id, beside(EXP).id, beside(ADD).id, beside(EXP, theirs=(2,)).id, beside(EXP, cores=(3,)).id,
        beside(EXP, place=1).id,
    ]  # fmt: skip
    alone = replace(beside(EXP).settings.company, alone=True)
    ids.append(replace(ADD, settings=replace(SETTINGS, company=alone)).id)
    assert len(set(ids)) == len(ids)


def test_a_companion_is_told_apart_by_all_that_decides_what_it_does():
    base = Companion.of(EXP, (1,))
    others = [
        replace(base, threads=2), replace(base, cores=(2,)), replace(base, backend="null-device"),
        replace(base, params='{"dtype":"float32","shape":[9]}'), replace(base, configuration=(("tile", 4),)),
    ]  # fmt: skip
    texts = [Company((one,), (0,)).text for one in (base, *others)]
    assert len(set(texts)) == len(texts)


def test_the_case_of_a_companion_is_the_case_that_was_named():
    assert Companion.of(EXP, ()).case == EXP.case
    assert f"exp#{EXP.case.id[:8]}" in Companion.of(EXP, ()).text


def test_a_company_survives_the_store_and_is_hashed():
    settings = beside(EXP).settings
    again = msgspec.json.decode(msgspec.json.encode(settings), type=type(settings))
    assert again == settings
    assert hash(again) == hash(settings)
    assert settings.circumstances == settings.company.text
    assert SETTINGS.circumstances == ""


def test_cores_are_shared_where_sets_overlap_or_nobody_is_pinned():
    assert not shares_cores(beside(EXP, (0,), (1,)).settings.company)
    assert shares_cores(beside(EXP, (0, 1), (1,)).settings.company)
    assert shares_cores(beside(EXP, (), (1,)).settings.company)


@given(st.sets(st.integers(0, 300), min_size=1))
def test_the_text_of_cores_names_each_once(cores):
    text = cores_text(cores)
    named: list[int] = []
    for part in text.removeprefix("cores ").removeprefix("core ").split(","):
        low, _, high = part.partition("-")
        named += range(int(low), int(high or low) + 1)
    assert named == sorted(cores)
    assert all(later - earlier > 0 for earlier, later in pairwise(named))
