"""A case is known by its content."""

from __future__ import annotations

import string

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.analysis.rows import case_parameters
from opmark.schema import Case, Environment
from opmark.schema.case import LONGEST_NAME, PLUGIN_OPERATOR, content_id, is_operator, shown_case

PARAMS = {"M": 4, "shape": [2, 3], "eps": 1e-5, "causal": False, "dtype": "float32"}

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def reversed_keys(value):
    """Return the same content with every mapping in reverse order."""
    if isinstance(value, dict):
        return {key: reversed_keys(item) for key, item in reversed(value.items())}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


def test_an_id_stays_the_same_over_versions():
    # Stored records are found by it: a different way to hash would orphan all of them.
    assert content_id({"op": "add", "params": {"shape": [4, 4], "dtype": "float32"}, "phase": "forward"}) == (
        "73dc65e626e95845"
    )


@given(plain)
@settings(deadline=None)
def test_an_id_is_16_hex_digits(content):
    found = content_id(content)
    assert len(found) == 16
    assert set(found) <= set(string.hexdigits.lower())


@given(plain)
@settings(deadline=None)
def test_the_order_of_keys_does_not_matter(content):
    assert content_id(reversed_keys(content)) == content_id(content)


@given(plain, plain)
@settings(deadline=None)
def test_what_is_added_changes_the_id(content, more):
    assert content_id([content, more]) != content_id([content])
    assert content_id({"a": content, "b": more}) != content_id({"a": content})


def test_same_content_same_id():
    assert Case.of("matmul", dict(PARAMS), "forward") == Case.of("matmul", dict(PARAMS), "forward")


@pytest.mark.parametrize(
    ("op", "params", "phase"),
    [
        ("mm", PARAMS, "forward"),
        ("matmul", PARAMS, "backward"),
        ("matmul", {**PARAMS, "M": 5}, "forward"),
        ("matmul", {**PARAMS, "M": 4.0}, "forward"),
        ("matmul", {**PARAMS, "M": "4"}, "forward"),
        ("matmul", {**PARAMS, "shape": [3, 2]}, "forward"),
        ("matmul", {**PARAMS, "shape": [2, 3, 1]}, "forward"),
        ("matmul", {**PARAMS, "eps": 1.0000000000000002e-5}, "forward"),
        ("matmul", {**PARAMS, "causal": True}, "forward"),
        ("matmul", {**PARAMS, "causal": 0}, "forward"),
        ("matmul", {**PARAMS, "new": None}, "forward"),
        ("matmul", {key: PARAMS[key] for key in PARAMS if key != "M"}, "forward"),
    ],
)
def test_any_change_is_another_id(op, params, phase):
    assert Case.of(op, params, phase).id != Case.of("matmul", PARAMS, "forward").id


def test_tags_are_no_part_of_what_is_measured():
    plain, tagged = Case.of("add", PARAMS, "forward"), Case.of("add", PARAMS, "forward", ("llm",))
    assert tagged.id == plain.id
    assert tagged.tags == ("llm",)


def test_a_case_survives_the_way_through_json():
    case = Case.of("add", PARAMS, "backward", ("a", "b"))
    assert msgspec.json.decode(msgspec.json.encode(case), type=Case) == case


def test_a_case_cannot_be_changed():
    with pytest.raises(AttributeError):
        Case.of("add", PARAMS, "forward").op = "sub"


def test_an_environment_is_known_by_its_facts():
    one, same, other = (Environment.of(facts) for facts in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3}))
    assert one.id == same.id != other.id
    assert one.facts == {"a": 1, "b": 2}


def test_gradients_of_some_inputs_are_another_case_and_none_named_is_the_old_one() -> None:
    plain = Case.of("matmul", PARAMS, "backward")
    assert Case.of("matmul", PARAMS, "backward", wrt=("a",)).id != plain.id
    assert (
        Case.of("matmul", PARAMS, "backward", wrt=()).id
        == plain.id
        == content_id({"op": "matmul", "params": PARAMS, "phase": "backward"})
    )
    assert Case.of("matmul", PARAMS, "both").id != plain.id


# Two encoders, one id


words = st.text(string.ascii_letters + string.digits + "_.:+-", max_size=8)
simple = st.booleans() | st.integers() | words | st.lists(st.integers(), max_size=4)
phases = st.sampled_from(["forward", "backward", "both"])


@given(st.dictionaries(words, simple, max_size=4), phases)
@settings(deadline=None)
def test_a_case_of_simple_values_has_the_id_of_its_content(params, phase):
    assert Case.of("exp", params, phase).id == content_id({"op": "exp", "params": params, "phase": phase})


@given(st.text(), st.dictionaries(st.text(), simple | plain, max_size=4), phases, st.lists(st.text(), max_size=2))
@settings(deadline=None)
def test_a_case_of_anything_has_the_id_of_its_content(op, params, phase, wrt):
    content = {"op": op, "params": params, "phase": phase} | ({"wrt": wrt} if wrt else {})
    assert Case.of(op, params, phase, wrt=tuple(wrt)).id == content_id(content)


@pytest.mark.parametrize(
    "value", [2**63, 2**64, -(2**63) - 1, 10**40, [2**64], "é", "a/b", 'a"b', "\x7f", "<&>", "a b"]
)
def test_values_that_encoders_write_in_different_ways_are_one_content(value):
    content = {"op": "exp", "params": {"n": value}, "phase": "forward"}
    assert Case.of("exp", {"n": value}, "forward").id == content_id(content)


@pytest.mark.parametrize("op", ["mine.größe:f", "opinfo:nn.functional.pad/reflect", 'a"b'])
def test_names_that_encoders_write_in_different_ways_are_one_content(op):
    content = {"op": op, "params": {"größe": 3}, "phase": "backward", "wrt": ["ä"]}
    assert Case.of(op, {"größe": 3}, "backward", wrt=("ä",)).id == content_id(content)


@pytest.mark.parametrize(
    ("build", "data", "shown"),
    [
        (None, None, {"args": ["4 float32"], "kwargs": {}, "build": None}),
        (
            {"args": [3], "kwargs": {}},
            None,
            {"args": ["4 float32"], "kwargs": {}, "build": {"args": [3], "kwargs": {}}},
        ),
        (None, {"generator": "Square", "spec": {"n": 4}}, {"args": ['Square {"n": 4}'], "kwargs": {}, "build": None}),
        ({"tensors": "/tmp/0.pt"}, None, {"args": ["4 float32"], "kwargs": {}, "build": {"args": ["tensors"]}}),
    ],
)
def test_a_registered_operator_is_shown_by_its_name(build, data, shown):
    built = ["mine.scale", {"value": ["/tmp/mine.py"]}, {"value": build}, {"value": data}]
    case = Case.of(PLUGIN_OPERATOR, {"args": ["4 float32"], "kwargs": {}, "build": {"args": built}}, "forward")
    assert (shown_case(case).op, shown_case(case).params, shown_case(case).id) == ("mine.scale", shown, case.id)


def test_a_registered_operator_is_found_by_both_of_its_names():
    case = registered("mine.scale")
    names = ("mine.scale", "mine.*", PLUGIN_OPERATOR, "mine", "exp")
    assert [is_operator(case, name) for name in names] == [True, True, True, False, False]


def registered(name, build=None, data=None):
    built = [name, {"value": ["/tmp/mine.py"]}, {"value": build}, {"value": data}]
    return Case.of(PLUGIN_OPERATOR, {"args": ["4 float32"], "kwargs": {}, "build": {"args": built}}, "forward")


@pytest.mark.parametrize(
    "case",
    [
        registered("mine.scale", data={"args": 5}),
        registered("mine.scale", data={"kwargs": "x"}),
        registered("mine.scale", build={"args": 5}),
        registered(""),
        registered(5),
        registered("x" * (LONGEST_NAME + 1)),
    ],
)
def test_a_registered_operator_without_the_parts_of_a_call_is_shown_as_it_is_stored(case):
    assert shown_case(case) is case


odd_call = st.fixed_dictionaries({}, optional={"args": plain, "kwargs": plain})
odd_build = st.tuples(plain, plain, *2 * [st.fixed_dictionaries({"value": plain | odd_call})]).map(list)


@given(
    plain,
    plain,
    plain | odd_call | st.fixed_dictionaries({"args": st.lists(plain, min_size=3, max_size=5) | odd_build}),
    st.sampled_from(["exp", "torch.exp", PLUGIN_OPERATOR]),
)
@settings(deadline=None)
def test_a_stored_case_of_any_content_can_be_shown(args, kwargs, build, op):
    case = Case.of(op, {"args": args, "kwargs": kwargs, "build": build}, "forward")
    assert shown_case(case).id == case.id
    assert isinstance(case_parameters(case), str)
    if op != PLUGIN_OPERATOR:
        assert shown_case(case) is case
