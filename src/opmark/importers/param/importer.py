"""PARAM's configs (train/compute/python): `{operator: {"config": [{"build": [...], "input": [...]}]}}`.

Every case keeps the id that PARAM gives it, as `FILE#torch.add|0|0|0_2`: config, build, input.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from opmark.importers.param.arguments import is_whole, shown
from opmark.importers.param.read import Reading
from opmark.schema import Imported

_IDS = re.compile(r"[^|:#]+[|:][^|:#]+")
_DEVICE = "`run_options.device` is {device}: `-d` of `opmark param`, or `--backend`, says where it runs"
_ASKED = {"warmup": "warmup", "iteration": "samples"}


class _Param:
    name = "param"
    summary = "operator configs and batch files of PARAM (facebookresearch/param, train/compute)"

    def recognises(self, path: Path, data: Any) -> bool:
        """An object whose values have a `config`; or a batch file, which has one operator and says how to run it."""
        if not isinstance(data, dict):
            return False
        return _is_batch(data) or any(
            isinstance(info, dict) and ("config" in info or "input_data_generator" in info) for info in data.values()
        )

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        reading = Reading(path, seed)
        if _is_batch(data):
            return _batch(reading, data)
        for name, info in data.items():
            reading.operator(name, info, f"$[{json.dumps(name)}]")
        return reading.found()


def _is_batch(data: dict[str, Any]) -> bool:
    return "op_name" in data and "op_info" in data


def _batch(reading: Reading, data: dict[str, Any]) -> Imported:
    """One operator, built once, and its inputs with the ids that they had in the file they were taken from."""
    key = "config_build_id" if "config_build_id" in data else "build_id"
    ids = data.get(key, "0|0")
    if not isinstance(ids, str) or not _IDS.fullmatch(ids):
        reading.refuse(f"$.{key}", f"expected the ids of a config and of a build, as in 0|0, got {shown(ids)}")
        return reading.found()
    reading.operator(data["op_name"], _one_build(data["op_info"]), "$.op_info", ids.replace(":", "|"))
    options = data.get("run_options", {})
    if not isinstance(options, dict):
        reading.refuse("$.run_options", f"expected options by name, got {shown(options)}")
        return reading.found()
    if options.get("pass_type") == "backward":
        reading.both_ways()
    if options.get("device", "cpu") != "cpu":
        reading.note(_DEVICE.format(device=shown(options["device"])))
    asked = {here: options[there] for there, here in _ASKED.items() if is_whole(options.get(there))}
    return reading.found({name: count for name, count in asked.items() if count >= (name == "samples")})


def _one_build(info: Any) -> Any:
    """A batch has the spec of its build as such, and not in a list."""
    if not isinstance(info, dict) or not isinstance(info.get("config"), list):
        return info
    return {**info, "config": [_in_a_list(config) for config in info["config"]]}


def _in_a_list(config: Any) -> Any:
    built = isinstance(config, dict) and isinstance(config.get("build"), dict) and config["build"]
    return {**config, "build": [config["build"]]} if built else config


PARAM = _Param()
