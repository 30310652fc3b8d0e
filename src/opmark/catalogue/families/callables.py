"""Make an operator of any callable: `torch.baddbmm`, `torch.nn.Linear`, `numpy.cumsum`, `package.module:function`."""

from __future__ import annotations

import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import isroutine
from types import ModuleType
from typing import Any

from opmark.catalogue.families.computing import is_below, leads_astray
from opmark.errors import Unsupported, UserError
from opmark.plugin import Implementation, Launch, Operator, Param, Params, TensorSlot
from opmark.plugin.registry import backends, resolve
from opmark.schema import Cost, TensorSpec
from opmark.schema.arguments import assemble, tensors
from opmark.schema.cost import nbytes

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_OWN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_SCHEMA = re.compile(r"[a-z]\w*::\w+(\.\w+)?")
# Packages whose functions take the arrays of another framework.
_TAKES = {"scipy": "numpy"}
# Packages that another one offers as its own.
_COMPANIONS = {"tensorflow": "keras"}

_OPSET = 18
"""Version of ONNX's operators in exported models."""

PARAMS = (
    Param("args", "arguments", "positional arguments; a tensor is written as 8x64 float32", []),
    Param("kwargs", "arguments", "arguments by name", {}),
    Param(
        "build",
        "arguments",
        "arguments of a class's constructor: {args: [...], kwargs: {...}}; train: true for a module in training mode",
        None,
    ),
)


def operator_of(name: str) -> Operator | None:
    """Return the operator that calls `name`; None if that cannot be the name of a callable."""
    frameworks = _frameworks(name)
    if not frameworks:
        return None
    place, _, function = name.partition(":")
    if place.endswith(".py"):
        raise UserError(
            f"`{name}` names a file, expected a module",
            f"{place.removesuffix('.py')}:{function}, in the folder of the file; `opmark judge {name}` and "
            f"`opmark run OP --impl {name}` take files",
        )
    return Operator(
        name=name,
        summary=f"{name}, called with the arguments given",
        category="callable",
        params=PARAMS,
        inputs=_inputs,
        cost=lambda p: Cost(None, nbytes(_inputs(p).values()), 0),
        reference=_no_reference,
        presets={},
        implementations=tuple(
            Implementation(f, _builder(name, f), path=name) for f in (*frameworks, *_exports(frameworks))
        ),
        foreign=True,
    )


def dotted_path(name: str) -> str:
    """Return the dotted path of a name: `aten::mm`, as TorchScript writes it, is `torch.ops.aten.mm`."""
    return f"torch.ops.{name.replace('::', '.')}" if _SCHEMA.fullmatch(name) else name.replace(":", ".")


def _frameworks(name: str) -> tuple[str, ...]:
    """Return the frameworks whose tensors a callable takes: by its first word; for `module:function`, all of them."""
    if _SCHEMA.fullmatch(name):
        return ("torch",)
    known = {info.framework: None for info in backends().values() if info.computes and info.callables}
    if _OWN.fullmatch(name):
        return tuple(known)
    first = name.partition(".")[0]
    framework = _TAKES.get(first, first)
    return (framework,) if _DOTTED.fullmatch(name) and framework in known else ()


def _exports(frameworks: Sequence[str]) -> tuple[str, ...]:
    """Return the frameworks that run a callable as a model: torch exports its functions and modules to ONNX."""
    return ("onnx",) if "torch" in frameworks else ()


def find_callable(name: str) -> Any:
    """Import and return the callable of a name; UserError if there is none, or if it cannot be called."""
    function = resolve(dotted_path(name))
    if not callable(function):
        raise UserError(f"`{name}` is a {type(function).__name__} and cannot be called", "name a function or a class")
    _check_origin(name, function)
    return function


def _check_origin(name: str, function: Any) -> None:
    """Raise UserError where a name leads out of its module, as `torch.os.system` and `torch.functional.torch.load` do.
    A file that may call functions of one module shall not reach others through it."""
    path = dotted_path(name)
    first, *rest = path.split(".")
    companion = _COMPANIONS.get(first, first)
    value: Any = import_module(first)
    module = first
    for part in rest:
        value = getattr(value, part)
        if isinstance(value, ModuleType):
            if not is_below(value.__name__, [module, companion] if companion != first else [module]):
                raise _astray(name, value.__name__)
            module = value.__name__
    if not (isroutine(function) or isinstance(function, type)):
        return
    origin = getattr(function, "__module__", None)
    if not isinstance(origin, str):
        return
    place = origin.partition(".")[0]
    if place in sys.stdlib_module_names and first not in sys.stdlib_module_names:
        raise _astray(name, place)
    if leads_astray(path, f"{origin}.{function.__qualname__}"):
        raise _astray(name, origin)


def _astray(name: str, module: str) -> UserError:
    other = "package" if module.partition(".")[0] != dotted_path(name).partition(".")[0] else "module"
    return UserError(
        f"`{name}` leads into another {other}, `{module}`", f"name the function where it is: {module}:FUNCTION"
    )


def framework_modules() -> set[str]:
    """Return the modules whose functions take the tensors of a framework."""
    known = {info.framework for info in backends().values() if info.computes and info.callables}
    return known | {module for module, framework in _TAKES.items() if framework in known}


def _inputs(p: Params) -> dict[str, TensorSpec]:
    by_name = [found for name, node in p["kwargs"].items() for found in tensors(node, f"kwargs.{name}")]
    return dict([*tensors(p["args"], "args"), *by_name])


def _no_reference(p: Params, **inputs: Any) -> Any:
    raise Unsupported("a callable has no reference")


def _builder(name: str, framework: str) -> Any:
    if framework == "onnx":
        return lambda p, **held: ExportedCall(name, p)

    def build(p: Params, **held: Any) -> Launch:
        given = {key: _tensor_of(tensor) for key, tensor in held.items()}
        function = _function(name, p, given, _dtypes(framework))
        weights = list(function.parameters()) if hasattr(function, "parameters") else []
        args, kwargs = _arguments(p, given, _dtypes(framework))
        call = FrameworkCall(function, *args, **kwargs)
        call.reads = [*find_tensors([args, kwargs]), *weights]
        call.leaves = [tensor for tensor in call.reads if _differentiable(tensor)]
        call.weights = [tensor for tensor in weights if _differentiable(tensor)]
        call.described = _mode(function)
        return call

    return build


def _function(name: str, p: Params, given: Any, dtype: Any) -> Any:
    """Return what is called: the function itself, or an object of the class, in the mode that the case chooses."""
    function = find_callable(name)
    spec = p["build"] if isinstance(p["build"], dict) else {"args": p["build"] or []}
    if isinstance(function, type):
        function = _construct(function, spec, given, dtype)
    elif p["build"] is not None and not (_is_module(function) and set(spec) <= {"train"}):
        raise UserError(f"`{name}` is a function, but `build` is for classes", "leave `build` out")
    if _is_module(function):  # a new one is in training mode, in which dropout drops and statistics are updated
        function.train(spec.get("train", False))
    return function


def _mode(function: Any) -> str:
    if not _is_module(function):
        return ""
    return "train()" if function.training else "eval()"


def _arguments(p: Params, given: Any, dtype: Any) -> tuple[Any, dict[str, Any]]:
    return assemble(p["args"], "args", given, dtype), _by_name(p["kwargs"], "kwargs", given, dtype)


class ExportedCall:
    """A call of a torch function or module, exported as an ONNX model once shapes and types of its inputs are known."""

    def __init__(self, name: str, params: Params) -> None:
        if find_spec("torch") is None:
            raise Unsupported(f"torch exports `{name}` to ONNX, and this interpreter has no torch")
        self.name, self.params = name, params
        self.function = _function(name, params, {}, _dtypes("torch"))
        self.described = _mode(self.function)

    def model(self, inputs: Mapping[str, tuple[tuple[int, ...], str]]) -> Any:
        """Return an onnx.ModelProto; `inputs` holds (shape, dtype) by name."""
        import onnx
        import torch

        params, function, dtype = self.params, self.function, _dtypes("torch")
        tensors = {key: torch.zeros(shape, dtype=dtype(kind)) for key, (shape, kind) in inputs.items()}

        class OneCall(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
            def __init__(self) -> None:
                super().__init__()
                self.function = function
                self.train(_mode(function) == "train()")

            def forward(self, *given: Any) -> Any:
                args, kwargs = _arguments(params, dict(zip(tensors, given, strict=True)), dtype)
                return tuple(find_tensors(function(*args, **kwargs)))

        whole, written = OneCall(), io.BytesIO()
        training = torch.onnx.TrainingMode.TRAINING if whole.training else torch.onnx.TrainingMode.EVAL
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    whole, tuple(tensors.values()), written, input_names=list(tensors), training=training,
                    opset_version=_OPSET, dynamo=False,
                )  # fmt: skip
        except (RuntimeError, torch.onnx.errors.OnnxExporterError) as error:
            first = str(error).strip().partition("\n")[0]
            raise Unsupported(f"torch cannot export `{self.name}` to ONNX: {first}") from None
        return onnx.load_from_string(written.getvalue())


def _tensor_of(tensor: Any) -> Any:
    """Return the tensor itself, out of the slot that some frameworks' tensors are kept in."""
    return tensor.value if isinstance(tensor, TensorSlot) else tensor


def _is_module(value: Any) -> bool:
    """Return whether a value is an object that works in one way for training and in another one afterwards."""
    return not isinstance(value, type) and hasattr(value, "training") and callable(getattr(value, "train", None))


def _construct(cls: Any, spec: Any, given: Any, dtype: Any) -> Any:
    """Construct an object of a class, on the device of the arguments."""
    built = cls(
        *assemble(spec.get("args", []), "build", {}, dtype),
        **_by_name(spec.get("kwargs", {}), "build", {}, dtype),
    )
    devices = {tensor.device for tensor in given.values() if hasattr(tensor, "device")}
    if hasattr(built, "to") and hasattr(built, "parameters") and len(devices) == 1:
        built = built.to(devices.pop())
    return built


def _by_name(nodes: Any, path: str, given: Any, dtype: Any) -> dict[str, Any]:
    return {name: assemble(node, f"{path}.{name}", given, dtype) for name, node in nodes.items()}


def _dtypes(framework: str) -> Any:
    module = {"jax": "jax.numpy"}.get(framework, framework)
    return lambda name: resolve(f"{module}.{'bool_' if name == 'bool' and framework != 'torch' else name}")


def _differentiable(tensor: Any) -> bool:
    """Return whether a tensor can have a gradient, by the name of its element type."""
    return str(tensor.dtype).removeprefix("torch.").startswith(("float", "bfloat", "complex"))


class _Callables:
    last = True

    def operator(self, name: str) -> Operator | None:
        return operator_of(name)

    def names(self, pattern: str) -> None:
        return None  # there is no list of all callables


CALLABLES = _Callables()


# A call of a framework's own function, with the tensors that it uses.


class FrameworkCall(partial[Any]):
    """A launch as fast as a `partial`, with the tensors that it works on."""

    reads: Sequence[Any] = ()
    """Tensors that the call reads: arguments and weights."""
    leaves: Sequence[Any] = ()
    """Tensors whose gradients a backward pass computes, unless the case chooses them."""
    weights: Sequence[Any] = ()
    """The leaves that belong to a module, and are not arguments."""
    described: str = ""
    """The arguments as text, if the parameters of the case do not contain them; the mode of a module."""
    outputs: Callable[[Any], Any] = staticmethod(lambda found: found)
    """Selects the part of the result that has a meaningful gradient."""

    def flat(self) -> tuple[Any, ...]:
        """Call the function and return every tensor of its result, however deeply nested."""
        return tuple(find_tensors(self.outputs(self())))


def find_tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in lists, tuples and dictionaries; numbers, texts and None are left out."""
    if isinstance(value, dict):
        for item in value.values():
            yield from find_tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from find_tensors(item)
    elif (
        hasattr(value, "dtype") and hasattr(value, "shape") and not isinstance(value, type)
    ):  # types such as numpy.float32 have both
        yield value
