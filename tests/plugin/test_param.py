"""Every kind of parameter: accepted and refused values, error messages, and parsing."""

from __future__ import annotations

import datetime
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opmark.errors import InvalidParameter
from opmark.plugin.param import KINDS, REQUIRED, Param, choice, dtype, flag, integer, real, shape, size
from opmark.plugin.registry import catalogue
from opmark.schema.tensor import DTYPES

SHAPE_WORDS = "a list of sizes of at least 1, as in 32x64 or [32, 64]"
COUNTS_WORDS = "a list of whole numbers of at least 0, as in [3, 0, 7]"
ARGUMENTS_WORDS = "arguments of a call, as in [8x64 float32, 2]"
BYTES_WORDS = "bytes, as in 4096, 64K or 8..64M (powers of 1024)"


def make(kind: str) -> Param:
    return Param("p", kind, "what it means", choices=("none", "tanh") if kind == "choice" else ())


def refusal(param: Param, value: object) -> InvalidParameter:
    with pytest.raises(InvalidParameter) as caught:
        param.check(value)
    return caught.value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("size", 1),
        ("size", 1 << 40),
        ("count", 0),
        ("count", 7),
        ("bytes", 1),
        ("bytes", 1 << 40),
        ("rank", 0),
        ("rank", 7),
        ("int", -3),
        ("int", 0),
        ("shape", [1]),
        ("shape", [4, 1, 4]),
        ("counts", []),
        ("counts", [3, 0, 7]),
        ("arguments", None),
        ("arguments", ["8x64 float32", 2, "mean", None]),
        ("arguments", {"dim": 1}),
        ("float", 0.5),
        ("float", -2.0),
        ("amount", 0.0),
        ("amount", 1e-5),
        ("bool", True),
        ("bool", False),
        ("choice", "tanh"),
        ("dtype", "bfloat16"),
    ],
)
def test_a_value_of_its_kind_passes_unchanged(kind, value):
    assert make(kind).check(value) == value


@pytest.mark.parametrize(
    ("kind", "value", "expected", "got"),
    [
        ("size", 0, "a whole number of at least 1", "`0`"),
        ("size", -4, "a whole number of at least 1", "`-4`"),
        ("size", 2.0, "a whole number of at least 1", "`2.0` (a number)"),
        ("size", True, "a whole number of at least 1", "`true` (a boolean)"),
        ("size", "4", "a whole number of at least 1", '`"4"` (text)'),
        ("size", None, "a whole number of at least 1", "`null` (nothing)"),
        ("size", [4], "a whole number of at least 1", "`[4]`"),
        ("size", {"a": 1}, "a whole number of at least 1", '`{"a":1}`'),
        ("size", datetime.date(2020, 1, 2), "a whole number of at least 1", '`"2020-01-02"`'),
        ("count", -1, "a whole number of at least 0", "`-1`"),
        ("count", False, "a whole number of at least 0", "`false` (a boolean)"),
        ("bytes", 0, BYTES_WORDS, "`0`"),
        ("bytes", "64X", BYTES_WORDS, '`"64X"` (text)'),
        ("bytes", 1.5, BYTES_WORDS, "`1.5` (a number)"),
        ("bytes", True, BYTES_WORDS, "`true` (a boolean)"),
        ("rank", -1, "a whole number of at least 0", "`-1`"),
        ("rank", True, "a whole number of at least 0", "`true` (a boolean)"),
        ("int", 1.5, "a whole number", "`1.5` (a number)"),
        ("int", True, "a whole number", "`true` (a boolean)"),
        ("shape", [], SHAPE_WORDS, "`[]`"),
        ("shape", [4, 0], SHAPE_WORDS, "`[4,0]`"),
        ("shape", [4, True], SHAPE_WORDS, "`[4,true]`"),
        ("shape", [4, 2.0], SHAPE_WORDS, "`[4,2.0]`"),
        ("shape", 4, SHAPE_WORDS, "`4`"),
        ("shape", "4x4", SHAPE_WORDS, '`"4x4"` (text)'),
        ("counts", [3, -1], COUNTS_WORDS, "`[3,-1]`"),
        ("counts", [True], COUNTS_WORDS, "`[true]`"),
        ("counts", 3, COUNTS_WORDS, "`3`"),
        ("arguments", 3, ARGUMENTS_WORDS, "`3`"),
        ("arguments", "8x64 float32", ARGUMENTS_WORDS, '`"8x64 float32"` (text)'),
        ("float", "0.5", "a finite number", '`"0.5"` (text)'),
        ("float", True, "a finite number", "`true` (a boolean)"),
        ("float", None, "a finite number", "`null` (nothing)"),
        ("amount", -1e-5, "a finite number of at least 0", "`-1e-05` (a number)"),
        ("amount", "much", "a finite number of at least 0", '`"much"` (text)'),
        ("bool", 1, "true or false", "`1`"),
        ("bool", "true", "true or false", '`"true"` (text)'),
        ("choice", 3, "a name", "`3`"),
        ("choice", "relu", "one of none, tanh", '`"relu"` (text)'),
        ("dtype", "float31", "a data type", '`"float31"` (text)'),
        ("dtype", 32, "a data type", "`32`"),
    ],
)
def test_a_refusal_says_parameter_expected_and_got(kind, value, expected, got):
    assert refusal(make(kind), value).message == f"parameter `p`: expected {expected}, got {got}"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_by_its_own_name(value):
    message = refusal(make("float"), value).message
    assert "expected a finite number" in message
    assert str(value).lstrip("-") in message.lower()


def test_a_whole_number_beyond_every_float_is_refused_as_a_number():
    assert "expected a finite number" in refusal(make("float"), 10**400).message


def test_every_kind_is_covered_by_the_tables_above():
    assert set(KINDS) == {
        "size", "bytes", "rank", "count", "int", "shape", "counts", "float", "amount", "bool", "choice", "arguments",
        "dtype",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["size", "count", "int", "shape", "counts", "float", "amount", "bool", "arguments"])
def test_the_hint_says_what_the_parameter_means(kind):
    assert "what it means" in (refusal(make(kind), "no").hint or "")


def test_a_misspelt_choice_is_hinted():
    assert refusal(make("choice"), "tan").hint == "did you mean `tanh`?"


def test_a_choice_among_element_types_is_hinted_by_its_names_elsewhere():
    cache = choice("cache_dtype", "of the cache", ("same", "int8", "float8_e4m3fn", "float8_e5m2"))
    assert refusal(cache, "fp8").hint == "did you mean `float8_e4m3fn` or `float8_e5m2`?"
    assert refusal(cache, "fp16").hint is None


def test_a_choice_like_nothing_known_has_no_suggestion():
    assert refusal(make("choice"), "zzzz").hint is None


def test_a_misspelt_dtype_is_hinted():
    assert refusal(make("dtype"), "flaot32").hint == "did you mean `float32`?"


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("tf32", "did you mean `tfloat32`?"),
        ("fp8", "did you mean `float8_e4m3fn` or `float8_e5m2`?"),
        ("float8_e4m3", "did you mean `float8_e4m3fn`?"),
        ("torch.bfloat16", "did you mean `bfloat16`?"),
        ("half", "did you mean `float16`?"),
        ("FP16", "did you mean `float16`?"),
        ("Float8_E5M2", "did you mean `float8_e5m2`?"),
    ],
)
def test_names_of_element_types_in_other_systems_are_hinted(written, hint):
    assert refusal(make("dtype"), written).hint == hint


def test_a_dtype_that_another_operator_has_is_pointed_to():
    param = dtype("float32", elsewhere=(("int8", "see another"), ("float8_e4m3fn", "see a third")))
    assert refusal(param, "int8").hint == "see another"
    assert refusal(param, "fp8").hint == (
        "it is `float8_e4m3fn` or `float8_e5m2` here, which this parameter does not take; see a third"
    )
    assert refusal(param, "fp16").hint == ("it is `float16` here, which this parameter does not take; known: float32")
    assert refusal(param, "fp32").hint == "did you mean `float32`?"


def test_a_dtype_like_nothing_known_lists_what_there_is():
    hint = refusal(make("dtype"), "zzzz").hint or ""
    assert all(name in hint for name in DTYPES)


@pytest.mark.parametrize("written", ["tfloat32", "tf32"])
def test_a_dtype_that_few_operators_take_names_them(written):
    hint = refusal(dtype("float64", "float32"), written).hint or ""
    operators = hint.partition(" is taken by ")[2].split(", ")
    assert "matmul" in operators
    assert ("it is `tfloat32` here" in hint) == (written == "tf32")
    dtypes = {op.name: op.by_name["dtype"].choices for op in catalogue().values() if "dtype" in op.by_name}
    assert {*operators} == {name for name, choices in dtypes.items() if "tfloat32" in choices}


def test_a_dtype_that_this_operator_lacks_names_those_it_has():
    error = refusal(dtype("float64", "float32"), "int8")
    assert error.message == 'parameter `dtype`: expected one of float64, float32, got `"int8"` (text)'
    assert error.hint is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("size", "128", 128),
        ("count", "0", 0),
        ("int", "-1", -1),
        ("shape", "4x8", [4, 8]),
        ("shape", "[4, 8]", [4, 8]),
        ("shape", "(4,8)", [4, 8]),
        ("shape", "16", [16]),
        ("float", "1e-5", 1e-5),
        ("float", "3", 3.0),
        ("bool", "true", True),
        ("bool", "False", False),
        ("choice", "none", "none"),
        ("dtype", "float16", "float16"),
    ],
)
def test_a_value_is_parsed_as_written_on_a_command_line(kind, text, value):
    found = make(kind).parse(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "expected", "got"),
    [
        ("size", "0", "a whole number of at least 1", "`0`"),
        ("size", "-2", "a whole number of at least 1", "`-2`"),
        ("size", "abc", "a whole number of at least 1", '`"abc"` (text)'),
        ("size", "2.5", "a whole number of at least 1", "`2.5` (a number)"),
        ("count", "-1", "a whole number of at least 0", "`-1`"),
        ("int", "", "a whole number", '`""` (text)'),
        ("shape", "4x", SHAPE_WORDS, '`"4x"` (text)'),
        ("shape", "4x0", SHAPE_WORDS, "`[4,0]`"),
        ("float", "fast", "a finite number", '`"fast"` (text)'),
        ("bool", "yes", "true or false", '`"yes"` (text)'),
        ("choice", "relu", "one of none, tanh", '`"relu"` (text)'),
        ("dtype", "f32", "a data type", '`"f32"` (text)'),
    ],
)
def test_text_that_does_not_parse_is_refused_like_a_value(kind, text, expected, got):
    with pytest.raises(InvalidParameter) as caught:
        make(kind).parse(text)
    assert caught.value.message == f"parameter `p`: expected {expected}, got {got}"


def test_a_float_is_stored_as_a_float_however_it_was_written():
    # Otherwise `eps: 1` and `eps: 1.0` would be two cases.
    found = make("float").check(1)
    assert (found, type(found)) == (1.0, float)


def test_a_shape_is_stored_as_a_list_however_it_was_written():
    assert make("shape").check((2, 3)) == [2, 3]
    assert type(make("shape").check((2, 3))) is list


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=6))
@settings(deadline=None)
def test_every_shape_survives_both_ways_to_write_it(sizes):
    param = make("shape")
    assert param.parse("x".join(map(str, sizes))) == param.parse(str(sizes)) == param.check(sizes) == sizes


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.integers())))
@settings(deadline=None)
def test_any_value_is_taken_for_good_or_refused_in_words(value):
    for param in map(make, KINDS):
        try:
            taken = param.check(value)
        except InvalidParameter as error:
            assert error.message.startswith("parameter `p`: expected ")  # noqa: PT017 - both ends are right
        else:
            assert param.check(taken) == taken


def test_a_parameter_without_a_default_is_required():
    assert size("n", "d").required
    assert not size("n", "d", 4).required
    assert not Param("n", "choice", "d", None).required, "None is a default like any other"


def test_required_reads_as_a_word():
    assert repr(REQUIRED) == "required"


def test_the_short_spellings_make_the_kinds_they_are_named_after():
    made = [
        size("a", "d"),
        shape("a", "d"),
        real("a", "d"),
        flag("a", "d"),
        integer("a", "d"),
        integer("a", "d", kind="count"),
        choice("a", "d", ("x",)),
        dtype("float32"),
    ]
    assert [p.kind for p in made] == ["size", "shape", "float", "bool", "int", "count", "choice", "dtype"]
    assert [p.is_shape for p in made] == [False, True, *[False] * 6]


def test_a_dtype_is_float32_and_a_flag_is_off_unless_said_otherwise():
    assert dtype("float32", "float16").default == "float32"
    assert flag("f", "d").default is False
    assert flag("f", "d", default=True).default is True
