"""Aliases in YAML: a short file may mean more values than fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from opmark.catalogue.workload_file import read_yaml
from opmark.errors import InvalidFile
from opmark.hardware.datasheets import read_sheet
from opmark.schema.codec import MOST_ALIASED, why_too_many_aliases

READERS = pytest.mark.parametrize("read", [read_yaml, read_sheet])


def bomb(levels: int, merge: bool = False) -> str:
    lines = ["a0: &a0 {x: 1}" if merge else "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]"]
    for level in range(1, levels):
        eight = ", ".join([f"*a{level - 1}"] * 8)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{eight}]}}" if merge else f"[{eight}]"))
    return "\n".join(lines)


@READERS
@pytest.mark.parametrize("merge", [False, True], ids=["lists", "merged mappings"])
def test_aliases_that_explode_are_refused(read: Callable[[str, str], Any], merge: bool) -> None:
    text = bomb(40, merge)
    with pytest.raises(InvalidFile, match=r"x\.yaml:1:1: aliases stand for [\d,]+ values, at most 100,000 are read"):
        read(text, "x.yaml")


@READERS
def test_an_alias_within_itself_is_refused(read: Callable[[str, str], Any]) -> None:
    for text in ("a: &a [1, *a]", "a: &a {b: {c: *a}}", "&a [*a]"):
        with pytest.raises(InvalidFile, match="an alias stands for a part of the document that it is in itself"):
            read(text, "x.yaml")


def test_aliases_of_a_usual_size_are_read() -> None:
    assert read_yaml("a: &a {x: 1}\nb: {<<: *a, y: [*a, *a]}", "x")["b"] == {"x": 1, "y": [{"x": 1}, {"x": 1}]}
    assert read_yaml("", "x") is None


@pytest.mark.parametrize(("items", "refused"), [(MOST_ALIASED - 1, False), (MOST_ALIASED + 1, True)])
def test_only_what_is_not_written_down_counts(items: int, refused: bool) -> None:
    scalar = yaml.ScalarNode("tag:yaml.org,2002:int", "1")
    written = [yaml.ScalarNode("tag:yaml.org,2002:int", "1") for _ in range(1000)]
    again = yaml.SequenceNode("tag:yaml.org,2002:seq", [scalar, *[scalar] * items, *written])
    assert bool(why_too_many_aliases(again)) is refused
