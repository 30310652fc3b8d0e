"""Recorded calls in the words of workloads."""

from __future__ import annotations

import pytest

from opmark.models.call_schema import parse_schema
from opmark.traces.calls import NotExpressible, torch_call, write_call
from opmark.traces.trace import OpaqueValue, TensorRef

CONV = (
    "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], SymInt[2] padding=[0, 0], "
    "SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor"
)
EMPTY = (
    "aten::full.names(int[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor"
)
IMAGE, WEIGHT = TensorRef((2, 3, 8, 8), "float32"), TensorRef((4, 3, 3, 3), "float32", strides=(27, 9, 3, 1))


def test_schemas_are_parsed_with_defaults_and_arguments_by_name() -> None:
    schema = parse_schema(EMPTY)
    assert schema is not None
    assert schema.full_name == "full.names"
    assert [one.by_name for one in schema.arguments] == [False, False, True, True, True, True]
    assert schema.arguments[2].kind == "ScalarType?"
    nested = parse_schema("aten::f(Tensor(a!)[] self, (int, int) pair, str mode='a,b') -> ()")
    assert nested is not None
    assert [one.name for one in nested.arguments][:2] == ["self", "pair"]
    assert parse_schema("no schema") is None


def test_defaults_at_the_end_are_left_out() -> None:
    schema = parse_schema(CONV)
    assert schema is not None
    plain = write_call(schema, [IMAGE, WEIGHT, None, [1, 1], [0, 0], [1, 1], 1])
    assert len(plain.args) == 2
    assert plain.args[0].strides == (192, 64, 8, 1)
    padded = write_call(schema, [IMAGE, WEIGHT, None, [1, 1], [1, 1], [1, 1], 1])
    assert padded.args[2:] == [None, [1, 1], [1, 1]]


def test_element_types_are_named_and_places_are_left_out() -> None:
    schema = parse_schema(EMPTY)
    assert schema is not None
    call = write_call(schema, [[2, 3], 1.5, 5, None, OpaqueValue("Device", "cuda:0"), False])
    assert call.args == [[2, 3], 1.5]
    assert call.kwargs == {"dtype": {"dtype": "float16"}}


def test_what_a_workload_cannot_write_is_named() -> None:
    schema = parse_schema("aten::f(Tensor self, Stream s) -> ()")
    assert schema is not None
    with pytest.raises(NotExpressible, match="`s` is a Stream"):
        write_call(schema, [IMAGE, OpaqueValue("Stream")])
    with pytest.raises(NotExpressible, match="uint16"):
        write_call(schema, [TensorRef((2,), "uint16"), None])
    for inputs in ([IMAGE], [IMAGE, None]):
        with pytest.raises(NotExpressible, match="`s` was not recorded"):
            write_call(schema, inputs)


def test_indices_stay_inside_and_recorded_ones_are_kept() -> None:
    schema = "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor"
    table = TensorRef((10, 4), "float32")
    for low, high, text in ((None, None, "3 int64"), (2, 5, "3 int64 2..6"), (2, 20, "3 int64")):
        index = TensorRef((3,), "int64", low=low, high=high)
        assert torch_call(schema, [table, 0, index]).args == ["10x4 float32", 0, text]
    assert torch_call(schema, [TensorRef((5, 4), "float32"), 1, TensorRef((3,), "int64")]).args[2] == "3 int64 0..4"


def test_schemas_that_cannot_be_read_are_named() -> None:
    with pytest.raises(NotExpressible, match="schema"):
        torch_call("what is this", [])
