"""benchmark.opperf.utils.common_utils: results of several calls in one dictionary, and files of them."""

from __future__ import annotations

import json
import os
from collections import ChainMap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opmark.errors import UnknownName
from opmark.interop.opperf.exporter import Profiler, csv_text, lines_in, markdown_text

_FORMATS = ("json", "md", "csv")


def merge_map_list(map_list: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one dictionary of all; of results under the same name, the first counts."""
    return dict(ChainMap(*map(dict, map_list)))


def save_to_file(
    inp_dict: Mapping[str, Any],
    out_filepath: str | os.PathLike[str],
    out_format: str = "json",
    runtime_features: Mapping[str, Any] | None = None,
    profiler: Profiler = "native",
) -> None:
    """Write results as JSON, or as a table in Markdown or CSV; a file that exists is overwritten."""
    if out_format == "json":
        text = json.dumps(inp_dict, indent=4, sort_keys=True)
    elif out_format == "md":
        text = markdown_text(lines_in(inp_dict), profiler, runtime_features or {})
    elif out_format == "csv":
        text = csv_text(lines_in(inp_dict), profiler)
    else:
        raise UnknownName("format of result files", out_format, _FORMATS)
    Path(out_filepath).write_text(text, encoding="utf-8")


def get_json(inp_dict: Mapping[str, Any]) -> str:
    return json.dumps(inp_dict, indent=4)
