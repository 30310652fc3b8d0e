"""PARAM's configs (train/compute/python): `{operator: {"config": [{"build": [...], "input": [...]}]}}`.

Every case keeps the id that PARAM gives it, as `FILE#torch.add|0|0|0_2`: config, build, input.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from opmark.importers.param.arguments import is_whole, quote
from opmark.importers.param.read import Reading
from opmark.schema import Imported

_IDS = re.compile(r"[^|:#]+[|:][^|:#]+")
_DEVICE_NOTE = "`run_options.device` {device} is ignored: choose it with `opmark param -d` or `--backend`"
_REQUESTS = {"warmup": "warmup", "iteration": "samples"}


class _Param:
    name = "param"
    summary = "operator configs and batch files of PARAM (facebookresearch/param, train/compute)"

    def recognises(self, path: Path, data: Any) -> bool:
        """Recognise an object whose values have a `config`, or a batch file with one operator and run options."""
        if not isinstance(data, dict):
            return False
        return _is_batch(data) or any(
            isinstance(info, dict) and ("config" in info or "input_data_generator" in info) for info in data.values()
        )

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        reading = Reading(path, seed)
        if _is_batch(data):
            return _read_batch(reading, data)
        for name, info in data.items():
            reading.operator(name, info, f"$[{json.dumps(name)}]")
        return reading.found()


def _is_batch(data: dict[str, Any]) -> bool:
    return "op_name" in data and "op_info" in data


def _read_batch(reading: Reading, data: dict[str, Any]) -> Imported:
    """Read one operator with one build; its inputs keep the ids of the config that the batch was made from."""
    key = "config_build_id" if "config_build_id" in data else "build_id"
    ids = data.get(key, "0|0")
    if not isinstance(ids, str) or not _IDS.fullmatch(ids):
        reading.refuse(f"$.{key}", f"expected the ids of a config and of a build, as in 0|0, got {quote(ids)}")
        return reading.found()
    reading.operator(data["op_name"], _with_list_of_builds(data["op_info"]), "$.op_info", ids.replace(":", "|"))
    options = data.get("run_options", {})
    if not isinstance(options, dict):
        reading.refuse("$.run_options", f"expected options by name, got {quote(options)}")
        return reading.found()
    if options.get("pass_type") == "backward":
        reading.add_backward()
    if options.get("device", "cpu") != "cpu":
        reading.note(_DEVICE_NOTE.format(device=quote(options["device"])))
    counts = {ours: options[theirs] for theirs, ours in _REQUESTS.items() if is_whole(options.get(theirs))}
    return reading.found({name: count for name, count in counts.items() if count >= (name == "samples")})


def _with_list_of_builds(info: Any) -> Any:
    """Put the build of each config into a list, where all files but batches have it."""
    if not isinstance(info, dict) or not isinstance(info.get("config"), list):
        return info
    configs = []
    for config in info["config"]:
        has_build = isinstance(config, dict) and isinstance(config.get("build"), dict) and config["build"]
        configs.append({**config, "build": [config["build"]]} if has_build else config)
    return {**info, "config": configs}


PARAM = _Param()
