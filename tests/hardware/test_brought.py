"""Hardware files of plug-ins: a package beside opmark, as an installer would leave it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path

import pytest

from opmark.hardware.datasheets import datasheet, datasheets
from opmark.plugin import registry

SHEET = (
    "schema: 1\nchips: [{chip: %s, source: me, flops: {float32: 1e12}, levels: [{name: memory, bandwidth: 1e11}]}]\n"
)


@pytest.fixture
def brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of the package `brought_chips.sheets`, whose files are read on first use."""
    site = tmp_path / "site"
    info, folder = site / "brought-1.0.dist-info", site / "brought_chips" / "sheets"
    info.mkdir(parents=True)
    folder.mkdir(parents=True)
    (site / "brought_chips" / "__init__.py").write_text("")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[opmark.hardware]\nbrought = brought_chips.sheets\n")
    monkeypatch.syspath_prepend(str(site))
    invalidate_caches()
    registry.forget()
    yield folder
    for name in [name for name in sys.modules if name.startswith("brought_chips")]:
        del sys.modules[name]
    monkeypatch.undo()
    registry.forget()


def test_a_chip_of_a_plug_in_is_found_by_its_name_and_listed(brought: Path) -> None:
    (brought / "mine.yaml").write_text(SHEET % "Strange 1")
    (brought / "notes.txt").write_text("not a hardware file")
    found = datasheet("Strange 1")
    assert found is not None
    assert found.flops == {"float32": 1e12}
    assert datasheets()[-1] == found


def test_a_chip_that_ships_stays_as_it_is(brought: Path) -> None:
    before = datasheet("TPU v5e")
    (brought / "mine.yaml").write_text(SHEET % "TPU v5e")
    registry.forget()
    assert datasheet("TPU v5e") == before


def test_a_broken_file_is_named_and_left_out(brought: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (brought / "broken.yaml").write_text("chips: [{chip: Strange 1}")
    (brought / "good.yaml").write_text(SHEET % "Strange 2")
    assert datasheet("Strange 1") is None
    assert datasheet("Strange 2") is not None
    said = capsys.readouterr().err.partition(": the hardware file of a plug-in is broken and skipped: ")[2]
    assert said.startswith("brought_chips.sheets/broken.yaml:")


def test_a_package_that_is_not_there_is_named_and_left_out(brought: Path, capsys: pytest.CaptureFixture[str]) -> None:
    brought.rmdir()
    registry.forget()
    assert datasheet("TPU v5e") is not None
    assert datasheet("Strange 1") is None
    assert "plug-in `brought` of `brought` (brought_chips.sheets) is broken" in capsys.readouterr().err
