"""PARAM's run options, as batch files and programs have them, in terms of opmark's options."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from opmark.errors import InvalidParameter, UnknownName, UserError, nearest
from opmark.interop.param.arguments import is_whole, quote
from opmark.interop.param.exporter import DEFAULT_OPTIONS
from opmark.interop.param.options import MODES, ParamOptions

_MODE, _OLDER_MODE = "op_exec_mode", "op_exe_mode"
PASSES = ("forward", "backward")
_PROFILERS = "--ncu and --nsys of the command line run profilers"
_FILE = "-o PREFIX of the command line names the result file"
_CASES = "-r and -s of the command line choose cases"
_IGNORED: dict[str, str] = {
    **dict.fromkeys([name for name in DEFAULT_OPTIONS if name.startswith(("ncu_", "nsys_"))], _PROFILERS),
    **dict.fromkeys(
        ("run_ncu", "run_nsys", "run_batch_size", "batch_cuda_device", "batch_cmd", "ncu_batch"), _PROFILERS
    ),
    **dict.fromkeys(("out_file_prefix", "out_stream"), _FILE),
    **dict.fromkeys(("resume_op_run_id", "stop_op_run_id"), _CASES),
    "time_unit": "times are always in milliseconds",
    "cmd_args": "it repeats the command that wrote the file",
}
"""Why an option is not used, by its name; PARAM's run_batch does not use these either."""


class RunOptions(NamedTuple):
    fields: dict[str, Any]
    """Fields of `ParamOptions`."""
    mistakes: dict[str, UserError]
    """Errors by the names of the options whose values cannot be used."""
    notes: list[str]
    """What is ignored, and why."""


def read_run_options(options: Mapping[str, Any]) -> RunOptions:
    """Read run options; hyphens in their names are underscores, and enums may be texts. An option that has PARAM's
    default is ignored without a note."""
    found = RunOptions({}, {}, [])
    ignored: dict[str, list[str]] = {}
    named = [(str(written).replace("-", "_"), written, value) for written, value in options.items()]
    for name, written, value in sorted(named, key=lambda option: option[0] != _OLDER_MODE):  # the newer name wins
        if name in (_MODE, _OLDER_MODE) and value in (None, ""):
            continue  # PARAM's programs write this where they leave the mode to the other name
        if name in _FIELDS:
            field, convert = _FIELDS[name]
            try:
                found.fields[field] = convert(name, value)
            except UserError as error:
                found.mistakes[str(written)] = error
        elif name not in _IGNORED:
            near = nearest(name, (*_FIELDS, *_IGNORED))
            guess = f"; did you mean `{near}`?" if near else ""
            found.notes.append(f"`run_options.{written}` is not known and is ignored{guess}")
        elif value not in (None, DEFAULT_OPTIONS.get(name)):
            ignored.setdefault(_IGNORED[name], []).append(name)
    found.notes.extend(f"`run_options`: {_list_names(names)} ignored: {why}" for why, names in ignored.items())
    return found


def note_unused(found: RunOptions, *, used: Iterable[str], why: str) -> list[str]:
    """Return a note that names the options which differ from PARAM's defaults, and are not among the `used` fields."""
    usual = ParamOptions()
    fields = [key for key, value in found.fields.items() if key not in used and value != getattr(usual, key)]
    left = [_option_name(key) for key in fields]
    return [f"`run_options`: {_list_names(left)} ignored: {why}"] if left else []


def describe_field(field: str, value: Any) -> str:
    """Return a field of `ParamOptions` as run options name it: `pass_type backward`."""
    return f"{_option_name(field)} {PASSES[value] if field == 'backward' else str(value).lower()}"


def _option_name(field: str) -> str:
    return next(name for name, (own, _) in _FIELDS.items() if own == field)


def _list_names(names: list[str]) -> str:
    return f"{', '.join(f'`{name}`' for name in names)} {'are' if len(names) > 1 else 'is'}"


def _count(name: str, value: Any) -> int:
    if not is_whole(value) or value < 0:
        raise InvalidParameter(f"expected a whole number of at least 0, got {quote(value)}", f'as in "{name}": 10')
    return int(value)


def _flag(name: str, value: Any) -> bool:
    known = {True: True, False: False, "on": True, "off": False}
    if not isinstance(value, bool | str) or value not in known:
        raise InvalidParameter(f"expected true or false, got {quote(value)}")
    return known[value]


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidParameter(f"expected a text, got {quote(value)}", f'as in "{name}": "cpu"')
    return value


def _word(known: Iterable[str]) -> Callable[[str, Any], str]:
    """Return a reader of an enum, given as such, as `ExecutionPass.BACKWARD` or as `backward`."""

    def read(name: str, value: Any) -> str:
        text = str(value.value if isinstance(value, enum.Enum) else value).rpartition(".")[2].lower()
        if text not in known:
            raise UnknownName(f"value of the run option {name}", text, known)
        return text

    return read


def _is_backward(name: str, value: Any) -> bool:
    return _word(PASSES)(name, value) == "backward"


_FIELDS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "warmup": ("warmup", _count),
    "iteration": ("iteration", _count),
    "pass_type": ("backward", _is_backward),
    "device": ("device", _text),
    _MODE: ("exec_mode", _word(MODES)),
    _OLDER_MODE: ("exec_mode", _word(MODES)),
    "cuda_l2_cache": ("cuda_l2_cache", _flag),
    "cuda_graph": ("cuda_graph", _flag),
    "pt2_model": ("pt2_model", _flag),
}
"""Field of `ParamOptions` and reader of its value, by the name of the option in PARAM, older names included."""
