"""Operators and data generators that users write for PARAM: they are registered here, and run in a worker.

The worker loads the same files, so that the tensors of a generator are made where they are needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from opmark.catalogue.families.callables import find_callable, find_tensors
from opmark.errors import UnknownName, UserError
from opmark.interop.param.lib.data import data_generator_map
from opmark.interop.param.lib.operator import registering_modules, user_operator
from opmark.plugin.registry import resolve
from opmark.schema import Entry
from opmark.schema.arguments import assemble
from opmark.schema.case import PLUGIN_OPERATOR
from opmark.scratch import ScratchFolder

_PREFIX = "opmark_param_plugin_"
_LOADED: dict[Path, ModuleType] = {}


def load_plugin(path: str | Path) -> ModuleType:
    """Load a Python file that registers operators, iterators or generators; a file is loaded once."""
    file = Path(path).resolve()
    if file in _LOADED:
        return _LOADED[file]
    name = f"{_PREFIX}{len(_LOADED)}_{file.stem}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise UserError(f"--plugin {path}: there is no such Python file", "as in --plugin my_operators.py")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a stranger's file may raise anything
        del sys.modules[name]
        raise UserError(f"--plugin {path}: {type(error).__name__}: {error}", "it fails when Python loads it") from error
    _LOADED[file] = module
    return module


def module_reference(item: Any) -> str:
    """Return what a worker has to load: the module of a class, of an object's class, or of a name, or the path of its
    file."""
    name = item if isinstance(item, str) else (item if isinstance(item, type) else type(item)).__module__
    module = sys.modules[name]
    if module.__name__ != "__main__" and not module.__name__.startswith(_PREFIX):
        return module.__name__
    if not getattr(module, "__file__", None):
        raise UserError(f"{item}: a worker cannot load what is typed in", "write it into a file")
    return str(Path(str(module.__file__)).resolve())


class PluginOperator:
    """An operator in a worker, built and given its data.

    `build` holds `args` and `kwargs`, or the name of a generator and its spec. `given` is None if the call gets its
    arguments from opmark; else it names a generator and a spec, or a file with tensors.
    """

    def __init__(self, name: str, modules: Sequence[str], build: Any, given: Any) -> None:
        for module in modules:
            load_plugin(module) if module.endswith(".py") else import_module(module)
        torch = resolve("torch")
        device = str(torch.empty(0).device)  # the worker's device is torch's default one while this is built
        self._function = _function_of(name, build, device)
        self._args, self._kwargs = ([], {}) if given is None else _data_of(given, device)

    def parameters(self) -> Iterator[Any]:
        """Yield the tensors that a generator made: they count as read, and have gradients."""
        yield from find_tensors([self._args, self._kwargs])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, *self._args, **kwargs, **self._kwargs)


def _function_of(name: str, build: Any, device: str) -> Callable[..., Any]:
    args, kwargs = ([], {}) if build is None else _data_of(build, device)
    op = user_operator(name)
    if op is not None:
        op.device = device
        op.cleanup()
        if build is not None:
            op.build(*args, **kwargs)
        return op.forward
    function = find_callable(name)
    made: Callable[..., Any] = function(*args, **kwargs) if isinstance(function, type) else function
    return made.to(device) if hasattr(made, "parameters") else made  # type: ignore[attr-defined]


def _data_of(given: Any, device: str) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments, from a generator by its name, from a file, or from opmark's notation."""
    if "tensors" in given:
        args, kwargs = resolve("torch").load(given["tensors"], map_location=device, weights_only=True)
    elif "generator" in given:
        if given["generator"] not in data_generator_map:
            raise UnknownName("data generator", given["generator"], data_generator_map)
        args, kwargs = data_generator_map[given["generator"]]().get_data(given["spec"], device)
    else:
        dtype = partial(getattr, resolve("torch"))
        args = [assemble(item, "", {}, dtype) for item in given["args"]]
        kwargs = {name: assemble(item, "", {}, dtype) for name, item in given["kwargs"].items()}
    return list(args), dict(kwargs)


def plugin_entry(
    name: str,
    items: Sequence[Any],
    source: str,
    *,
    build: Any = None,
    given: Any = None,
    args: Any = (),
    kwargs: Any = None,
) -> Entry:
    """Return the entry of an operator whose class, or whose generators (`items`), a user wrote.

    `name` is that of a registered operator, or opmark's name of a function of torch.
    """
    registered = [registering_modules[name]] if user_operator(name) and name in registering_modules else []
    modules = list(dict.fromkeys(map(module_reference, [*registered, *items])))
    built = [name, {"value": modules}, {"value": build}, {"value": given}]
    return Entry(PLUGIN_OPERATOR, {}, args=list(args), kwargs=kwargs or None, build={"args": built}, source=source)


def plugin_function(entry: Entry) -> str | None:
    """Return the function that an entry calls with data of a plug-in; None for all other entries."""
    if entry.op != PLUGIN_OPERATOR or not isinstance(entry.build, dict):
        return None
    name = str(entry.build["args"][0])
    return None if user_operator(name) else name


def holds_tensors(value: Any) -> bool:
    """Return whether there is a tensor of torch in a value."""
    if isinstance(value, dict):
        return any(map(holds_tensors, value.values()))
    if isinstance(value, list | tuple):
        return any(map(holds_tensors, value))
    return hasattr(value, "untyped_storage")


@contextmanager
def kept_tensors() -> Iterator[Callable[[Any], str]]:
    """Give a function that writes arguments to a file for the worker; the files are removed at the end."""
    with ScratchFolder("tensors") as folder:

        def keep(value: Any) -> str:
            path = str(Path(folder) / f"{len(list(Path(folder).iterdir()))}.pt")
            resolve("torch").save(value, path)
            return path

        yield keep
