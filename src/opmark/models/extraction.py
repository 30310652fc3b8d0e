"""Extraction: the operators that a model calls, as entries of a workload. A child process finds them."""

from __future__ import annotations

from typing import Literal

import msgspec

from opmark.models.facts import ask_child, kept_file, read_kept, write_kept
from opmark.models.source import ModelSource
from opmark.plugin import Params
from opmark.schema import Entry, ImportProblem

Graph = Literal["torch", "onnx"]


class Extraction(msgspec.Struct, frozen=True):
    entries: list[Entry]
    """Each distinct operator once, with its count, in the order of the first call."""
    calls: int
    """Number of calls of these operators."""
    views: int = 0
    """Number of calls that only make views of tensors and move no data."""
    computed: bool = False
    """Whether the model was computed: by default its operators are found without data."""
    problems: list[ImportProblem] = []
    """Calls that cannot be written as an entry."""


def extract_operators(
    source: ModelSource, params: Params, graph: Graph = "torch", device: str = "cpu", *, real: bool = False
) -> Extraction:
    """Return the operators of a case; what was found is kept until the model or torch changes."""
    options = {"graph": graph, "device": device, "real": real}
    kept = kept_file(source, {**params, **options}, "operators")
    found: Extraction | None = read_kept(kept, Extraction)
    if found is None:
        found = ask_child("operators", source, params, Extraction, **options)
        write_kept(kept, found)
    return found
