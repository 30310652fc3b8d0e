"""Arguments of a call, written as data: one spelling, paths of tensors, error messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import InvalidParameter
from opmark.plugin.backend import draw_values
from opmark.schema import TensorSpec
from opmark.schema.arguments import assemble, canonical, fill_placeholders, tensor_fields, tensors
from opmark.schema.tensor import DTYPES, is_float


def no_dtype(name: str) -> Any:
    raise AssertionError(f"nobody asked for {name}")


# How a tensor is written.

WRITTEN = [
    ("8x64 float32", TensorSpec((8, 64), "float32", -1.0, 1.0)),
    ("8 float64", TensorSpec((8,), "float64", -1.0, 1.0)),
    ("() bfloat16", TensorSpec((), "bfloat16", -1.0, 1.0)),
    ("0x3 float32", TensorSpec((0, 3), "float32", -1.0, 1.0)),
    ("7 int64", TensorSpec((7,), "int64", 0, 10)),
    ("8x64 float32 strides 1x8", TensorSpec((8, 64), "float32", -1.0, 1.0, strides=(1, 8))),
    ("8x64 float32 strides 64x1", TensorSpec((8, 64), "float32", -1.0, 1.0)),
    ("4x1 int64 0..50 strides 0x9", TensorSpec((4, 1), "int64", 0, 50, strides=(0, 9))),
    ({"shape": [2, 3], "dtype": "float32", "strides": [1, 2]}, TensorSpec((2, 3), "float32", strides=(1, 2))),
    ("7 bool", TensorSpec((7,), "bool", 0, 2)),
    ("100 int64 0..50", TensorSpec((100,), "int64", 0, 50)),
    ("100 int64 5..8", TensorSpec((100,), "int64", 5, 8)),
    ("4 float32 -0.5..2e3", TensorSpec((4,), "float32", -0.5, 2000)),
    ("4 float32 1e-7..1", TensorSpec((4,), "float32", 1e-7, 1)),
    ("4   float32   0..1", TensorSpec((4,), "float32", 0, 1)),
    ({"shape": [8, 64], "dtype": "float32"}, TensorSpec((8, 64), "float32", -1.0, 1.0)),
    ({"shape": [], "dtype": "int32"}, TensorSpec((), "int32", 0, 10)),
    ({"shape": [3], "dtype": "float32", "low": 0}, TensorSpec((3,), "float32", 0, 1)),
    ({"shape": [3], "dtype": "float32", "high": 9}, TensorSpec((3,), "float32", -1, 9)),
    ({"shape": [3], "dtype": "int8", "low": -4, "high": 4}, TensorSpec((3,), "int8", -4, 4)),
]


@pytest.mark.parametrize(("node", "spec"), WRITTEN, ids=lambda value: str(value) if isinstance(value, str) else "")
def test_a_tensor_is_written_with_shape_type_and_domain(node: Any, spec: TensorSpec) -> None:
    assert list(tensors([node], "args")) == [("args.0", spec)]


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("8x64 float32 -1..1", "8x64 float32"),
        ("8x64  float32", "8x64 float32"),
        ("100 int64 0..10", "100 int64"),
        ("100 int64 0..50.0", "100 int64 0..50"),
        ("9 bool 0..2", "9 bool"),
        ({"high": 1, "dtype": "float32", "low": -1, "shape": [8, 64]}, "8x64 float32"),
        ({"shape": [], "dtype": "float16"}, "() float16"),
        ({"shape": [5], "dtype": "int64", "high": 7}, "5 int64 0..7"),
    ],
)
def test_there_is_one_spelling_of_a_tensor(node: Any, text: str) -> None:
    assert canonical(node) == text


@pytest.mark.parametrize("high", [1234567, 50257 * 1024, 2**31 - 1, 2**40])
def test_a_large_domain_keeps_all_its_digits(high: int) -> None:
    """An index beyond the end of a table would be an error, or read invalid memory."""
    ((_, spec),) = tensors([f"100 int64 0..{high}"], "args")
    assert spec.high == high
    ((_, spec),) = tensors([{"shape": [100], "dtype": "int64", "low": 0, "high": high}], "args")
    assert spec.high == high


@pytest.mark.parametrize("low", [0.1234567, 1 / 3, 1e-12])
def test_a_fine_domain_keeps_all_its_digits(low: float) -> None:
    ((_, spec),) = tensors([f"100 float64 {low!r}..1"], "args")
    assert spec.low == low


@pytest.mark.parametrize(
    "text",
    ["mean", "", "8", "float32", "8 Float32", "ij,jk->ik", "{x}y", "bilinear", "a float33"],
)
def test_a_text_that_is_no_tensor_means_itself(text: str) -> None:
    assert canonical(text) == text
    assert list(tensors([text], "args")) == []
    assert assemble([text], "args", {}, no_dtype) == [text]


@pytest.mark.parametrize(
    "text", ["8x64", "x64 float32", "8xx64 float32", "8 x 64 float32", "8x64float32", "-8 float32", "8x64 float32 1",
             "reflect 8x64 float32", " 8 float32", "8 float32 ", "8xfoo float32"],
)  # fmt: skip
def test_a_text_that_looks_like_a_tensor_and_is_none_is_refused_unless_it_is_meant(text: str) -> None:
    with pytest.raises(InvalidParameter, match="looks like a tensor"):
        canonical([text])
    assert assemble(canonical([{"value": text}]), "args", {}, no_dtype) == [text]


@pytest.mark.parametrize("plain", [0, -3, 2.5, True, False, None])
def test_what_is_no_text_means_itself(plain: Any) -> None:
    assert canonical([plain]) == [plain]
    assert assemble([plain], "args", {}, no_dtype) == [plain]


# Mistakes.


@pytest.mark.parametrize(
    ("node", "message", "hint"),
    [
        ("8x64 float31", "expected an element type, got `float31`", "did you mean `float32`?"),
        ("8x64 qqqqqq", "expected an element type, got `qqqqqq`", "known: "),
        ({"dtype": "int46"}, "expected an element type, got `int46`", "did you mean `int64`?"),
        ("8 int64 5..5", "expected low..high, got 5..5", "as in 0..10"),
        ("8 int64 5..2", "expected low..high, got 5..2", "as in 0..10"),
        ("8 int64 12..10", "expected low..high, got 12..10", "as in 0..10"),
        ("8 float32 nan..1", "expected low..high, got nan..1", "as in 0..10"),
        ("8 float32 a..b", "expected numbers on both sides of `..`, got `a`", "as in 100 int64 0..50"),
        ("8 float32 0..b", "expected numbers on both sides of `..`, got `b`", "as in 100 int64 0..50"),
        ({"shape": [8, -1], "dtype": "float32"}, "expected a list of sizes, got `[8, -1]`", "as in 8x64 float32"),
        ({"shape": [8, True], "dtype": "float32"}, "expected a list of sizes", "as in 8x64 float32"),
        ({"shape": [8.0], "dtype": "float32"}, "expected a list of sizes", "as in 8x64 float32"),
        ({"shape": 8, "dtype": "float32"}, "expected a list of sizes, got `8`", "as in 8x64 float32"),
        ({"shape": [8], "dtype": "float32", "hihg": 3}, "a tensor has no `hihg`", "dtype, high, low, shape"),
    ],
)  # fmt: skip
def test_a_tensor_that_cannot_be_meant_is_refused(node: Any, message: str, hint: str) -> None:
    for place in (node, [1, node], {"a": [node]}, {"tuple": [node]}):
        with pytest.raises(InvalidParameter) as caught:
            canonical(place)
        assert message in caught.value.message
        assert hint in str(caught.value.hint)


def test_a_domain_without_an_end_is_refused() -> None:
    """No framework draws from it."""
    with pytest.raises(InvalidParameter, match=r"low\.\.high"):
        canonical("8 float32 0..inf")


@pytest.mark.parametrize("ends", [{"low": "0", "high": 5}, {"low": [0]}, {"high": {"a": 1}}, {"high": True}])
def test_the_ends_of_a_domain_are_numbers(ends: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter):
        canonical({"shape": [8], "dtype": "int64", **ends})


@pytest.mark.parametrize("node", [{"tuple": 5}, {"tuple": "8 float32"}, {"tuple": None}])
def test_a_tuple_is_made_of_a_list(node: Any) -> None:
    with pytest.raises(InvalidParameter):
        canonical([node])


@pytest.mark.parametrize("name", [["float32"], {"a": 1}, 32, None])
def test_the_name_of_an_element_type_is_a_text(name: Any) -> None:
    with pytest.raises(InvalidParameter, match="expected an element type"):
        canonical([{"dtype": name}])


# Other values.


def test_a_value_is_exactly_that_whatever_it_looks_like() -> None:
    node = {"value": "8x64 float32"}
    assert canonical([node]) == [node]
    assert list(tensors([node], "args")) == []
    assert assemble([node], "args", {}, no_dtype) == ["8x64 float32"]


@pytest.mark.parametrize("inside", [{"dtype": "no such"}, {"tuple": [1]}, {"value": 3}, [{"shape": [1], "dtype": "?"}]])
def test_nothing_inside_a_value_means_anything(inside: Any) -> None:
    assert canonical({"value": inside}) == {"value": inside}
    assert assemble({"value": inside}, "args", {}, no_dtype) == inside


def test_an_element_type_is_looked_up_and_a_tuple_is_one() -> None:
    node = canonical([{"dtype": "float16"}, {"tuple": [2, {"dtype": "int8"}, [3]]}])
    assert assemble(node, "args", {}, lambda name: f"<{name}>") == ["<float16>", (2, "<int8>", [3])]


def test_tensors_are_put_where_they_stand() -> None:
    node = {"a": ["2 int8", {"tuple": ["3 int8", 1]}], "b": {"c": "4 int8", "reduction": "mean"}}
    places = dict(tensors(node, "kwargs"))
    assert {place: spec.shape for place, spec in places.items()} == {
        "kwargs.a.0": (2,), "kwargs.a.1.0": (3,), "kwargs.b.c": (4,),
    }  # fmt: skip
    given = {place: spec.shape[0] for place, spec in places.items()}
    assert assemble(canonical(node), "kwargs", given, no_dtype) == {
        "a": [2, (3, 1)], "b": {"c": 4, "reduction": "mean"},
    }  # fmt: skip


# `{name}`.


def test_a_name_alone_stands_for_the_value_itself() -> None:
    values = {"n": 8, "flag": True, "shape": [2, 3], "none": None}
    node = {"a": "{n}", "b": ["{flag}", "{shape}"], "c": {"tuple": "{shape}"}, "d": "{none}"}
    assert fill_placeholders(node, values) == {"a": 8, "b": [True, [2, 3]], "c": {"tuple": [2, 3]}, "d": None}


def test_a_name_inside_a_text_stands_for_how_the_value_is_written() -> None:
    values = {"m": 8, "inner": [4, 5], "dt": "float16", "top": 9}
    assert fill_placeholders("{m}x{inner} {dt} 0..{top}", values) == "8x4x5 float16 0..9"
    assert fill_placeholders({"shape": ["{m}", 2], "dtype": "{dt}"}, values) == {"shape": [8, 2], "dtype": "float16"}


@pytest.mark.parametrize("node", ["plain", 3, None, 2.5, "{not a name}", "{}", "}{", ["a", {"b": 1}]])
def test_what_holds_no_name_stays(node: Any) -> None:
    assert fill_placeholders(node, {"n": 1}) == node


def test_a_name_that_is_not_given_is_named_with_the_nearest() -> None:
    with pytest.raises(InvalidParameter) as caught:
        fill_placeholders(["{heads}x64 float32"], {"head": 3, "n": 2})
    assert caught.value.message == "`{heads}` stands for a parameter that has no value"
    assert caught.value.hint == "did you mean `{head}`?"
    with pytest.raises(InvalidParameter) as caught:
        fill_placeholders("{n}", {})
    assert caught.value.hint == "give it, as in params: {n: [1, 2]}"


# Laws.

SHAPES = st.lists(st.integers(0, 10**6), max_size=4)
ENDS = st.lists(
    st.one_of(st.integers(-(2**53), 2**53), st.floats(-1e30, 1e30).filter(lambda x: x == 0 or abs(x) > 1e-30)),
    min_size=2,
    max_size=2,
    unique_by=float,
).map(lambda pair: sorted(pair, key=float))


@st.composite
def written_tensors(draw: st.DrawFn) -> Any:
    shape, dtype = draw(SHAPES), draw(st.sampled_from(sorted(DTYPES)))
    low, high = draw(st.one_of(st.just((None, None)), ENDS))
    domain = {} if low is None else {"low": low, "high": high}
    if draw(st.booleans()):
        return {"shape": shape, "dtype": dtype, **domain}
    text = f"{'x'.join(map(str, shape)) or '()'} {dtype}"
    return text if low is None else f"{text} {low!r}..{high!r}"


WORDS = st.text("abcxyz ", max_size=6)
NAMES = st.text("abcdefghij", min_size=1, max_size=4)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), WORDS)
LEAVES = st.one_of(
    PLAIN,
    written_tensors(),
    st.builds(lambda name: {"dtype": name}, st.sampled_from(sorted(DTYPES))),
    st.builds(lambda value: {"value": value}, st.one_of(PLAIN, st.just("8x64 float32"), st.lists(PLAIN))),
)
NODES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(lambda items: {"tuple": items}),
        st.dictionaries(NAMES, inner, max_size=3),
    ),
    max_leaves=8,
)


@given(NODES)
def test_one_spelling_is_the_end_of_it(node: Any) -> None:
    once = canonical(node)
    assert canonical(once) == once


@given(NODES)
def test_the_one_spelling_says_the_same_tensors(node: Any) -> None:
    assert list(tensors(node, "args")) == list(tensors(canonical(node), "args"))


@given(written_tensors())
def test_what_was_written_is_what_is_made(node: Any) -> None:
    ((_, spec),) = tensors([node], "args")
    if isinstance(node, dict):
        assert (list(spec.shape), spec.dtype) == (node["shape"], node["dtype"])
        if "low" in node:
            assert (spec.low, spec.high) == (node["low"], node["high"])
    elif ".." in node:
        low, _, high = node.split(" ")[2].partition("..")
        assert (spec.low, spec.high) == (float(low), float(high))
    if not is_float(spec.dtype) and spec.dtype != "bool" and ".." not in str(node) and "low" not in node:
        assert (spec.low, spec.high) == (0, 10)


class Put:
    """A stand-in for a tensor."""

    def __init__(self, place: str) -> None:
        self.place = place


def put(value: Any) -> list[str]:
    """Return the paths of all stand-ins."""
    if isinstance(value, Put):
        return [value.place]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [place for item in items for place in put(item)]


@given(NODES)
def test_what_is_found_is_what_is_put_in_and_each_once(node: Any) -> None:
    places = [place for place, _ in tensors(node, "args")]
    given = {place: Put(place) for place in places}
    assert len(given) == len(places)
    assert put(assemble(canonical(node), "args", given, str)) == places


@given(NODES)
def test_filling_in_nothing_changes_nothing(node: Any) -> None:
    assert fill_placeholders(node, {}) == node


@given(st.lists(st.integers(1, 999), min_size=1, max_size=4), st.sampled_from(sorted(DTYPES)))
def test_a_tensor_filled_in_is_the_tensor_written_out(shape: list[int], dtype: str) -> None:
    """Written whole, axis by axis or as a mapping, it is the same case with the same id."""
    names = {f"n{i}": size for i, size in enumerate(shape)}
    axis_by_axis = "x".join(f"{{{name}}}" for name in names) + " {dt}"
    expected = f"{'x'.join(map(str, shape))} {dtype}"
    values = {**names, "shape": shape, "dt": dtype}
    for node in (axis_by_axis, "{shape} {dt}", {"shape": "{shape}", "dtype": "{dt}"}):
        assert canonical(fill_placeholders(node, values)) == canonical(expected)


@pytest.mark.parametrize(("number", "name"), [(float("inf"), "inf"), (float("-inf"), "-inf"), (float("nan"), "nan")])
def test_a_number_that_json_has_no_word_for_survives(number: float, name: str) -> None:
    written = canonical([number, {"value": number}, {"tuple": [number]}])
    assert written == [{"float": name}, {"float": name}, {"tuple": [{"float": name}]}]
    assert canonical(written) == written
    made = assemble(json.loads(json.dumps(written)), "args", {}, str)
    assert [repr(made[0]), repr(made[1]), repr(made[2][0])] == [repr(number)] * 3


@pytest.mark.parametrize("node", [{1, 2}, b"text", object(), 1j, {"float": "big"}, [{"x": {1}}]])
def test_what_no_file_can_hold_is_no_argument(node: object) -> None:
    with pytest.raises(InvalidParameter, match=r"expected"):
        canonical(node)


# Indices that belong together.


INDICES = [
    ("64 int64 0..512 offsets", "64 int64 0..512 offsets"),
    ("3 int64 0..10 offsets", "3 int64 0..10 offsets"),
    ("65 int32 0..512 bounds", "65 int32 0..512 bounds"),
    ("100 int64 permutation", "100 int64 permutation"),
    ("100 int64 0..100 permutation", "100 int64 permutation"),
    ("4x5 int64 3..23 permutation", "4x5 int64 3..23 permutation"),
    ("512 int64 0..1000 zipf", "512 int64 0..1000 zipf"),
    ("512 int64 0..1000  zipf 1.05", "512 int64 0..1000 zipf"),
    ("512 int64 0..1000 zipf 1.20", "512 int64 0..1000 zipf 1.2"),
    ({"shape": [8], "dtype": "int64", "high": 64, "values": "offsets"}, "8 int64 0..64 offsets"),
    ({"shape": [8], "dtype": "int64", "high": 64, "values": "zipf", "alpha": 2}, "8 int64 0..64 zipf 2"),
]


@pytest.mark.parametrize(("node", "text"), INDICES, ids=str)
def test_the_values_of_indices_have_one_spelling(node: Any, text: str) -> None:
    assert canonical(node) == text
    assert canonical(text) == text
    fields = tensor_fields(text)
    assert fields is not None
    alone = fields if fields["values"] == "zipf" else {key: fields[key] for key in fields if key != "alpha"}
    assert canonical(alone) == text


def values_of(text: str, seed: int = 0) -> Any:
    ((_, spec),) = tensors([text], "args")
    return draw_values(spec, seed)


@given(st.integers(1, 50), st.integers(0, 50), st.integers(1, 200))
def test_offsets_begin_at_the_beginning_and_never_fall(bags: int, low: int, lookups: int) -> None:
    offsets = values_of(f"{bags} int64 {low}..{low + lookups} offsets")
    bounds = values_of(f"{bags + 1} int64 {low}..{low + lookups} bounds")
    assert list(bounds) == [*offsets, low + lookups]
    assert offsets[0] == low
    assert all(offsets[1:] >= offsets[:-1])
    assert max(bounds[1:] - bounds[:-1]) - min(bounds[1:] - bounds[:-1]) <= 1


@given(st.integers(1, 300), st.integers(0, 9))
def test_a_permutation_has_each_index_once(size: int, seed: int) -> None:
    assert sorted(values_of(f"{size} int64 permutation", seed)) == list(range(size))


@given(st.integers(2, 10_000), st.floats(0.5, 3), st.integers(0, 9))
def test_zipf_stays_inside_of_its_domain(rows: int, alpha: float, seed: int) -> None:
    drawn = values_of(f"200 int64 5..{5 + rows} zipf {alpha}", seed)
    assert drawn.min() >= 5
    assert drawn.max() < 5 + rows


def test_a_larger_power_favours_fewer_indices() -> None:
    kinds = [len(set(values_of(f"5000 int64 0..100000 zipf {alpha}").tolist())) for alpha in (0.5, 1.05, 2)]
    assert kinds[0] > kinds[1] > kinds[2]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("8 float32 offsets", "whole numbers"),
        ("8 int64 offsets", "0..N with the number of lookups"),
        ("8x8 int64 0..64 offsets", "one axis"),
        ("8 int64 0..9 permutation", "has as many values"),
        ("8 int64 0..9 zipf x", "expected numbers"),
        ("8 int64 0..9 zipf -1", "above 0"),
        ("8 int64 0..9 offsets 2", "power of zipf"),
        ("8 int64 0..9 offset", "looks like a tensor"),
        ({"shape": [8], "dtype": "int64", "values": "offset"}, "offset"),
        ({"shape": [8], "dtype": "int64", "alpha": 2}, "uniform"),
    ],
    ids=str,
)
def test_mistakes_in_the_values_of_indices_are_named(node: Any, words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        canonical(node)


@pytest.mark.parametrize(
    "written", ["8x64 float32 strides 1", "8x64 float32 strides 1x2x3", "9 int64 permutation strides 2"]
)
def test_strides_fit_the_shape(written: str) -> None:
    with pytest.raises(InvalidParameter, match="strides"):
        canonical(written)


def test_a_repeated_axis_takes_no_memory() -> None:
    ((_, spec),) = tensors("8x64 float32 strides 0x1", "args")
    assert (spec.nbytes, spec.span, spec.elements) == (256, 64, 512)
