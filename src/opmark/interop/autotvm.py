"""Tuning logs of AutoTVM, format 0.2, one JSON object per line: OpBench's data/Performance/*.json, and Lorien's
configurations.

    {"input": [TARGET, TASK, ARGUMENTS, {}], "config": {"index": 345, "code_hash": null, "entity": [[KNOB, KIND, VALUE],
    ...]}, "result": [[SECONDS, ...], ERROR, SECONDS OF THE TRIAL, TIME], "version": 0.2, "tvm_version": "0.8.0"}

A task is a schedule template (`conv2d_NCHWc.x86`) with the shapes of its tensors. Here it is the operator of the
catalogue that it computes; the template is the implementation. opmark has no such templates, so that an imported entry
is looked at, compared and exported again, and not applied.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from opmark.errors import UserError
from opmark.interop.tuning_logs import (
    METASCHEDULE_KNOB,
    ForeignTrial,
    backend_of,
    describe_kept,
    find_case,
    keep_best,
    line_problem,
    read_lines,
    target_of_text,
    text_of_target,
    tuner_of_name,
)
from opmark.plugin.formats import TuningLog
from opmark.schema import Case, ImportProblem
from opmark.schema.tuned import KnobValue, TunedEntry

VERSION = 0.2
_INDEX = "autotvm_index"
"""Name of the knob that keeps the number of a configuration in AutoTVM's space."""
_ERRORS = {
    1: "it cannot be instantiated", 2: "the host's compiler failed", 3: "the device's compiler failed",
    4: "it failed on the device", 5: "a wrong result", 6: "compiling took too long", 7: "running took too long",
    8: "unknown error",
}  # fmt: skip
_ANNOTATIONS = frozenset({"none", "unroll", "vec", "parallel", "vthread", "pragma", "blockIdx.x", "threadIdx.x"})


class UnknownTask(UserError):
    """A task whose template or shapes have no operator in the catalogue."""


# Tasks and operators.


def _tensor(argument: Any, *ranks: int) -> tuple[list[int], str]:
    match argument:
        case ["TENSOR", list(shape), str(dtype)] if len(shape) in ranks and all(type(n) is int for n in shape):
            return list(shape), dtype
    raise UnknownTask(f"expected a tensor of {' or '.join(map(str, ranks))} axes, got {json.dumps(argument)[:80]}")


def _one(values: Any, what: str) -> int:
    """Return the one value of a window that moves alike in all directions."""
    if isinstance(values, list) and values and len(set(values)) == 1 and type(values[0]) is int:
        return int(values[0])
    raise UnknownTask(f"{what} {json.dumps(values)}: the catalogue's convolutions have one for all directions")


def _dense(args: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    (m, k), dtype = _tensor(args[0], 2)
    (n, _), _ = _tensor(args[1], 2)
    return ("linear" if args[2] is not None else "linear_no_bias"), {"M": m, "N": n, "K": k, "dtype": dtype}


def _batch_matmul(args: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    (batch, m, k), dtype = _tensor(args[0], 3)
    (_, rows, columns), _ = _tensor(args[1], 3)
    flags = [bool(one) for one in args[4:6]] if len(args) >= 6 else [False, True]
    if flags[0]:
        m, k = k, m
    n = rows if flags[1] else columns
    return "batched_matmul", {"B": batch, "M": m, "N": n, "K": k, "dtype": dtype}


def _unpacked(data: list[int], weight: list[int]) -> tuple[list[int], list[int]]:
    """Return shapes as NCHW and OIHW where channels, and on an accelerator rows of the batch, are in blocks."""
    match data, weight:
        case [n, c, h, w], [o, i, kh, kw]:
            return [n, c, h, w], [o, i, kh, kw]
        case [n, c, h, w, each], [o, i, kh, kw, inside, outside]:
            return [n, c * each, h, w], [o * outside, i * inside, kh, kw]
        case [n, c, h, w, rows, each], [o, i, kh, kw, outside, inside]:
            return [n * rows, c * each, h, w], [o * outside, i * inside, kh, kw]
    raise UnknownTask(f"a convolution of {data} with {weight} is in a layout that is not known")


def _conv2d(args: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    data, dtype = _tensor(args[0], 4, 5, 6)
    weight, _ = _tensor(args[1], 4, 6)
    (n, c, h, w), (o, i, kh, kw) = _unpacked(data, weight)
    return "conv2d", {
        "batch": n, "in_channels": c, "image": [h, w], "out_channels": o, "kernel": [kh, kw],
        "stride": _one(args[2], "strides"), "padding": _one(args[3], "paddings"),
        "dilation": _one(args[4], "dilations"), "groups": c // i, "dtype": dtype,
    }  # fmt: skip


def _depthwise(args: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    (n, c, h, w), dtype = _tensor(args[0], 4)
    (_, times, kh, kw), _ = _tensor(args[1], 4)
    return "depthwise_conv2d", {
        "batch": n, "channels": c, "image": [h, w], "multiplier": times, "kernel": [kh, kw],
        "stride": _one(args[2], "strides"), "padding": _one(args[3], "paddings"),
        "dilation": _one(args[4], "dilations"), "dtype": dtype,
    }  # fmt: skip


_TASKS: Mapping[str, Callable[[Sequence[Any]], tuple[str, dict[str, Any]]]] = {
    "depthwise_conv2d": _depthwise, "group_conv2d": _conv2d, "conv2d": _conv2d, "dense": _dense,
    "batch_matmul": _batch_matmul,
}  # fmt: skip
"""By the beginning of a task's name: what it computes. `conv2d_nchw_winograd.cuda` is a conv2d."""


def case_of_task(task: str, args: Sequence[Any]) -> Case:
    """Return the case that a task computes; UnknownTask if the catalogue has none."""
    compute = next((compute for prefix, compute in _TASKS.items() if task.startswith(prefix)), None)
    if compute is None:
        raise UnknownTask(f"the task `{task}` is none of {', '.join(_TASKS)}")
    try:
        return find_case(*compute(args))
    except IndexError:
        raise UnknownTask(f"the task `{task}` has {len(args)} arguments, and more were expected") from None


def task_args(op: str, p: Mapping[str, Any]) -> list[Any] | None:
    """Return a case as the arguments of a task; None if AutoTVM has no task for it."""
    dtype = p.get("dtype")

    def tensor(*shape: int) -> list[Any]:
        return ["TENSOR", list(shape), dtype]

    match op:
        case "linear" | "linear_no_bias":
            bias = tensor(p["N"]) if op == "linear" else None
            return [tensor(p["M"], p["K"]), tensor(p["N"], p["K"]), bias, dtype]
        case "matmul":
            return [tensor(p["M"], p["K"]), tensor(p["N"], p["K"]), None, dtype]
        case "batched_matmul":
            shape = [p["B"], p["M"], p["N"]]
            return [tensor(p["B"], p["M"], p["K"]), tensor(p["B"], p["N"], p["K"]), shape, None, 0, 1]
        case "conv2d" | "depthwise_conv2d":
            inside = p["channels"] if op == "depthwise_conv2d" else p["in_channels"]
            weight = (
                tensor(inside, p["multiplier"], *p["kernel"])
                if op == "depthwise_conv2d"
                else tensor(p["out_channels"], inside // p["groups"], *p["kernel"])
            )
            window = [[p["stride"]] * 2, [p["padding"]] * 4, [p["dilation"]] * 2]
            return [tensor(p["batch"], inside, *p["image"]), weight, *window, dtype]
    return None


# Lines.


def read_record(data: Any, tuner: str = "") -> ForeignTrial:
    """Return what a line says; UserError says what is wrong with it."""
    if not isinstance(data, dict) or "input" not in data:
        raise UserError("expected an object with input, config and result", _HINT)
    if data.get("version") != VERSION:
        raise UserError(
            f"expected version {VERSION}, got {data.get('version')!r}", "TVM 0.6 to 0.18 write this version"
        )
    match data["input"], data.get("config"), data.get("result"):
        case [str(target), str(task), list(args), *_], {"entity": list(entity), **config}, [
            list(costs),
            int(error),
            *late,
        ]:
            pass
        case _:
            raise UserError("`input`, `config` or `result` is not written as AutoTVM writes them", _HINT)
    configuration: dict[str, KnobValue] = {_knob(one)[0]: _knob(one)[1] for one in entity}
    index = config.get("index")
    if isinstance(index, int):
        configuration[_INDEX] = index
    seconds = tuple(float(one) for one in costs if isinstance(one, int | float)) if error == 0 else ()
    if any(not math.isfinite(one) or one <= 0 for one in seconds):
        raise UserError(f"expected times above 0, got {costs}", _HINT)
    versions = {"tvm": data["tvm_version"]} if isinstance(data.get("tvm_version"), str) else {}
    place = target_of_text(target, versions)
    when = late[1] if len(late) > 1 and isinstance(late[1], int | float) and 0 < late[1] < 1e11 else None
    return ForeignTrial(
        case_of_task(task, args),
        backend_of(place),
        task,
        configuration,
        place,
        seconds,
        "" if seconds else _ERRORS.get(error, f"error {error}"),
        when,
        tuner,
    )


_HINT = 'a line of AutoTVM begins with {"input": [TARGET, TASK, ARGUMENTS, {}]'


def _knob(entity: Any) -> tuple[str, KnobValue]:
    match entity:
        case [str(name), "an", list(words)] if all(isinstance(word, str) for word in words):
            return name, ",".join(words)
        case [str(name), str(), list(factors)] if all(type(one) is int for one in factors):
            return name, tuple(factors)
        case [str(name), str(), bool() | int() | float() | str() as value]:
            return name, value
        case [str(name), str(), None]:
            return name, "none"
    raise UserError(f"the knob {json.dumps(entity)[:80]} is not written as [NAME, KIND, VALUE]", _HINT)


def record_of_entry(entry: TunedEntry) -> dict[str, Any] | str:
    """Return an entry as a line of AutoTVM's, or why there is none."""
    if entry.default_stays or entry.tuned_seconds is None:
        return "nothing is faster than the default" if entry.default_stays else "it has no time"
    if entry.backend.partition("-")[0] != "tvm":
        return "it is not TVM's"
    if METASCHEDULE_KNOB in entry.configuration:
        return "its trace is one of MetaSchedule: -f metaschedule"
    args = task_args(entry.op, entry.params)
    if args is None:
        return f"AutoTVM has no task for {entry.op}"
    task = entry.implementation if entry.origin == AUTOTVM.name else f"{_task_name(entry.op)}.{entry.implementation}"
    if task.endswith(".vta"):
        return "the blocks of VTA's layout are not kept"
    if "NCHWc" in task:
        args[-1:-1] = ["NCHW", "NCHW"]
    knobs = {name: value for name, value in entry.configuration.items() if name != _INDEX}
    made = datetime.fromisoformat(entry.made).timestamp() if entry.made else 0.0
    return {
        "input": [text_of_target(entry.target), task, args, {}],
        "config": {
            "index": entry.configuration.get(_INDEX, -1),
            "code_hash": None,
            "entity": [_entity(name, value) for name, value in knobs.items()],
        },
        "result": [[entry.tuned_seconds], 0, 0.0, made],
        "version": VERSION,
        "tvm_version": entry.target.versions.get("tvm", "unknown"),
    }


def _task_name(op: str) -> str:
    return {"linear": "dense", "linear_no_bias": "dense", "matmul": "dense", "batched_matmul": "batch_matmul"}.get(
        op, op
    )


def _entity(name: str, value: KnobValue) -> list[Any]:
    if isinstance(value, tuple):
        permutation = sorted(value) == list(range(len(value)))
        return [name, "re" if permutation and len(value) > 1 else "sp", list(value)]
    if isinstance(value, str) and set(value.split(",")) <= _ANNOTATIONS:
        return [name, "an", value.split(",")]
    return [name, "ot", value]


class AutoTvmFormat:
    name = "autotvm"
    summary = "AutoTVM's log 0.2, as in OpBench's data/Performance"

    def recognises(self, path: Path, head: bytes) -> bool:
        return head.lstrip().startswith(b'{"input"') and b'"entity"' in head

    def read(self, path: Path) -> TuningLog:
        tuner, trials, problems = tuner_of_name(path), list[ForeignTrial](), list[ImportProblem]()
        for number, line in read_lines(path):
            try:
                trials.append(read_record(json.loads(line), tuner))
            except ValueError as error:
                problems.append(line_problem(path, number, f"no JSON: {error}", "was the tuning interrupted here?"))
            except UserError as error:
                problems.append(line_problem(path, number, error.message, error.hint or ""))
        entries = keep_best(trials, self.name)
        return TuningLog(entries, problems, describe_kept(trials, entries))

    def files(self, entries: Sequence[TunedEntry]) -> tuple[Mapping[str, str], Sequence[str]]:
        lines, left_out = list[str](), list[str]()
        for entry in entries:
            found = record_of_entry(entry)
            if isinstance(found, str):
                left_out.append(f"{entry.op} on {entry.backend}: {found}")
            else:
                lines.append(json.dumps(found))
        return {"autotvm.json": "".join(f"{line}\n" for line in lines)}, left_out


AUTOTVM = AutoTvmFormat()
