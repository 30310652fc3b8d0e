"""Lists the parts of the frameworks that compute: what a file of somebody else may call without being a program."""

from __future__ import annotations

from collections.abc import Collection, Iterable

FUNCTIONS = frozenset({
    "torch", "torch.Tensor", "torch.fft", "torch.linalg", "torch.nested", "torch.nn.functional", "torch.nn.init",
    "torch.nn.quantized.functional", "torch.nn.utils.rnn", "torch.signal.windows", "torch.sparse", "torch.special",
    "numpy", "numpy.fft", "numpy.linalg", "numpy.random",
    "scipy.fft", "scipy.linalg", "scipy.ndimage", "scipy.signal", "scipy.special",
    "jax.image", "jax.lax", "jax.lax.linalg", "jax.nn", "jax.numpy", "jax.numpy.fft", "jax.numpy.linalg", "jax.ops",
    "jax.random", "jax.scipy.fft", "jax.scipy.linalg", "jax.scipy.ndimage", "jax.scipy.signal", "jax.scipy.special",
    "tensorflow", "tensorflow.bitwise", "tensorflow.experimental.numpy", "tensorflow.image",
    "tensorflow.keras.activations", "tensorflow.keras.losses", "tensorflow.keras.ops", "tensorflow.linalg",
    "tensorflow.math", "tensorflow.math.special", "tensorflow.nn", "tensorflow.random", "tensorflow.signal",
    "tensorflow.sparse",
    "mxnet.np", "mxnet.np.linalg", "mxnet.np.random", "mxnet.npx",
})  # fmt: skip
"""Modules and classes whose functions compute. A name that begins with a capital letter is none of these functions:
such classes hold files, streams and programs."""

CLASSES = frozenset({
    "torch.nn", "torch.nn.quantized", "tensorflow.keras.layers",
    "mxnet.gluon.loss", "mxnet.gluon.nn", "mxnet.gluon.rnn",
    "mxnet.nd", "mxnet.nd.contrib", "mxnet.nd.image", "mxnet.nd.linalg", "mxnet.nd.op", "mxnet.nd.random",
    "mxnet.nd.sparse",
})  # fmt: skip
"""Modules whose classes compute too; MXNet writes functions such as `mxnet.nd.Pooling` with a capital letter."""

NAMESPACES = frozenset({
    "torch.ops.aten", "torch.ops.fbgemm", "torch.ops.mkl", "torch.ops.mkldnn", "torch.ops.onednn", "torch.ops.prims",
    "torch.ops.quantized", "torch.ops.torchvision",
})  # fmt: skip
"""Namespaces of torch's operators. An operator may have overloads, and may begin with an underscore."""

MODELS = frozenset({
    "opmark.interop.param.driver.LinearTraining", "opmark.interop.param.library.AlexNet",
    "opmark.interop.param.library.ResNet",
})  # fmt: skip
"""Models of opmark that stand for those of other systems."""

NOT_COMPUTING = (
    "torch.classes", "torch.compile", "torch.distributed", "torch.export", "torch.fork", "torch.from_file", "torch.hub",
    "torch.import_ir_module", "torch.import_ir_module_from_buffer", "torch.jit", "torch.load", "torch.multiprocessing",
    "torch.onnx", "torch.ops.aten.from_file", "torch.ops.aten.save", "torch.ops.load_library", "torch.package",
    "torch.parse_ir", "torch.save", "torch.serialization", "torch.storage", "torch.testing", "torch.utils",
    "numpy.DataSource", "numpy.ctypeslib", "numpy.distutils", "numpy.f2py", "numpy.fromfile", "numpy.fromregex",
    "numpy.genfromtxt", "numpy.info", "numpy.load", "numpy.loadtxt", "numpy.lookfor", "numpy.memmap",
    "numpy.ndarray.dump", "numpy.ndarray.tofile", "numpy.recfromcsv", "numpy.recfromtxt", "numpy.save", "numpy.savetxt",
    "numpy.savez", "numpy.savez_compressed", "numpy.source", "numpy.testing",
    "scipy.datasets", "scipy.io",
    "jax.distributed", "jax.experimental", "jax.ffi", "jax.numpy.fromfile", "jax.numpy.load", "jax.numpy.save",
    "jax.numpy.savez", "jax.profiler", "jax.tools",
    "tensorflow.data", "tensorflow.import_graph_def", "tensorflow.io", "tensorflow.keras.activations.deserialize",
    "tensorflow.keras.activations.get",
    "tensorflow.keras.layers.IntegerLookup", "tensorflow.keras.layers.Lambda", "tensorflow.keras.layers.StringLookup",
    "tensorflow.keras.layers.TFSMLayer", "tensorflow.keras.layers.TextVectorization",
    "tensorflow.keras.layers.deserialize", "tensorflow.keras.losses.deserialize", "tensorflow.keras.losses.get",
    "tensorflow.keras.models", "tensorflow.keras.utils", "tensorflow.load_library", "tensorflow.load_op_library",
    "tensorflow.numpy_function", "tensorflow.print", "tensorflow.py_function", "tensorflow.saved_model",
    "tensorflow.train",
    "mxnet.gluon.nn.HybridLambda", "mxnet.gluon.nn.Lambda", "mxnet.library", "mxnet.nd.load",
    "mxnet.nd.load_frombuffer", "mxnet.nd.save", "mxnet.np.genfromtxt", "mxnet.npx.load", "mxnet.npx.save",
)  # fmt: skip
"""Parts of the frameworks that load code, start programs, or read and write files: exceptions from the lists above, and
places where no name of another part may lead."""


_LISTED = {module.partition(".")[0] for module in FUNCTIONS | CLASSES}


def computes(path: str, frameworks: Collection[str]) -> bool:
    """Return whether a dotted path names a function that computes. In a framework that the lists do not contain, as
    plug-ins bring them, these are the functions of its top module."""
    if is_below(path, NOT_COMPUTING):
        return False
    module, _, name = path.rpartition(".")
    if module in NAMESPACES or path in MODELS:
        return True
    # Packages of NumPy and SciPy have a function `test` that starts pytest, with any options.
    if name.startswith("_") or name == "test":
        return False
    if module in CLASSES or module.rpartition(".")[0] in NAMESPACES:
        return True
    return not name[0].isupper() and (module in FUNCTIONS or module in set(frameworks) - _LISTED)


def part_to_allow(path: str) -> str:
    """Return the least part of a framework that a user has to allow, so that a file may call a function of it: in a
    module that computes, the function alone."""
    for part in NOT_COMPUTING:
        if is_below(path, [part]):
            return part
    module = path.rpartition(".")[0]
    return path if module in FUNCTIONS | CLASSES else module


def leads_astray(path: str, origin: str) -> bool:
    """Return whether a name hides that its function, defined at `origin`, does not compute: an alias."""
    same_package = path.partition(".")[0] == origin.partition(".")[0]
    return same_package and is_below(origin, NOT_COMPUTING) and not is_below(path, NOT_COMPUTING)


def is_below(path: str, modules: Iterable[str]) -> bool:
    return any(path == module or path.startswith(f"{module}.") for module in modules)
