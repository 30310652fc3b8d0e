"""docs/spaces.md lists every space that opmark ships, with its knobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from opmark.frameworks.tvm.operators import SCHEDULED
from opmark.plugin import Space
from opmark.plugin.registry import backend, backends, catalogue, implementations, operator

PAGE = Path(__file__).parents[2] / "docs" / "spaces.md"


def rows() -> Iterator[str]:
    """The rows of the tables: what has a space, and its knobs for the small preset of its operator."""
    for name, row in SCHEDULED.items():
        for kind in ("cpu", "cuda"):
            space = row.space(kind, operator(name).complete(operator(name).preset("small")))  # type: ignore[arg-type]
            yield f"| `{name}` | tvm-{kind} | {_knobs(space)} |"
    info = backend("triton-cuda")
    for name, known in catalogue().items():
        for one in implementations(known, info, every=True):
            if one.space:
                yield f"| `{name}` | triton-cuda | {_knobs(one.space(known.complete(known.preset('small'))))} |"
    conv = operator("conv2d")
    for name, info in backends().items():
        space = info.find_space(conv, conv.complete(conv.preset("small")))
        if space:
            yield f"| {name} | {_knobs(space)} |"


def _knobs(space: Space) -> str:
    return ", ".join(f"`{knob.name}`" for knob in space.knobs)


@pytest.mark.parametrize("row", [*rows()])
def test_the_page_has_every_space(row: str) -> None:
    assert row in PAGE.read_text()


def test_the_page_has_no_other_space() -> None:
    found = [line for line in PAGE.read_text().splitlines() if line.startswith("| `") or "-cpu | `" in line]
    assert [line for line in found if line not in {*rows()}] == []
