from opmark.plugin import BackendInfo
from opmark.schema.tensor import INTS

_NUMPY_DTYPES = frozenset({"float64", "float32", "float16", *INTS, "bool"})

NUMPY_CPU = BackendInfo(
    name="numpy-cpu",
    framework="numpy",
    device="cpu",
    summary="NumPy and SciPy",
    dtypes=_NUMPY_DTYPES,
    loads="opmark.frameworks.numpy.backend:NumpyBackend",
    requires="numpy",
    shares="opmark.frameworks.numpy.shared:SharedArrays",
)
