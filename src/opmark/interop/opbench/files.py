"""OpBench's folder of results, in JSON that can be read: data/ConfigSpace and data/Performance."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from opmark.errors import UserError


class ResultFolder:
    """Files of one model on one target: data/ConfigSpace/MODEL-TARGET.json and so on."""

    def __init__(self, output: Path, model: str, target: str) -> None:
        self.output, self.model, self.target = output, model, target
        self.written: list[Path] = []

    def write_space(self, content: Mapping[str, Any]) -> Path:
        return self._write("ConfigSpace", f"{self.model}-{self.target}.json", _json(content))

    def write_operators(self, content: Mapping[str, Any]) -> Path:
        return self._write("Performance", f"{self.model}-{self.target}-operators.json", _json(content))

    def write_log(self, tuner: str, lines: str) -> Path:
        """Write what was tuned as lines of AutoTVM's log, under OpBench's name."""
        return self._write("Performance", f"{self.model}-{tuner}-{self.target}-autotvm.json", lines)

    def write_tuned(self, tuner: str, content: Any) -> Path:
        return self._write("Performance", f"{self.model}-{tuner}-{self.target}-tuned.json", _json(content))

    def write_comparison(self, tuner: str, content: Mapping[str, Any]) -> Path:
        return self._write("Performance", f"{self.model}-{tuner}-{self.target}-compare.json", _json(content))

    def write_partial(self, tuner: str, times: Mapping[int, float | None]) -> Path:
        """Write OpBench's table of the model's time in milliseconds after so many trials."""
        heads = ",".join(map(str, ("modelname", "tuner", *times)))
        cells = ["" if one is None else repr(one * 1e3) for one in times.values()]
        return self._write("Performance", f"{self.model}-{tuner}-{self.target}-partial.csv",
                           f"{heads}\n{','.join((self.model, tuner, *cells))}\n")  # fmt: skip

    def _write(self, folder: str, name: str, text: str) -> Path:
        """Write a file whole or not at all; one of an earlier run is replaced."""
        path = self.output / "data" / folder / name
        part = path.with_name(f".{name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(text, encoding="utf-8")
            part.replace(path)
        except OSError as error:
            raise UserError(f"--output: {path} cannot be written: {error.strerror}", "name another folder") from None
        self.written.append(path)
        return path


def _json(content: Any) -> str:
    return json.dumps(msgspec.to_builtins(content), indent=1, ensure_ascii=False) + "\n"
