"""PARAM's data generators, which turn a spec into the arguments of a call.

A file names a generator, which is found through the entry-point group `opmark.param_generators`. It gets a spec from an
iterator and returns (args, kwargs) in opmark's notation (docs/any-function.md); nothing is allocated:

    def squares(spec, draw):
        '''A square matrix whose size is drawn.'''
        n = draw.integer(spec["smallest"], spec["largest"])
        return [f"{n}x{n} float32"], {}

`draw` has integer(low, high) and real(low, high), seeded by the name of the case. For an operator of the catalogue,
the kwargs are its parameters.
"""

from __future__ import annotations

from typing import Any, Protocol

from opmark.importers.param.arguments import Draw, Misfit, call_of, is_whole, parts, quote

GENERATOR_GROUP = "opmark.param_generators"
DEFAULT_GENERATOR = "PyTorch:DefaultDataGenerator"


class DataGenerator(Protocol):
    """The signature of generators, opmark's own and those of plug-ins."""

    def __call__(self, spec: Any, draw: Draw) -> tuple[list[Any], dict[str, Any]]: ...


def default_generator(spec: Any, draw: Draw) -> tuple[list[Any], dict[str, Any]]:
    return call_of(spec, draw)


def generate_lookups(spec: Any, draw: Draw) -> tuple[list[Any], dict[str, Any]]:
    """Return lookups in tables as parameters of `batched_embedding_bag`; PARAM always draws indices uniformly."""
    args, _ = parts(spec)
    if len(args) != 7:
        raise Misfit(".args", f"expected 7 arguments, got {len(args)}",
                     "they come from the SplitTableBatchedEmbeddingBagsCodegenInputIterator")  # fmt: skip
    from_file = next((key for key in ("indices_tensor", "offsets_tensor") if _has(args[4], key)), None)
    if from_file:
        raise Misfit(f".args[1].{from_file}", "opmark does not read lookups from a file", "leave it out to draw them")
    tables, bags = number(args[0], "num_tables"), number(args[3], "batch_size")
    rows, dim = one_size(args[1], "rows", tables), one_size(args[2], "dim", tables)
    return [], {
        "tables": tables,
        "rows": rows,
        "dim": dim,
        "bags": bags,
        "pooling": one_size(args[4], "pooling_factor", tables),
    }


def number(arg: Any, name: str) -> int:
    value: Any = arg.get("value") if isinstance(arg, dict) else None
    if not is_whole(value) or value < 1:
        raise Misfit("", f"`{name}`: expected a whole number of at least 1, got {quote(value)}")
    return int(value)


def one_size(arg: Any, name: str, tables: int) -> int:
    """Return the size of all tables from one number or a list of equal ones."""
    value = arg.get("value") if isinstance(arg, dict) else None
    if not isinstance(value, list):
        return number(arg, name)
    each = [number(item if isinstance(item, dict) else {"value": item}, name) for item in value]
    if len(each) < tables or len(set(each[:tables])) > 1:
        raise Misfit("", f"`{name}`: expected the same for each of {tables} tables, got {quote(each)}",
                     "batched_embedding_bag has tables of one size; write one config for each size")  # fmt: skip
    return each[0]


def _has(arg: Any, key: str) -> bool:
    return isinstance(arg, dict) and key in arg
