"""Build ONNX models node by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from opmark.errors import Unsupported
from opmark.plugin import Implementation, Params

OPSET = 21
"""Opset that every engine here reads."""
_IR = 10

_TRUTHS = ["And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"]
_TYPES: dict[str, str | int | tuple[str | int, ...]] = {
    **dict.fromkeys(_TRUTHS, "bool"),
    **dict.fromkeys(("ArgMax", "ArgMin", "NonZero", "Shape", "Size"), "int64"),
    **dict.fromkeys(("MaxPool", "TopK"), (0, "int64")),
    **dict.fromkeys(("CastLike", "DequantizeLinear", "Where"), 1),
    **dict.fromkeys(("OneHot", "QuantizeLinear"), 2),
    **dict.fromkeys(("ConvInteger", "MatMulInteger"), "int32"),
    "DynamicQuantizeLinear": ("uint8", "float32", "uint8"),
}
"""Output type of a node if it is not that of its first input: a type, or the index of the input that has it."""


class GraphBuilder:
    """Adds nodes to a model: `g.Softmax(x, axis=1)` adds one and returns the name of its output.

    `outputs=2` returns a tuple of names. A number among the inputs becomes a constant of the type of the tensor beside
    it, a list becomes a constant of integers (a shape, axes). An input that is left out is "".
    """

    def __init__(self, inputs: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
        self._dtypes = {name: dtype for name, (_, dtype) in inputs.items()}
        self._shapes = {name: shape for name, (shape, _) in inputs.items()}
        self._numbers = count()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.opset = OPSET

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        if kind.startswith("_"):
            raise AttributeError(kind)

        def draw(*inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
            from onnx import helper

            sources = self._sources(kind, inputs)
            if sources and sources[0] and self._dtypes[sources[0]] == "float64":
                _refuse_rounded(kind, attributes)
            names = [f"{kind}_{next(self._numbers)}" for _ in range(outputs)]
            for i, name in enumerate(names):
                self._dtypes[name] = self._output_dtype(kind, i, sources, attributes)
            if kind == "Cast":
                attributes["to"] = element_type(attributes["to"])
            self.nodes.append(helper.make_node(kind, sources, names, domain=domain, **attributes))
            return names[0] if outputs == 1 else tuple(names)

        return draw

    def dtype(self, name: str) -> str:
        """Return the element type of an input of the model or of a node's output."""
        return self._dtypes[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an input of the model."""
        return self._shapes[name]

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """Add a constant to the model."""
        import numpy as np
        from onnx import helper

        kind = element_type(dtype)
        array = np.asarray(value).astype(helper.tensor_dtype_to_np_dtype(kind))
        name = f"constant_{next(self._numbers)}"
        self.constants.append(helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True))
        self._dtypes[name] = dtype
        return name

    def typed(self, name: str, dtype: str) -> str:
        """Declare the type of an output that does not follow from the inputs of its node."""
        self._dtypes[name] = dtype
        return name

    def _sources(self, kind: str, inputs: tuple[Any, ...]) -> list[str]:
        """Return the inputs by name, after making constants of the other values."""
        like = [name for name in inputs[1 if kind == "Where" else 0 :] if isinstance(name, str) and name]
        return [
            one if isinstance(one, str)
            else self.constant(one, self._dtypes[like[0]] if isinstance(one, int | float) else "int64")
            for one in inputs
        ]  # fmt: skip

    def _output_dtype(self, kind: str, place: int, sources: list[str], attributes: Mapping[str, Any]) -> str:
        if kind == "Cast":
            return str(attributes["to"])
        rule = _TYPES.get(kind, 0)
        rule = rule[place] if isinstance(rule, tuple) else rule
        return rule if isinstance(rule, str) else self._dtypes[sources[rule]] if sources else ""


def _refuse_rounded(kind: str, attributes: Mapping[str, Any]) -> None:
    """Refuse attributes that float32 would round, as ONNX stores them so. The rounding of an epsilon does not
    matter."""
    from struct import pack, unpack

    for name, value in attributes.items():
        if name != "epsilon" and isinstance(value, float) and unpack("f", pack("f", value))[0] != value:
            raise Unsupported(f"{name}={value:g} of ONNX's {kind} would be rounded to float32")


def element_type(dtype: str) -> int:
    from onnx import TensorProto

    named = {"float32": "FLOAT", "float64": "DOUBLE", "float8_e4m3fn": "FLOAT8E4M3FN", "float8_e5m2": "FLOAT8E5M2"}
    return int(getattr(TensorProto, named.get(dtype, dtype.upper())))


@dataclass(frozen=True)
class Graph:
    """A model that is built once the shapes and types of its inputs are known."""

    draw: Callable[..., Any]
    """draw(g, p, **names of the inputs) returns the name of the output, or a tuple of names."""
    params: Params

    def model(self, inputs: Mapping[str, tuple[tuple[int, ...], str]]) -> Any:
        """Return an onnx.ModelProto with outputs y0, y1, ...; `inputs` holds (shape, dtype) by name."""
        from onnx import helper

        pen = GraphBuilder(inputs)
        drawn = self.draw(pen, self.params, **{name: name for name in inputs})
        outputs = drawn if isinstance(drawn, tuple) else (drawn,)
        for i, name in enumerate(outputs):
            pen.nodes.append(helper.make_node("Identity", [name], [f"y{i}"]))
        graph = helper.make_graph(
            _drop_renaming_nodes(pen.nodes, len(outputs)),
            "operator",
            [helper.make_tensor_value_info(name, element_type(d), list(s)) for name, (s, d) in inputs.items()],
            [helper.make_empty_tensor_value_info(f"y{i}") for i in range(len(outputs))],
            initializer=pen.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", pen.opset)], ir_version=_IR)


def _drop_renaming_nodes(nodes: list[Any], outputs: int) -> list[Any]:
    """Remove nodes that only rename an output, if the node that makes it can use the name itself."""
    body, names = nodes[:-outputs], nodes[-outputs:]
    for naming in names:
        (source,), (target,) = naming.input, naming.output
        makers = [node for node in body if source in node.output]
        used = [node for node in nodes if source in node.input and node is not naming]
        if not makers or used:  # it is an input, or other nodes read it too
            body.append(naming)
            continue
        place = list(makers[0].output).index(source)
        makers[0].output[place] = target
    return body


def graph(draw: Callable[..., Any], path: str = "", name: str = "") -> Implementation:
    """Make an implementation of several nodes from draw(g, p, **names)."""
    return Implementation("onnx", lambda p, **tensors: Graph(draw, p), name, path)


def node(kind: str, *inputs: str, fixed: Mapping[str, Any] | None = None, **params: str) -> Implementation:
    """Make an implementation of one node: `node("Softmax", "x", axis="axis")`."""
    always = dict(fixed or {})

    def draw(g: GraphBuilder, p: Params, **names: str) -> Any:
        attributes = {attribute: p[name] for attribute, name in params.items()}
        return getattr(g, kind)(*(names[name] for name in inputs), **attributes, **always)

    return graph(draw, path=f"onnx.{kind}")
