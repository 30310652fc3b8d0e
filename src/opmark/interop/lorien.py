"""Items of Lorien's database: JSON as DynamoDB writes it (`{"S": text}`), or the same items in plain JSON or YAML.

An item is a workload on a target with its best configurations; the configuration of its AutoTVM dialect is a line of
AutoTVM's log. Lorien keeps up to 100 of them per item, sorted the wrong way around: here the fastest is taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.catalogue.workload_file import read_plain
from opmark.errors import UserError
from opmark.interop.autotvm import read_record, record_of_entry
from opmark.interop.tuning_logs import ForeignTrial, describe_kept, keep_best, split_target
from opmark.plugin.formats import TuningLog
from opmark.schema import ImportProblem
from opmark.schema.tuned import TunedEntry

_KEYS = (b'"PrimaryRangeKey"', b"PrimaryRangeKey:")
_ONLY_KIND = {"S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS"}
_BUILD = ("tvm", "commit", "llvm", "cuda")


def plain(value: Any) -> Any:
    """Return a value without the types that DynamoDB writes around it."""
    if isinstance(value, dict):
        if len(value) == 1:
            ((kind, inside),) = value.items()
            if kind == "N" and isinstance(inside, str):
                return float(inside) if any(sign in inside for sign in ".eEn") else int(inside)
            if kind == "NULL":
                return None
            if kind in _ONLY_KIND:
                return plain(inside)
        return {name: plain(inside) for name, inside in value.items()}
    return [plain(inside) for inside in value] if isinstance(value, list) else value


def typed_value(value: Any) -> dict[str, Any]:
    """Return a value as DynamoDB writes it."""
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return {"N": repr(value)}
        case str():
            return {"S": value}
        case list():
            return {"L": [typed_value(one) for one in value]}
    return {"M": {name: typed_value(one) for name, one in value.items()}}


class LorienFormat:
    name = "lorien"
    summary = "Items of Lorien's database, as JSON of DynamoDB or in YAML"

    def recognises(self, path: Path, head: bytes) -> bool:
        return any(key in head for key in _KEYS)

    def read(self, path: Path) -> TuningLog:
        data = plain(read_plain(path).data)
        items = data.get("Items", [data]) if isinstance(data, dict) else data
        if not isinstance(items, list):
            raise UserError(f"{path}: expected items of Lorien's database, got {type(items).__name__}", _HINT)
        trials, problems = list[ForeignTrial](), list[ImportProblem]()
        for number, item in enumerate(items):
            for place, found in _read_item(item, f"{path.name}: $.Items[{number}]"):
                if isinstance(found, UserError):
                    problems.append(ImportProblem(place, found.message, found.hint or ""))
                else:
                    trials.append(found)
        entries = keep_best(trials, self.name)
        return TuningLog(entries, problems, describe_kept(trials, entries))

    def files(self, entries: Sequence[TunedEntry]) -> tuple[Mapping[str, str], Sequence[str]]:
        items: dict[tuple[str, str], dict[str, Any]] = {}
        left_out: list[str] = []
        for entry in entries:
            found = record_of_entry(entry)
            if isinstance(found, str):
                left_out.append(f"{entry.op} on {entry.backend}: {found}")
                continue
            target, task, args, _ = found["input"]
            key = "#".join([task, *(_key_part(one) for one in args)])
            item = items.setdefault((target, key), {
                "Target": target, "TargetIDKeys": _target_keys(entry, target), "PrimaryRangeKey": key, "OpName": task,
                "TaskName": task, "Args": args, "BestConfigs": [],
            })  # fmt: skip
            build = {name: entry.target.versions[name] for name in _BUILD if name in entry.target.versions}
            item["BestConfigs"].append(
                {
                    "config": json.dumps(found),
                    "latency": entry.tuned_seconds,
                    "log_path": " ",
                    "framework_build_config": build or "unknown",
                }
            )
        written = [{name: typed_value(value) for name, value in item.items()} for item in items.values()]
        return {"lorien.json": json.dumps({"Items": written, "Count": len(written)}, indent=1) + "\n"}, left_out


_HINT = "`aws dynamodb scan --table-name TABLE` writes them"


def _read_item(item: Any, place: str) -> Iterator[tuple[str, ForeignTrial | UserError]]:
    configs = item.get("BestConfigs") if isinstance(item, dict) else None
    if not isinstance(configs, list):
        yield place, UserError("the item has no list `BestConfigs`", _HINT)
        return
    for number, one in enumerate(configs):
        where = f"{place}.BestConfigs[{number}]"
        try:
            text = one.get("config") if isinstance(one, dict) else None
            record = json.loads(text) if isinstance(text, str) else None
            if isinstance(record, dict) and "i" in record:
                raise UserError(
                    "a schedule of Ansor (auto_scheduler), which is a list of steps and no configuration of knobs",
                    "items of the autotvm dialect can be read",
                )
            yield where, read_record(record)
        except ValueError as error:
            yield where, UserError(f"`config` is no JSON: {error}", _HINT)
        except UserError as error:
            yield where, error


def _key_part(argument: Any) -> str:
    """Return an argument as Lorien writes it into a key: `_TENSOR__1_256_14_14__float32_`."""
    if isinstance(argument, list):
        return f"_{'_'.join(_key_part(one) for one in argument)}_"
    return str(argument)


def _target_keys(entry: TunedEntry, target: str) -> str:
    kind, attributes = split_target(target)
    return "_".join([kind, *(attributes.get("keys") or entry.target.device).split(",")])


LORIEN = LorienFormat()
