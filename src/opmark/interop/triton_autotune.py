"""Results of Triton's autotuner: `KERNEL.autotune.json` of its cache (`cache_results=True`), and what it prints with
TRITON_PRINT_AUTOTUNING=1. Times are in milliseconds, the median first.

A kernel of another project is no operator of the catalogue: its entries have the operator `triton:KERNEL` and the key
that it was tuned for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.errors import UserError
from opmark.interop.tuning_logs import ForeignTrial, describe_kept, keep_best, line_problem, read_lines
from opmark.plugin.formats import TuningLog
from opmark.schema import Case, ImportProblem
from opmark.schema.tuned import KnobValue, TunedEntry, TuningTarget

_SUFFIX = ".autotune.json"
_PREFIX = "triton:"
_OWN_FIELDS = ("num_warps", "num_ctas", "num_stages", "maxnreg")
_DTYPES = re.compile(r"(?:torch\.)?(b?float\d+\w*|int\d+|fp\d+|bf16)")
_FINISHED = re.compile(r"Triton autotuning for function (?P<kernel>\w+)")
_SELECTED = re.compile(r"best config selected: (?P<config>[^;]+);")
_TIMED = re.compile(r"config=(?P<config>[^;]+); p50=(?P<median>[\d.eE+-]+) ms")
_KEY = re.compile(r"with key as (?P<key>.+?),?$")
_UNKNOWN = TuningTarget("cuda", "unknown")


class TritonFormat:
    name = "triton"
    summary = "Results of Triton's autotuner: KERNEL.autotune.json, or what it prints"

    def recognises(self, path: Path, head: bytes) -> bool:
        return path.name.endswith(_SUFFIX) or b"Triton autotuning for function" in head

    def read(self, path: Path) -> TuningLog:
        problems: list[ImportProblem] = []
        trials = list(_read_cache(path, problems) if path.name.endswith(_SUFFIX) else _read_print(path, problems))
        timed = [trial for trial in trials if trial.seconds or trial.failure]
        known = {trial.case.id for trial in timed}
        chosen = {trial.case.id: trial for trial in trials if trial.case.id not in known}
        entries = keep_best(timed, self.name)
        notes = ["what Triton prints has the chosen configuration and no time"] if chosen else []
        return TuningLog(
            [*entries, *map(_selected, chosen.values())], problems, [*describe_kept(timed, entries), *notes]
        )

    def files(self, entries: Sequence[TunedEntry]) -> tuple[Mapping[str, str], Sequence[str]]:
        found: dict[str, str] = {}
        left_out: list[str] = []
        for entry in entries:
            if entry.default_stays or entry.tuned_seconds is None or entry.target.device != "cuda":
                left_out.append(f"{entry.op} on {entry.backend}: no configuration of a GPU with a time")
                continue
            kernel = entry.op.removeprefix(_PREFIX)
            key = json.loads(entry.params["key"]) if entry.op.startswith(_PREFIX) else list(entry.params.values())
            kwargs = {name: value for name, value in entry.configuration.items() if name not in _OWN_FIELDS}
            own = {name: entry.configuration.get(name) for name in _OWN_FIELDS}
            config = {"kwargs": kwargs, **own, "pre_hook": None, "ir_override": None}
            text = json.dumps({"key": key, "configs_timings": [[config, [entry.tuned_seconds * 1e3]]]})
            found[f"{entry.case}/{kernel}{_SUFFIX}"] = f"{text}\n"
        return found, left_out


def _case(kernel: str, key: Any) -> Case:
    text = json.dumps(key)
    dtype = _DTYPES.search(text)
    params = {"key": text, **({"dtype": dtype[1]} if dtype else {})}
    return Case.of(f"{_PREFIX}{kernel}", params, "forward")


def _trial(kernel: str, key: Any, configuration: Mapping[str, KnobValue], milliseconds: float | None) -> ForeignTrial:
    timed = milliseconds is not None and math.isfinite(milliseconds)
    seconds = (milliseconds / 1e3,) if timed and milliseconds else ()
    failure = "it failed or took too many registers" if milliseconds is not None and not timed else ""
    return ForeignTrial(_case(kernel, key), "triton-cuda", kernel, configuration, _UNKNOWN, seconds, failure)


def _selected(trial: ForeignTrial) -> TunedEntry:
    """Return the entry of a configuration that Triton has chosen and whose time is not known."""
    return TunedEntry(
        op=trial.case.op, params=dict(trial.case.params), case=trial.case.id, backend=trial.backend,
        implementation=trial.implementation, configuration=dict(trial.configuration), target=trial.target,
        dtype=str(trial.case.params.get("dtype", "")), trials=1, origin=TRITON.name, note="chosen by Triton; no time",
    )  # fmt: skip


def _read_cache(path: Path, problems: list[ImportProblem]) -> Iterator[ForeignTrial]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        key, timings = data["key"], data["configs_timings"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: expected an object with `key` and `configs_timings`: {error}",
            "Triton writes it with cache_results",
        ) from None
    kernel = path.name.removesuffix(_SUFFIX)
    for number, one in enumerate(timings):
        match one:
            case [dict(config), [int() | float() as milliseconds, *_] | (int() | float() as milliseconds)]:
                kwargs = config.get("kwargs", {})
                own = {name: config[name] for name in _OWN_FIELDS if config.get(name) is not None}
                yield _trial(kernel, key, {**kwargs, **own}, float(milliseconds))
            case _:
                place = f"{path.name}: $.configs_timings[{number}]"
                problems.append(
                    ImportProblem(place, "expected [configuration, times]", "Triton 3.2 and newer write this")
                )


def _read_print(path: Path, problems: list[ImportProblem]) -> Iterator[ForeignTrial]:
    """Yield what Triton printed: the chosen configuration of each kernel, and times where its version prints them."""
    kernel, key, number = "", "", 0
    for number, line in read_lines(path):
        if found := _FINISHED.search(line):
            kernel, key = found["kernel"], ""
        if found := _KEY.search(line):
            key = found["key"]
        for pattern in (_SELECTED, _TIMED):
            if found := pattern.search(line):
                if not kernel:
                    problems.append(line_problem(path, number, "a configuration without the name of a kernel"))
                    continue
                milliseconds = float(found["median"]) if pattern is _TIMED else None
                yield _trial(kernel, key, _printed(found["config"]), milliseconds)
    if not kernel:
        problems.append(line_problem(path, number, "no line of Triton's autotuner", "set TRITON_PRINT_AUTOTUNING=1"))


def _printed(text: str) -> dict[str, KnobValue]:
    """Return the values of `BLOCK_M: 128, num_warps: 4, maxnreg: None`."""
    pairs = (part.partition(":") for part in text.split(","))
    return {name.strip(): _value(value.strip()) for name, colon, value in pairs if colon and value.strip() != "None"}


def _value(text: str) -> KnobValue:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return text


TRITON = TritonFormat()
