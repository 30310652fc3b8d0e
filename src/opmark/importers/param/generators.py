"""PARAM's data generators: what a spec means as arguments of a call.

A generator is had by its name in the file, through the entry-point group `opmark.param_generators`. It gets a spec as
an iterator made it and gives (args, kwargs) in opmark's notation (docs/any-function.md); nothing is allocated:

    def squares(spec, draw):
        '''A square matrix whose size is drawn.'''
        n = draw.integer(spec["smallest"], spec["largest"])
        return [f"{n}x{n} float32"], {}

`draw` has integer(low, high) and real(low, high), seeded by the name of the case. For an operator of the catalogue,
kwargs are its parameters.
"""

from __future__ import annotations

from typing import Any, Protocol

from opmark.importers.param.arguments import Draw, Misfit, call_of, is_whole, parts, shown

GROUP = "opmark.param_generators"
DEFAULT = "PyTorch:DefaultDataGenerator"


class DataGenerator(Protocol):
    """How a stranger's looks, and ours."""

    def __call__(self, spec: Any, draw: Draw) -> tuple[list[Any], dict[str, Any]]: ...


def default(spec: Any, draw: Draw) -> tuple[list[Any], dict[str, Any]]:
    return call_of(spec, draw)


def embedding_tables(spec: Any, draw: Draw) -> tuple[list[Any], dict[str, Any]]:
    """Lookups in tables, as parameters of `batched_embedding_bag`. PARAM draws indices uniformly, always."""
    args, _ = parts(spec)
    if len(args) != 7:
        raise Misfit(".args", f"expected 7 arguments, got {len(args)}",
                     "they come from the SplitTableBatchedEmbeddingBagsCodegenInputIterator")  # fmt: skip
    from_file = next((key for key in ("indices_tensor", "offsets_tensor") if _has(args[4], key)), None)
    if from_file:
        raise Misfit(f".args[1].{from_file}", "lookups from a file are not read here", "leave it out: they are drawn")
    tables, bags = number(args[0], "num_tables"), number(args[3], "batch_size")
    rows, dim = same(args[1], "rows", tables), same(args[2], "dim", tables)
    return [], {
        "tables": tables,
        "rows": rows,
        "dim": dim,
        "bags": bags,
        "pooling": same(args[4], "pooling_factor", tables),
    }


def number(arg: Any, name: str) -> int:
    value: Any = arg.get("value") if isinstance(arg, dict) else None
    if not is_whole(value) or value < 1:
        raise Misfit("", f"`{name}`: expected a whole number of at least 1, got {shown(value)}")
    return int(value)


def same(arg: Any, name: str, tables: int) -> int:
    """What all tables have: one number, or a list of equal ones."""
    value = arg.get("value") if isinstance(arg, dict) else None
    if not isinstance(value, list):
        return number(arg, name)
    each = [number(item if isinstance(item, dict) else {"value": item}, name) for item in value]
    if len(each) < tables or len(set(each[:tables])) > 1:
        raise Misfit("", f"`{name}`: expected the same for each of {tables} tables, got {shown(each)}",
                     "batched_embedding_bag has tables of one size; give each size a config of its own")  # fmt: skip
    return each[0]


def _has(arg: Any, key: str) -> bool:
    return isinstance(arg, dict) and key in arg
