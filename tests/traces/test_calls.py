"""Recorded calls in the words of workloads."""

from __future__ import annotations

import math

import pytest

from opmark.traces.calls import NotExpressible, pack_value, parse_schema, unpack_value, write_call
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
    assert schema.path == "torch.ops.aten.full.names"
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


def test_values_survive_the_way_to_another_process() -> None:
    values = [
        TensorRef((2,), "int64", strides=(3,), low=0, high=4),
        OpaqueValue("Device", "cpu"),
        [1, None],
        math.inf,
        "x",
    ]
    assert [unpack_value(pack_value(value)) for value in values] == values
