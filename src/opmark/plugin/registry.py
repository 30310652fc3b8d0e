"""Find operators, backends, formats and profilers through entry points. They are loaded lazily, opmark's own like those
of plug-ins; a broken plug-in is reported and skipped."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from pkgutil import iter_modules
from traceback import walk_tb
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from opmark.errors import InvalidParameter, UnknownName, UserError
from opmark.plugin.backend import WRITE_NOW, BackendInfo, why_outdated
from opmark.plugin.dataset import DataSet
from opmark.plugin.formats import Exporter, Importer, TuningFormat, WorkloadExporter
from opmark.plugin.operator import Family, Implementation, Operator
from opmark.plugin.param import Param, Params
from opmark.plugin.profiler import Profiler
from opmark.schema.case import MODEL_PREFIX

T = TypeVar("T")

OPERATORS_GROUP = "opmark.operators"
IMPLEMENTATIONS_GROUP = "opmark.implementations"
BACKENDS_GROUP = "opmark.backends"
FAMILIES_GROUP = "opmark.families"
IMPORTERS_GROUP = "opmark.importers"
EXPORTERS_GROUP = "opmark.exporters"
WORKLOAD_EXPORTERS_GROUP = "opmark.workload_exporters"
PROFILERS_GROUP = "opmark.profilers"
TUNING_FORMATS_GROUP = "opmark.tuning_formats"
HARDWARE_GROUP = "opmark.hardware"
DATASETS_GROUP = "opmark.datasets"

DRILL = "diagnostics"
"""The category of operators that fail in a chosen way."""
COMMUNICATION = "communication"
"""The category of operators between processes, devices and hosts."""
MODEL = "model"
"""The category of whole models."""
ANY_OPERATOR = "*"
"""Key in `IMPLEMENTATIONS` of a row for every operator, for backends that compute nothing."""


@cache
def catalogue() -> dict[str, Operator]:
    """Return every operator by name. An entry point names a module or a package, whose modules define `OPERATORS`.

    The implementations of an operator bear the name of its package, if the package is not opmark.
    """
    found: dict[str, Operator] = {}
    for entry in _entries(OPERATORS_GROUP):
        source = entry.dist.name if entry.dist and not entry.value.startswith("opmark.") else ""
        for one in _read_modules(entry, "OPERATORS"):
            made = one
            if source and isinstance(one, Operator):
                made = replace(one, implementations=tuple(replace(own, source=source) for own in one.implementations))
            _insert(found, getattr(made, "name", ""), made, Operator, entry)
    return found


@cache
def backends() -> dict[str, BackendInfo]:
    """Return every backend by name, without importing its framework."""
    found: dict[str, BackendInfo] = {}
    for entry in _entries(BACKENDS_GROUP):
        info = _load(entry, entry.load, instead=partial(_outdated_backend, entry))
        if isinstance(info, BackendInfo) and info.name != entry.name:
            _warn(entry, f"it describes `{info.name}`; both names must be the same")
        elif info is not None:
            _insert(found, entry.name, info, BackendInfo, entry)
    return found


def _outdated_backend(entry: EntryPoint, reason: str) -> BackendInfo:
    """Return the description of a backend that is listed but cannot run."""
    said = f"{_package(entry)} {reason}; {WRITE_NOW}"
    return BackendInfo(name=entry.name, framework=entry.name, device="none", loads=entry.value, outdated=said)


def operator(name: str) -> Operator:
    known, other = catalogue(), aliases()
    found = known.get(name) or other.get(name) or _make_by_family(name)
    if found is None and set(name) & set(".:"):
        takes = {info.framework for info in backends().values() if info.computes and info.callables}
        frameworks = ", ".join(sorted(takes))
        raise UserError(
            f"no callable named `{name}` can be had",
            f"a callable is named with a framework that has a backend ({frameworks}), as in torch.add, or as "
            "package.module:function",
        )
    if found is None:
        meant = f"{MODEL_PREFIX}{name}"
        listed = {one for family in families().values() for one in family.names(meant) or ()}
        raise UnknownName("operator", name, [*known, *other], "opmark list ops", meant if meant in listed else None)
    return found


def operators_like(pattern: str, categories: Collection[str] = ()) -> list[str]:
    """Return the operators that match a name, which may contain `*` and `?`.

    Operators that fail on purpose match by their full name only. Communication operators do not match `*` alone, unless
    their category is given.
    """
    if not set(pattern) & set("*?["):
        return [pattern]
    left_out = {DRILL} if pattern != "*" or COMMUNICATION in categories else {DRILL, COMMUNICATION}
    listed = [name for name, op in catalogue().items() if fnmatchcase(name, pattern) and op.category not in left_out]
    for family in families().values():
        listed += family.names(pattern) or ()
    if not listed:
        raise InvalidParameter(
            f"no operator matches `{pattern}`",
            "`opmark list ops` lists the catalogue, `opmark coverage --json` what goes by opinfo:NAME",
        )
    return listed


def families() -> dict[str, Family]:
    """Return the families, which make operators from names, by the names of their entry points."""
    return plugins(FAMILIES_GROUP)


def importers() -> dict[str, Importer]:
    return plugins(IMPORTERS_GROUP)


def exporters() -> dict[str, Exporter]:
    return plugins(EXPORTERS_GROUP)


def workload_exporters() -> dict[str, WorkloadExporter]:
    return plugins(WORKLOAD_EXPORTERS_GROUP)


def profilers() -> dict[str, Profiler]:
    return plugins(PROFILERS_GROUP)


def tuning_formats() -> dict[str, TuningFormat]:
    return plugins(TUNING_FORMATS_GROUP)


def datasets() -> dict[str, type[DataSet]]:
    """Return every data set by name. Their files import NumPy, so that the parent loads them only to list them."""
    return plugins(DATASETS_GROUP)


def dataset_names() -> list[str]:
    """Return the names of all data sets without loading them."""
    return [entry.name for entry in _entries(DATASETS_GROUP)]


def dataset(name: str) -> type[DataSet]:
    """Return a data set by name; no other one is loaded."""
    entry = next((entry for entry in _entries(DATASETS_GROUP) if entry.name == name), None)
    if entry is None:
        raise UnknownName("data set", name, dataset_names(), "opmark list datasets")
    found: type[DataSet] = entry.load()
    return found


@cache
def plugins(group: str) -> dict[str, Any]:
    """Return the objects of the entry points of a group, opmark's own first."""
    found = {entry.name: _load(entry, entry.load) for entry in reversed(_entries(group))}
    return {name: item for name, item in reversed(found.items()) if item is not None}


@cache
def _make_by_family(name: str) -> Operator | None:
    made = (family.operator(name) for family in sorted(families().values(), key=lambda family: family.last))
    return next((operator for operator in made if operator is not None), None)


@cache
def aliases() -> dict[str, Operator]:
    """Return the operators by the names that other systems use."""
    return {alias: op for op in catalogue().values() for alias in op.aliases}


TUNED = "tuned"
"""The variant of every backend that applies what was tuned: `NAME/tuned`, `NAME/VARIANT/tuned`."""


def backend(name: str) -> BackendInfo:
    """Find a backend by `NAME` or `NAME/VARIANT`, both optionally with `/tuned` and with `@PYTHON`: its interpreter or
    environment."""
    known = backends()
    if name in known:
        return known[name]
    rest, at, python = name.partition("@")
    if rest.endswith(f"/{TUNED}"):
        untuned = backend(f"{rest.removesuffix(f'/{TUNED}')}{at}{python}")
        return replace(untuned, name=f"{untuned.name.partition('@')[0]}/{TUNED}{at}{python}", tuned=True)
    plain, _, variant = rest.partition("/")
    if plain not in known:
        raise UnknownName("backend", plain, known, "opmark list backends", _meant_backend(plain, known))
    info = known[plain]
    if rest != plain and variant not in info.variants:
        raise UnknownName(f"variant of {plain}", variant, (*info.variants, TUNED))
    if at and not python:
        raise UserError(f"backend `{name}`: no interpreter behind the @", "as in torch-cpu@/opt/env/bin/python")
    shown = plain if variant in ("", *info.variants[:1]) else rest
    return replace(info, name=f"{shown}{at}{python}", variant=variant, python=python)


_ALSO_CALLED = {
    "pytorch": "torch", "tf": "tensorflow", "onnx": "onnxruntime", "ort": "onnxruntime", "np": "numpy", "gpu": "cuda",
    "nvidia": "cuda", "amd": "cuda", "rocm": "cuda", "intel": "xpu",
}  # fmt: skip
"""Other names of frameworks and devices."""


def _meant_backend(name: str, known: Collection[str]) -> str | None:
    """Return the backend that a framework or a device alone most likely stands for: `torch-cpu` for `pytorch`."""
    parts = [_ALSO_CALLED.get(part, part) for part in re.split("[-_:]", name.casefold())]
    alone = [f"{parts[0]}-cpu", f"torch-{parts[0]}"] if len(parts) == 1 else []
    candidates = ("-".join(parts), *alone)
    return next((candidate for candidate in candidates if candidate in known), None)


def backend_or_none(name: str) -> BackendInfo | None:
    """Return the backend, or None: a stored record may come from one that is not installed."""
    try:
        return backend(name)
    except UserError:
        return None


def parameters_of(name: str) -> dict[str, Param]:
    """Return the parameters of an operator; none if it is not installed, as may be the case for a stored run."""
    try:
        return operator(name).by_name
    except UserError:
        return {}


class CallItems(NamedTuple):
    """What a call processes, and what it keeps for the next one."""

    number: int
    noun: str
    """`samples` or `tokens`."""
    token_cache: int
    """Bytes of keys and values; 0 if there are none."""


def items_of(name: str, params: Params) -> CallItems | None:
    """Return what a call of an operator that a family makes processes. None if it says nothing of it, or is not
    installed. Operators of the catalogue have none, and it takes long to load."""
    try:
        found = _make_by_family(name) if ":" in name else None
        return CallItems(*found.items(params), found.token_cache(params)) if found and found.items else None
    except (UserError, LookupError, TypeError):  # a stored case may have been written by another version
        return None


def way_of(backend: str, implementation: str) -> str:
    """Return `/IMPLEMENTATION` if it is not the plain one of the framework, else an empty text."""
    own = backend_or_none(backend)
    plain = not implementation or (own is not None and implementation in (*own.frameworks, own.name))
    return "" if plain else f"/{implementation}"


def implementations(operator: Operator, info: BackendInfo, *, every: bool = False) -> tuple[Implementation, ...]:
    """Return the implementations of an operator on a backend: those of the first of its frameworks that has any. With
    `every`, those that run only on request follow, whichever of its frameworks they are for.

    A backend that computes nothing accepts any operator of a single process, by the row of its framework for
    ANY_OPERATOR.
    """
    frameworks = info.frameworks
    if operator.category == MODEL and info.models:
        frameworks = tuple(dict.fromkeys((*frameworks, info.models)))
    known = candidates(operator, frameworks)
    if not info.computes and not operator.ranks:
        known += implementation_tables(frameworks).get(ANY_OPERATOR, ())
    usual = [one for one in known if not one.on_request]
    first = next((name for name in frameworks if any(one.framework == name for one in usual)), None)
    found = [one for one in usual if one.framework == first]
    return (*found, *(one for one in known if every and one.on_request and one.framework in frameworks))


def candidates(operator: Operator, frameworks: tuple[str, ...] | None = None) -> tuple[Implementation, ...]:
    """Return all implementations of an operator, or those of these frameworks: its own first, then registered ones.

    Two implementations of one framework need different names: the second gets that of its package.
    """
    found = list(operator.implementations)
    for one in implementation_tables(frameworks).get(operator.name, ()):
        taken = {(other.framework, other.label) for other in found}
        found.append(replace(one, name=f"{one.label}-{one.source}") if (one.framework, one.label) in taken else one)
    return tuple(found)


@cache
def implementation_tables(frameworks: tuple[str, ...] | None = None) -> dict[str, tuple[Implementation, ...]]:
    """Return registered implementations by operator. An entry point names a module or a package, whose modules define
    `IMPLEMENTATIONS`, a mapping of operator names to one or several implementations.

    An entry point that is named after a framework has implementations for that one alone, and is loaded only for it:
    there are thousands of rows.
    """
    found: dict[str, tuple[Implementation, ...]] = {}
    named = {framework for info in backends().values() for framework in (info.name, info.framework, *info.also)}
    for entry in _entries(IMPLEMENTATIONS_GROUP):
        only = entry.name if entry.name in named else None
        if frameworks is None or only is None or only in frameworks:
            for name, several in _table_rows(entry, only):
                found[name] = found.get(name, ()) + several
    return found


def _table_rows(entry: EntryPoint, only: str | None) -> Iterator[tuple[str, tuple[Implementation, ...]]]:
    source = _package(entry)
    for name, made in _read_modules(entry, "IMPLEMENTATIONS"):
        several = made if isinstance(made, tuple) else (made,)
        wrong = next((one for one in several if not isinstance(one, Implementation)), None)
        astray = next((one for one in several if only and one is not wrong and one.framework != only), None)
        if wrong is not None:
            _warn(entry, f"`{name}`: expected Implementation, got {type(wrong).__name__}")
        elif astray is not None:
            _warn(entry, f"`{name}` is for {astray.framework}, and it is called after {only}; give it another name")
        else:
            yield name, tuple(replace(one, source=source) for one in several)


@cache
def hardware_files() -> dict[str, str]:
    """Return the texts of the hardware files of plug-ins by path. An entry point names the package with the files."""
    found: dict[str, str] = {}
    for entry in _entries(HARDWARE_GROUP):
        found |= _load(entry, partial(_read_hardware_files, entry)) or {}
    return found


def _read_hardware_files(entry: EntryPoint) -> dict[str, str]:
    inside = sorted(files(entry.value).iterdir(), key=lambda file: file.name)
    return {f"{entry.value}/{f.name}": f.read_text(encoding="utf-8") for f in inside if f.name.endswith(".yaml")}


def resolve(path: str) -> Any:
    """Return the object that a dotted path names; its longest importable prefix is the module."""
    parts = path.split(".")
    for split in range(len(parts), 0, -1):
        module = ".".join(parts[:split])
        try:
            value: Any = import_module(module)
        except ModuleNotFoundError as error:
            if module != error.name and not module.startswith(f"{error.name}."):
                raise  # it is there, but something that it needs is not
            continue
        for part in parts[split:]:
            if not hasattr(value, part):
                raise UnknownName(f"function of {module}", part, dir(value))
            value = getattr(value, part)
        return value
    raise ModuleNotFoundError(f"no module named {parts[0]!r}", name=parts[0])


@cache
def load_function(name: str) -> Callable[..., Any]:
    """Import a function by `FILE.py:FUNCTION` or `MODULE:FUNCTION`. Modules beside the file can be imported by it."""
    place, _, attributes = name.rpartition(":")
    if not place or not attributes:
        raise UserError(f"`{name}` names no function", "as in kernels.py:softmax or package.module:softmax")
    if place.endswith(".py"):
        path = Path(place).absolute()
        if not path.is_file():
            raise UserError(f"there is no file {place}", "give its path, as in kernels.py:softmax")
        sys.path.insert(0, str(path.parent))
        spec = spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[path.stem] = module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, str(Path.cwd()))
        module = import_module(place)
    found: Any = module
    for attribute in attributes.split("."):
        if not hasattr(found, attribute):
            raise UserError(f"{place} has no `{attributes}`", "the function is named behind the colon")
        found = getattr(found, attribute)
    if not callable(found):
        raise UserError(f"`{name}` is a {type(found).__name__} and cannot be called", "name a function")
    call: Callable[..., Any] = found
    return call


def forget() -> None:
    """Clear all caches, so that installed packages are searched again."""
    catalogue.cache_clear()
    implementation_tables.cache_clear()
    aliases.cache_clear()
    plugins.cache_clear()
    hardware_files.cache_clear()
    _make_by_family.cache_clear()
    backends.cache_clear()


def _entries(group: str) -> list[EntryPoint]:
    """Return entry points, opmark's own first, so that a plug-in cannot take one of its names."""
    return sorted(entry_points(group=group), key=lambda e: (not e.value.startswith("opmark."), e.name))


def _read_modules(entry: EntryPoint, attribute: str) -> list[Any]:
    """Return the items of an attribute of the entry point's module, and of the modules below it if it is a package. A
    module that cannot be imported is reported; the others stay."""
    found: list[Any] = []
    names = [entry.value]
    while names:
        name = names.pop(0)
        module, items = _load(entry, partial(_read_module, name, attribute), module=name) or (None, ())
        found += items
        children = iter_modules(getattr(module, "__path__", ()))
        names[:0] = [f"{name}.{child.name}" for child in children if not child.name.startswith("_")]
    return found


def _read_module(name: str, attribute: str) -> tuple[ModuleType, list[Any]]:
    module = import_module(name)
    held = getattr(module, attribute, ())
    return module, list(held.items() if isinstance(held, Mapping) else held)


def _insert(found: dict[str, T], name: str, item: object, noun: type[T], entry: EntryPoint) -> None:
    if not isinstance(item, noun):
        _warn(entry, f"expected {noun.__name__}, got {type(item).__name__}")
    elif name in found:
        _warn(entry, f"the name `{name}` is taken already")
    else:
        found[name] = item


def _load(
    entry: EntryPoint, load: Callable[[], Any], instead: Callable[[str], Any] | None = None, module: str = ""
) -> Any:
    """Return the result of `load`, or None with a warning, so that a broken plug-in does not affect others.

    `instead` is called with the reason why a plug-in does not fit this version of opmark, and returns a replacement.
    `module` is what is loaded, if it is not the entry point itself.
    """
    try:
        with redirect_stdout(sys.stderr):  # standard output is for data, also while a stranger's module is imported
            return load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - such a module may raise anything, or try to leave
        outdated = why_outdated(error) if isinstance(error, Exception) else None
        if outdated and instead:
            return instead(outdated)
        said = f"it {outdated}" if outdated else f"{type(error).__name__}: {error}"
        _warn(entry, "; ".join(filter(None, (said, _find_line(error, module or entry.module)))), module)
        return None


def _find_line(error: BaseException, module: str) -> str:
    """Return the file and the line where importing a module failed: the innermost line of its own package that ran."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"see {error.filename}:{error.lineno}"
    package = module.partition(".")[0]
    lines = [
        f"see {frame.f_code.co_filename}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__", "").partition(".")[0] == package
    ]
    return lines[-1] if lines else ""


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else entry.value


def _warn(entry: EntryPoint, what: str, module: str = "") -> None:
    place = module or entry.value
    print(f"warning: plug-in `{entry.name}` of `{_package(entry)}` ({place}) is broken and left out: {what}",
          file=sys.stderr)  # fmt: skip
