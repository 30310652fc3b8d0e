"""opperf's inputs beside shapes: parts of axes, transposed operands, tensors that have to fit each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.interop.opperf.class_inputs import CLASSES, class_meaning, complete_inputs
from opmark.interop.opperf.importer import OPPERF
from opmark.schema import Entry, Imported


def read(name: str, **inputs: Any) -> Imported:
    return OPPERF.read(Path("mine.json"), {"ops": name, "inputs": [inputs], "run_backward": False}, 0)


def one(name: str, **inputs: Any) -> Entry:
    found = read(name, **inputs)
    assert found.problems == ()
    return found.entries[0]


def why_not(name: str, **inputs: Any) -> str:
    found = read(name, **inputs)
    assert found.entries == ()
    (problem,) = found.problems
    assert problem.where == "mine.json: $.inputs[0]"
    assert f"`{name}`" in problem.message
    return problem.message


def notes(name: str, **inputs: Any) -> tuple[str, ...]:
    found = read(name, **inputs)
    assert found.problems == ()
    return found.notes


@given(st.data())
def test_a_part_of_an_axis_is_what_python_slices(data: st.DataObject) -> None:
    """A slice that does not exist as a whole is refused, and never wrapped or cut."""
    shape = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    begin, end = (data.draw(st.none() | st.integers(-12, 12)) for _ in range(2))
    size = shape[axis]
    whole = all(place is None or -size <= place <= size for place in (begin, end))
    expected = list(range(size))[begin:end] if whole else []
    found = read("slice_axis", data=shape, axis=axis, begin=begin, end=end)
    if not expected:
        assert found.entries == ()
        assert "`begin`, `end`: expected a part of axis" in found.problems[0].message
        return
    params = found.entries[0].params
    assert list(range(params["begin"], params["end"])) == expected
    assert params["axis"] == axis % len(shape)


@pytest.mark.parametrize(
    ("begin", "end", "part"),
    [
        ([0, 1], [10, 3], (1, 1, 3)),
        ([None, 1], [None, None], (1, 1, 4)),
        ([2, 0], [-1, None], (0, 2, 9)),
        (2, None, (0, 2, 10)),
        ([0], [10], (0, 0, 10)),
    ],
)
def test_a_slice_of_several_axes_cuts_one(begin: Any, end: Any, part: tuple[int, int, int]) -> None:
    params = one("slice", data=[10, 4], begin=begin, end=end).params
    assert (params["axis"], params["begin"], params["end"]) == part


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"begin": 0, "end": 15}, "expected a part of axis 0, 0 to 10, got 0 to 15"),
        ({"begin": 12, "end": 15}, "got 12 to 15"),
        ({"begin": 3, "end": 0}, "got 3 to 0"),
        ({"begin": [1, 1], "end": [5, 3]}, "`end`: expected a part of one axis"),
        ({"begin": [1, 1], "end": [5]}, "expected one of each per axis"),
        ({"begin": [0, 0, 0], "end": [1, 1, 1]}, "expected one of each per axis"),
        ({"begin": "0", "end": 1}, "`begin`: expected whole numbers"),
        ({"begin": 0, "end": 1, "axis": 2}, "`axis`: expected axes of [10, 4], each once, got [2]"),
    ],
)
def test_parts_that_do_not_exist_are_refused(inputs: dict[str, Any], message: str) -> None:
    assert message in why_not("slice", data=[10, 4], **inputs)


@pytest.mark.parametrize(("like", "axes"), [([12, 4], None), ([5, 2], None), ([5], None), ([5, 4], [2])])
def test_slice_like_needs_one_shorter_axis(like: list[int], axes: Any) -> None:
    assert "expected" in why_not("slice_like", data=[10, 4], shape_like=like, axes=axes)


@pytest.mark.parametrize("name", ["sum", "mean", "norm", "argmax"])
@pytest.mark.parametrize("axis", [2, -3, [0, 2], [0, -2], [0, 0, 1], "0", [None]])
def test_axes_that_do_not_exist_are_refused(name: str, axis: Any) -> None:
    assert "`axis`: expected" in why_not(name, data=[64, 32], axis=axis)


def test_axes_of_moments_exist_and_are_the_last() -> None:
    assert one("moments", data=[4, 5, 6], axes=[-1, 1]).params["axes"] == 2
    for axes in ([3], [0], [2, -1], [-4]):
        assert "`axes`: expected" in why_not("moments", data=[4, 5, 6], axes=axes)


def test_no_axes_are_all_of_them() -> None:
    assert one("sum", data=[64, 32], axis=[]).params == {"shape": [2048], "axis": 0}
    assert one("sum", data=[64, 32], axis=[0, -1]).params == {"shape": [2048], "axis": 0}


@pytest.mark.parametrize(
    ("name", "tensors", "option"),
    [
        ("dot", {"lhs": [4, 2], "rhs": [4, 3]}, "transpose_a"),
        ("dot", {"a": [4, 2], "b": [4, 3]}, "transpose_a"),
        ("batch_dot", {"lhs": [5, 2, 4], "rhs": [5, 3, 4]}, "transpose_b"),
        ("linalg_gemm2", {"A": [2, 4], "B": [3, 4]}, "transpose_b"),
    ],
)
def test_transposed_operands_are_noted(name: str, tensors: dict[str, Any], option: str) -> None:
    params = one(name, **tensors, **{option: True}).params
    assert (params["M"], params["K"], params["N"]) == (2, 4, 3)
    assert f"{name}: `{option}`: the operand has the transposed shape here" in notes(name, **tensors, **{option: 1})
    assert "expected true or false" in why_not(name, **tensors, **{option: "yes"})


def test_operands_that_are_not_transposed_need_no_note() -> None:
    assert notes("dot", lhs=[2, 4], rhs=[4, 3], transpose_a=False) == ()


def test_a_class_notes_transposed_operands_too() -> None:
    found = class_meaning(CLASSES["Dot"], complete_inputs(CLASSES["Dot"], {"transpose_a": True}))
    assert found.notes == ("`transpose_a`: the operand has the transposed shape here",)


CONVOLUTION = {"data": [2, 6, 9, 9], "kernel": [3, 3], "num_filter": 8, "num_group": 2}


@pytest.mark.parametrize(
    ("name", "weight", "fits"),
    [
        ("Convolution", [8, 3, 3, 3], True),
        ("Convolution", [16, 3, 3, 3], False),
        ("Convolution", [8, 3, 5, 5], False),
        ("Convolution", [8, 6, 3, 3], False),
        ("Convolution", [8, 3, 3], False),
        ("Deconvolution", [6, 4, 3, 3], True),
        ("Deconvolution", [6, 8, 3, 3], False),
        ("Deconvolution", [5, 4, 3, 3], False),
    ],
)
def test_weights_fit_the_convolution(name: str, weight: list[int], fits: bool) -> None:
    if fits:
        assert one(name, **CONVOLUTION, weight=weight, bias=[8]).params["out_channels"] == 8
    else:
        assert why_not(name, **CONVOLUTION, weight=weight)
    assert why_not(name, **CONVOLUTION, bias=[9])


def test_weights_alone_determine_the_sizes() -> None:
    params = one("Convolution", data=[2, 6, 9, 9], weight=[8, 6, 5, 5]).params
    assert (params["out_channels"], params["kernel"]) == (8, [5, 5])
    params = one("Deconvolution", data=[2, 6, 9, 9], weight=[6, 8, 5, 5]).params
    assert (params["out_channels"], params["kernel"]) == (8, [5, 5])


def test_a_convolution_without_bias_is_the_same_here() -> None:
    assert notes("Convolution", **CONVOLUTION) == ("Convolution: measured without the bias that opperf adds",)
    assert notes("Convolution", **CONVOLUTION, no_bias=True) == ()


@pytest.mark.parametrize(
    ("name", "more", "fitting", "wrong"),
    [
        ("BatchNorm", {}, [3], [5]),
        ("BatchNorm", {}, [3], [3, 1]),
        ("InstanceNorm", {}, [3], [4]),
        ("GroupNorm", {"num_groups": 1}, [1], [2]),
        ("GroupNorm", {"num_groups": 1}, [3], [4]),
        ("LayerNorm", {}, [6], [3]),
        ("LayerNorm", {"axis": 0}, [8], [6]),
    ],
)
def test_weights_fit_the_normalization(name: str, more: dict[str, Any], fitting: list[int], wrong: list[int]) -> None:
    data = [8, 3, 4, 6]
    assert one(name, data=data, gamma=fitting, beta=fitting, **more)
    assert why_not(name, data=data, gamma=wrong, **more)
    assert why_not(name, data=data, gamma=fitting, beta=wrong, **more)


def test_a_condition_per_row_is_noted() -> None:
    assert notes("where", x=[4, 2], y=[4, 2], condition=[4, 2]) == ()
    (note,) = notes("where", x=[4, 2], y=[4, 2], condition=[4])
    assert note.startswith("where: `condition` has one value per element here, [4, 2]")
    assert "expected [4, 2] or [4], got [99]" in why_not("where", x=[4, 2], y=[4, 2], condition=[99])


@pytest.mark.parametrize(
    ("name", "inputs", "option"),
    [
        ("topk", {"data": [4, 8], "ret_typ": "mask"}, "ret_typ"),
        ("softmax", {"data": [4, 8], "dtype": "float16"}, "dtype"),
        ("Dropout", {"data": [4, 8], "p": 0.5, "axes": [0]}, "axes"),
        ("Deconvolution", {"data": [2, 6, 9, 9], "num_filter": 8, "target_shape": [9, 9]}, "target_shape"),
        ("RNN", {"data": [5, 4, 3], "mode": "lstm", "state_size": 6, "p": 0.5}, "p"),
    ],
)
def test_ignored_options_are_noted(name: str, inputs: dict[str, Any], option: str) -> None:
    assert f"{name}: `{option}` is ignored" in notes(name, **inputs)


@pytest.mark.parametrize("name", ["Dense", "Conv2D"])
def test_an_activation_of_a_layer_is_refused(name: str) -> None:
    data = {name: {"inputs": {"activation": "relu"}}}
    (problem,) = OPPERF.read(Path("mine.json"), data, 0).problems
    assert problem.message == "`activation`: opmark cannot measure relu"
    assert problem.where == f"mine.json: $.{name}.inputs"
    assert "leave `activation` out" in problem.hint
