"""One case in PARAM's words: `8x64 float32 0..1` is {"type": "tensor", "dtype": "float", "shape": [8, 64]}."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from opmark.importers.param.arguments import usual_domain
from opmark.importers.param.operators import MODELS, name_here
from opmark.importers.param.tables import BAGS, MODES, PRECISIONS
from opmark.schema import Case, TensorSpec
from opmark.schema.arguments import tensors
from opmark.schema.dtype import is_float

Spec = dict[str, Any]

_DTYPES = {
    "float32": "float", "float64": "double", "float16": "float16", "bfloat16": "bfloat16", "int64": "long",
    "int32": "int", "int16": "int16", "int8": "int8", "uint8": "uint8", "bool": "bool",
}  # fmt: skip
_NETWORKS = {here: there for there, here in MODELS.items()}
_GENERATOR = "PyTorch:DefaultDataGenerator"
_TOOLS = {"build_data_generator": _GENERATOR, "input_data_generator": _GENERATOR}
_TABLES = {
    "build_iterator": "RangeConfigIterator",
    "input_iterator": f"{BAGS}InputIterator",
    "build_data_generator": _GENERATOR,
    "input_data_generator": f"{BAGS}InputDataGenerator",
}
_DOMAIN = "the domain of a tensor's values is written as `low` and `high`, which PARAM does not read"


class Unsaid(Exception):
    """A case that PARAM has no words for, and why."""


class Written(NamedTuple):
    """A case in PARAM's words."""

    op: str
    build: Spec | None
    input: Spec
    tools: Mapping[str, str]
    """Of the operator: its iterators and generators."""
    lost: tuple[str, ...] = ()
    """What PARAM will read over."""


def written(case: Case) -> Written:
    """Unsaid where PARAM has no words for it."""
    if case.op in ("batched_embedding_bag", "embedding_bag"):
        return _tables(case)
    if "args" not in case.params:
        raise Unsaid("an operator of opmark's catalogue, which has parameters and no arguments")
    writer = _Writer(case.wrt)
    build = case.params["build"]
    parts = build if isinstance(build, Mapping) or build is None else {"args": build}
    input_ = writer.spec(case.params, "")
    return Written(
        _name(case.op),
        None if parts is None else writer.spec(parts, "build."),
        input_,
        _TOOLS if parts is not None else {"input_data_generator": _GENERATOR},
        (_DOMAIN,) if writer.narrowed else (),
    )


def _name(op: str) -> str:
    if op in _NETWORKS:
        return _NETWORKS[op]
    if op.startswith("aten::"):
        raise Unsaid("PARAM wants its schema too, which the case does not hold")
    if not op.startswith("torch.") and ":" not in op:
        raise Unsaid("PARAM calls torch alone")
    method = f"torch.{op.removeprefix('torch.Tensor.')}"
    return method if name_here(method) == op else op


class _Writer:
    def __init__(self, wrt: tuple[str, ...]) -> None:
        self._wrt = wrt
        self.narrowed = False
        """Whether a tensor has a domain that PARAM would not draw from."""

    def spec(self, parts: Mapping[str, Any], prefix: str) -> Spec:
        found: Spec = {"args": [self._argument(n, f"{prefix}args.{i}") for i, n in enumerate(parts.get("args", []))]}
        if parts.get("kwargs"):
            found["kwargs"] = {n: self._argument(v, f"{prefix}kwargs.{n}") for n, v in parts["kwargs"].items()}
        return found

    def _argument(self, node: Any, path: str) -> Spec:
        if node is None:
            return {"type": "none"}
        if isinstance(node, list):
            return {"type": "genericlist", "value": self._items(node, path)}
        if isinstance(node, Mapping):
            return self._mapping(node, path)
        spec = next((found for _, found in tensors(node, path)), None) if isinstance(node, str) else None
        return _plain(node) if spec is None else self._tensor(spec, path)

    def _items(self, nodes: list[Any], path: str) -> list[Spec]:
        return [self._argument(item, f"{path}.{i}") for i, item in enumerate(nodes)]

    def _mapping(self, node: Mapping[str, Any], path: str) -> Spec:
        if set(node) == {"tuple"}:
            return {"type": "tuple", "value": self._items(node["tuple"], path)}
        if set(node) == {"value"} and isinstance(node["value"], str | int | float):
            return _plain(node["value"])
        raise Unsaid(f"`{path}` is {'an element type' if set(node) == {'dtype'} else 'a mapping'}")

    def _tensor(self, spec: TensorSpec, path: str) -> Spec:
        if spec.dtype not in _DTYPES:
            raise Unsaid(f"`{path}` is of {spec.dtype}")
        found: Spec = {"type": "tensor", "dtype": _DTYPES[spec.dtype], "shape": list(spec.shape)}
        if not is_float(spec.dtype) or (self._wrt and path not in self._wrt):
            found["requires_grad"] = False  # PARAM asks it of whole numbers too, and fails
        if (spec.low, spec.high) != usual_domain(spec.dtype, scalar=not spec.shape):
            found |= {"low": spec.low, "high": spec.high}
            self.narrowed = True
        return found


def _plain(node: Any) -> Spec:
    return {"type": {bool: "bool", int: "int", float: "float", str: "str"}[type(node)], "value": node}


def _tables(case: Case) -> Written:
    """As fbgemm has them; only one that is weighted is an `embedding_bag` here."""
    p = case.params
    weighted = p.get("weighted", False)
    if case.op == "embedding_bag" and not weighted:
        raise Unsaid("PARAM has it as one of the tables of batched_embedding_bag")
    precision = {here: there for there, here in PRECISIONS.items()}.get(p["dtype"])
    pooling = {here: there for there, here in MODES.items()}.get(p["mode"])
    if precision is None or pooling is None or (p["lengths"], p["distribution"]) != ("fixed", "uniform"):
        raise Unsaid("PARAM looks up as many rows a bag, all alike, in fp32, fp16 or bf16, and takes a sum or a mean")
    tables = p.get("tables", 1)
    sizes = [_plain(tables), *(_repeated(p[name], tables) for name in ("rows", "dim"))]
    build = {"args": [*sizes, _plain(pooling), _plain(weighted), _plain(precision)],
             "kwargs": {"optimizer": _plain("exact_row_wise_adagrad")}}  # fmt: skip
    return Written(BAGS, build, {"args": [_plain(p["bags"]), _repeated(p["pooling"], tables)]}, _TABLES)


def _repeated(value: int, tables: int) -> Spec:
    """One number for one table, a list for several."""
    return _plain(value) if tables == 1 else {"type": "genericlist", "value": [_plain(value)] * tables}
