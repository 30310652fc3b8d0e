"""Helpers for tests of `opmark param`: small configs, and a command with its result file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from opmark.interop.param.command import main

GENERATOR = "PyTorch:DefaultDataGenerator"


def tensor(*shape: int, dtype: str = "float", **more: Any) -> dict[str, Any]:
    return {"type": "tensor", "dtype": dtype, "shape": list(shape), **more}


def number(value: int) -> dict[str, Any]:
    return {"type": "int", "value": value}


def op(*inputs: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return an operator with one config, with one spec per list of arguments."""
    return {"input_data_generator": GENERATOR, "config": [{"input": [{"args": args} for args in inputs]}], **more}


ADD = {"torch.add": op([tensor(256, 256), tensor(256, 256)])}
THREE = {
    "torch.add": op([tensor(8, 8), number(1)], [tensor(8, 8), number(2)]),
    "torch.mm": op([tensor(8, 16), tensor(16, 4)]),
}
IDS = ["torch.add|0|0|0", "torch.add|0|0|1", "torch.mm|0|0|0"]


class Ran(NamedTuple):
    code: int
    file: Path
    lines: list[dict[str, Any]]

    @property
    def header(self) -> dict[str, Any]:
        return self.lines[0]

    @property
    def cases(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if "op_name" in line]

    @property
    def ids(self) -> list[str]:
        return [f"{line['op_name']}|{line['id']}" for line in self.cases]


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


class Command:
    """Runs `opmark param` in a folder of its own, on the null backend by default."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def config(self, content: Any, name: str = "config.json") -> Path:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return path

    def code(self, content: Any, *options: str) -> int:
        device = [] if {"-d", "--device"} & set(options) else ["-d", "null"]
        prefix = [] if {"-o", "--output-prefix"} & set(options) else ["-o", str(self.folder / "out")]
        return main(["-c", str(self.config(content)), *device, *prefix, *options])

    def __call__(self, content: Any, *options: str) -> Ran:
        """Return the run and its result file, which must be the only new one."""
        before = set(self.folder.glob("*.json"))
        code = self.code(content, *options)
        (file,) = set(self.folder.glob("*.json")) - before - {self.folder / "config.json"} - traces(self.folder)
        return Ran(code, file, lines_of(file))


def traces(folder: Path) -> set[Path]:
    return set(folder.glob("*_trace.json"))
