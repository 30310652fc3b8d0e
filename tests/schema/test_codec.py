"""Conversion of plain data into structs: errors name the file, the place and what was probably meant."""

from __future__ import annotations

import pytest

from opmark.errors import InvalidFile
from opmark.schema import Entry, Workload
from opmark.schema.codec import convert

GOOD = {"schema": 1, "name": "w", "cases": [{"op": "add"}, {"op": "exp", "params": {"shape": [4]}}]}


def with_entry(**extra):
    return {**GOOD, "cases": [{"op": "add"}, {"op": "exp", **extra}]}


def complaint(data: object) -> InvalidFile:
    with pytest.raises(InvalidFile) as caught:
        convert(data, Workload, "my.yaml")
    return caught.value


def test_good_data_becomes_the_noun():
    assert convert(GOOD, Workload, "my.yaml") == Workload(1, "w", [Entry("add"), Entry("exp", {"shape": [4]})])


def test_defaults_of_an_entry_are_filled_in():
    entry = convert(GOOD, Workload, "my.yaml").cases[0]
    assert (entry.params, entry.sizes, entry.phases, entry.tags) == ({}, [], ["forward"], [])
    assert (entry.wrt, entry.source) == ([], "")


def test_an_unknown_key_names_file_key_place_and_the_nearest():
    error = complaint({**GOOD, "descripton": "x"})
    assert error.message == "my.yaml: unknown key `descripton`, at `$`"
    assert error.hint == "did you mean `description`? known keys are schema, name, cases, description"


ENTRY_KEYS = ", ".join(Entry.__struct_fields__)


def test_an_unknown_key_further_down_names_its_own_place_and_its_own_neighbours():
    error = complaint(with_entry(parms={}))
    assert error.message == "my.yaml: unknown key `parms`, at `$.cases[1]`"
    assert error.hint == "did you mean `params`? known keys are " + ENTRY_KEYS


def test_an_unknown_key_like_none_lists_what_there_is():
    assert complaint(with_entry(zzz=1)).hint == "known keys are " + ENTRY_KEYS


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**GOOD, "schema": "1"}, "my.yaml: expected a whole number, got text, at `$.schema`"),
        ({**GOOD, "name": 7}, "my.yaml: expected text, got a whole number, at `$.name`"),
        ({**GOOD, "cases": {}}, "my.yaml: expected a list, got a mapping, at `$.cases`"),
        (with_entry(params=[1]), "my.yaml: expected a mapping, got a list, at `$.cases[1].params`"),
        (with_entry(tags=["a", 2]), "my.yaml: expected text, got a whole number, at `$.cases[1].tags[1]`"),
        (with_entry(op=None), "my.yaml: expected text, got nothing, at `$.cases[1].op`"),
        ({"schema": 1, "name": "w"}, "my.yaml: object missing required field `cases`, at `$`"),
    ],
)
def test_a_wrong_type_names_its_place(data, message):
    assert complaint(data).message == message


def test_a_missing_key_of_an_entry_names_its_place():
    assert complaint({**GOOD, "cases": [{}]}).message == (
        "my.yaml: object missing required field `op`, at `$.cases[0]`"
    )


def test_an_unknown_phase_names_its_place_and_what_it_got():
    message = complaint(with_entry(phases=["forward", "sideways"])).message
    assert "`$.cases[1].phases[1]`" in message
    assert "sideways" in message
    assert complaint(with_entry(phases=["backwards"])).hint == "did you mean `backward`?"


@pytest.mark.parametrize(
    ("data", "path"),
    [(with_entry(params={1: 2}), "$.cases[1].params"), ({**GOOD, 7: 8}, "$")],
)
def test_a_key_that_is_no_text_names_the_one_place_where_it_is(data, path):
    message = complaint(data).message
    assert message.count("`$") == 1
    assert f"`{path}`" in message
