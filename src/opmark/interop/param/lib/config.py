"""PARAM's lib.config: a config of several operators, and the iterators and generators of each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from opmark.catalogue.workload_file import read
from opmark.interop.param.lib.data import data_generator_map
from opmark.interop.param.lib.init_helper import get_logger
from opmark.interop.param.lib.iterator import DefaultConfigIterator, config_iterator_map
from opmark.interop.param.lib.operator import OperatorInterface, op_map
from opmark.interop.param.lib.pytorch.operator_impl import TorchOperator


class OperatorConfig:
    """An operator, its part of a config, and the classes that the config names."""

    def __init__(self, name: str, info: dict[str, Any], op: OperatorInterface | None = None) -> None:
        self.name, self.info, self.op = name, info, op
        self.build_iterator: Any = DefaultConfigIterator
        self.input_iterator: Any = DefaultConfigIterator
        self.build_data_generator: Any = None
        self.input_data_generator: Any = None

    @property
    def config(self) -> Any:
        return self.info["config"]


def make_op_config(op_name: str, op_info: dict[str, Any], device: str) -> OperatorConfig | None:
    """Return the config of an operator; None, with a warning, if its input has no data generator."""
    op = op_map.get(op_name) or TorchOperator(op_name)
    op.device = device
    found = OperatorConfig(op_name, op_info, op)
    for key, known in (("iterator", config_iterator_map), ("data_generator", data_generator_map)):
        for part in ("build", "input"):
            name = op_info.get(f"{part}_{key}")
            if name and name in known:
                setattr(found, f"{part}_{key}", known[name])
            elif name:
                get_logger().warning(f"{op_name} has an unknown {part}_{key}: {name}")
    if not found.input_data_generator:
        get_logger().warning(f"{op_name} has invalid input_data_generator: {op_info.get('input_data_generator')}")
        return None
    return found


class BenchmarkConfig:
    """A config as it is loaded, and its operators."""

    def __init__(self, run_options: dict[str, Any]) -> None:
        self.run_options = run_options
        self.bench_config: dict[str, Any] = {}
        self.op_configs: list[OperatorConfig] = []

    def load_json_file(self, config_file_name: str | os.PathLike[str]) -> None:
        self.load(read(Path(config_file_name)))

    def load_json(self, config_json: str) -> None:
        self.load(json.loads(config_json))

    def load(self, config: Mapping[str, Any]) -> None:
        self.bench_config = deepcopy(dict(config))
        made = (make_op_config(name, info, self.run_options["device"]) for name, info in self.bench_config.items())
        self.op_configs += [found for found in made if found is not None]

    def has_op(self, op: str) -> bool:
        return any(found.name == op for found in self.op_configs)
