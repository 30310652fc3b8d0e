"""Cases as a config of PARAM: `8x64 float32 0..1` is {"type": "tensor", "dtype": "float", "shape": [8, 64]}."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from opmark.interop.param.arguments import usual_domain
from opmark.interop.param.calls import BAGS, MODELS, MODES, PRECISIONS, is_class, operator_name
from opmark.schema import Case
from opmark.schema.arguments import tensor_fields
from opmark.schema.tensor import is_float

Spec = dict[str, Any]

_DTYPES = {
    "float32": "float", "float64": "double", "float16": "float16", "bfloat16": "bfloat16", "int64": "long",
    "int32": "int", "int16": "int16", "int8": "int8", "uint8": "uint8", "bool": "bool",
}  # fmt: skip
_NETWORKS = {op: name for name, op in MODELS.items()}
_GENERATOR = "PyTorch:DefaultDataGenerator"
_TOOLS = {"build_data_generator": _GENERATOR, "input_data_generator": _GENERATOR}
_TABLES = {
    "build_iterator": "RangeConfigIterator",
    "input_iterator": f"{BAGS}InputIterator",
    "build_data_generator": _GENERATOR,
    "input_data_generator": f"{BAGS}InputDataGenerator",
}
_DOMAIN = "a tensor's values are described by `low`, `high` and `values`, which PARAM does not read"
_TRAINING = "modules in eval() mode: PARAM runs all modules in training mode"


class NotExpressible(Exception):
    """The reason why PARAM cannot express a case."""


class ParamSpecs(NamedTuple):
    """A case as PARAM writes it."""

    op: str
    build: Spec | None
    input: Spec
    tools: Mapping[str, str]
    """Iterators and generators of the operator."""
    lost: tuple[str, ...] = ()
    """Remarks about parts of the specs that PARAM ignores."""


def write_case(case: Case) -> ParamSpecs:
    """Write a case as specs; raise NotExpressible if PARAM cannot express it."""
    if case.op in ("batched_embedding_bag", "embedding_bag", "split_embedding_bag"):
        return _tables(case)
    if "args" not in case.params:
        raise NotExpressible("it is an operator of opmark's catalogue, with parameters and without arguments")
    writer = _Writer(case.wrt)
    build = case.params["build"]
    parts = build if isinstance(build, Mapping) or build is None else {"args": build}
    input_ = writer.spec(case.params, "")
    return ParamSpecs(
        _name(case.op),
        None if parts is None else writer.spec(parts, "build."),
        input_,
        _TOOLS if parts is not None else {"input_data_generator": _GENERATOR},
        (*((_DOMAIN,) if writer.narrowed else ()), *((_TRAINING,) if _runs_in_eval(case) else ())),
    )


def _runs_in_eval(case: Case) -> bool:
    build = case.params["build"]
    return is_class(case.op) and not (isinstance(build, Mapping) and build.get("train", False))


def _name(op: str) -> str:
    if op in _NETWORKS:
        return _NETWORKS[op]
    if op.startswith("aten::"):
        raise NotExpressible("PARAM needs its schema, which the case does not have")
    if not op.startswith("torch.") and ":" not in op:
        raise NotExpressible("PARAM calls only torch")
    method = f"torch.{op.removeprefix('torch.Tensor.')}"
    return method if operator_name(method) == op else op


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
        fields = tensor_fields(node) if isinstance(node, str) else None
        return _plain(node) if fields is None else self._tensor(fields, path)

    def _items(self, nodes: list[Any], path: str) -> list[Spec]:
        return [self._argument(item, f"{path}.{i}") for i, item in enumerate(nodes)]

    def _mapping(self, node: Mapping[str, Any], path: str) -> Spec:
        if set(node) == {"tuple"}:
            return {"type": "tuple", "value": self._items(node["tuple"], path)}
        if set(node) == {"value"} and isinstance(node["value"], str | int | float):
            return _plain(node["value"])
        raise NotExpressible(f"`{path}` is {'an element type' if set(node) == {'dtype'} else 'a mapping'}")

    def _tensor(self, fields: dict[str, Any], path: str) -> Spec:
        shape, dtype = fields["shape"], fields["dtype"]
        if dtype not in _DTYPES:
            raise NotExpressible(f"`{path}` is of {dtype}")
        if "strides" in fields:
            raise NotExpressible(f"`{path}` has strides")
        found: Spec = {"type": "tensor", "dtype": _DTYPES[dtype], "shape": shape}
        if not is_float(dtype) or (self._wrt and path not in self._wrt):
            found["requires_grad"] = False  # its default is true, and fails for whole numbers
        own: Spec = {key: fields[key] for key in ("low", "high", "values", "alpha") if key in fields}
        if own.get("values") != "zipf":
            own.pop("alpha", None)
        if own != dict(zip(("low", "high"), usual_domain(dtype, scalar=not shape), strict=True)):
            found |= own
            self.narrowed = True
        return found


def _plain(node: Any) -> Spec:
    return {"type": {bool: "bool", int: "int", float: "float", str: "str"}[type(node)], "value": node}


def _tables(case: Case) -> ParamSpecs:
    """Write tables of fbgemm; opmark's `embedding_bag` is used for a weighted table only."""
    p = case.params
    weighted = p.get("weighted", False)
    if case.op == "embedding_bag" and not weighted:
        raise NotExpressible("PARAM has it only as a table of batched_embedding_bag")
    precision = {dtype: name for name, dtype in PRECISIONS.items()}.get(p["dtype"])
    pooling = {mode: number for number, mode in MODES.items()}.get(p["mode"])
    if precision is None or pooling is None or (p.get("lengths", "fixed"), p["distribution"]) != ("fixed", "uniform"):
        raise NotExpressible(
            "PARAM has bags of equal length with uniform indices, fp32, fp16 or bf16, and sums or means"
        )
    tables = len(p["dims"]) if "dims" in p else p.get("tables", 1)
    sizes = [_plain(tables), _each(p["rows"], tables), _each(p.get("dims") or p["dim"], tables)]
    build = {"args": [*sizes, _plain(pooling), _plain(weighted), _plain(precision)],
             "kwargs": {"optimizer": _plain("exact_row_wise_adagrad")}}  # fmt: skip
    files = {f"{name}_tensor": p[f"{name}_file"] for name in ("indices", "offsets") if p.get(f"{name}_file")}
    return ParamSpecs(BAGS, build, {"args": [_plain(p["bags"]), {**_each(p["pooling"], tables), **files}]}, _TABLES)


def _each(value: int | list[int], tables: int) -> Spec:
    """Return one number for one table, and a list for several."""
    each = value if isinstance(value, list) else [value] * tables
    return _plain(each[0]) if tables == 1 else {"type": "genericlist", "value": [_plain(n) for n in each]}


# Cases as a config of PARAM: `{operator: {"config": [{"build": [...], "input": [...]}]}}`, without ranges.

# Operators that PARAM itself registers; others have to be registered with it.
_REGISTERED = frozenset(
    {
        "torch.add_", "torch.clamp_", "torch.add", "torch.baddbmm", "torch.bmm", "torch.cat", "torch.matmul",
        "torch.mean", "torch.mm", "torch.mul", "torch.reshape", "torch.nn.functional.relu",
        "torch.nn.AdaptiveAvgPool2d", "torch.nn.Conv2d", "torch.nn.Dropout", "torch.nn.MaxPool2d", "torch.nn.ReLU",
        "torch.nn.Linear", "pytorch.model.alex_net", "pytorch.model.resnet", "SplitTableBatchedEmbeddingBagsCodegen",
    }
)  # fmt: skip


class _Config:
    name = "param"
    summary = "a config of PARAM, with one spec per case"

    def files(self, name: str, cases: Sequence[Case]) -> tuple[Mapping[str, str], Sequence[str]]:
        by_operator: dict[str, list[ParamSpecs]] = {}
        lines: dict[str, None] = {}
        for case in _with_gradients(cases):
            try:
                found = write_case(case)
            except NotExpressible as reason:
                lines[f"{case.op}: {reason}"] = None
                continue
            by_operator.setdefault(found.op, []).append(found)
            lines.update(dict.fromkeys(found.lost))
        config = {op: {**points[0].tools, "config": list(_configs(points))} for op, points in by_operator.items()}
        unknown = [op for op in by_operator if op not in _REGISTERED]
        if unknown:
            lines[f"PARAM itself has no operator named {', '.join(unknown)}: register it there"] = None
        if any(case.phase != "forward" for case in cases):
            lines["phases: PARAM runs a backward pass with -b, and not by the file"] = None
        return {f"{name}.json": json.dumps(config, indent=2) + "\n"}, list(lines)


def _with_gradients(cases: Sequence[Case]) -> Iterable[Case]:
    """Yield one case for each choice of gradients, which only a backward case has, in the order of the file."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(json.dumps([case.op, case.params], sort_keys=True), []).append(case)
    for group in groups.values():
        yield from _choose_gradients(group)


def _choose_gradients(group: Sequence[Case]) -> Iterable[Case]:
    """Select cases of one call; a forward case stays for its sources that have no backward case."""
    backwards = {case.wrt: case for case in reversed(group) if case.phase != "forward"}
    covered = {source for case in backwards.values() for source in case.sources}
    order = {source: rank for rank, source in enumerate(dict.fromkeys(s for case in group for s in case.sources))}
    found = []
    for case in group:
        if case.phase != "forward":
            found += [case] if backwards[case.wrt] is case else []
        elif not backwards or set(case.sources) - covered:
            found.append(replace(case, sources=tuple(source for source in case.sources if source not in covered)))
    return sorted(found, key=lambda case: order[case.sources[0]] if case.sources else 0)


def _configs(points: Iterable[ParamSpecs]) -> Iterable[dict[str, Any]]:
    """Yield configs: neighbours with the same build share one, and the same input of two phases is written once."""
    for build, group in groupby(points, key=lambda point: point.build):
        inputs = {json.dumps(point.input, sort_keys=True): point.input for point in group}
        yield {**({} if build is None else {"build": [build]}), "input": list(inputs.values())}


PARAM = _Config()
