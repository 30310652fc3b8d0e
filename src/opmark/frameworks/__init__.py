"""The backends that ship, described without importing a framework. The classes are loaded in worker processes."""

from opmark.schema.tensor import FLOATS, INTS

TORCH_DTYPES = frozenset({*FLOATS, *INTS, "bool", "float8_e4m3fn", "float8_e5m2"})
CUDA_DTYPES = TORCH_DTYPES | {"tfloat32"}
