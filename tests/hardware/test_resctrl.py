"""Ways of the last-level cache, on a made-up file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmark.errors import UserError
from opmark.hardware.resctrl import join, remove_groups, way_range, why_not


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "schemata").write_text("    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n")
    (tmp_path / "info" / "L3").mkdir(parents=True)
    (tmp_path / "info" / "L3" / "min_cbm_bits").write_text("1\n")
    (tmp_path / "info" / "L3" / "cbm_mask").write_text("7ff\n")
    return tmp_path


def test_a_process_joins_the_group_of_its_ways(root: Path) -> None:
    assert why_not(root) == ""
    assert way_range(root) == (1, 11)
    join(4, root, pid=123)
    group = root / "opmark-ways-4"
    assert (group / "schemata").read_text() == "L3:0=f;1=f\n"
    assert (group / "tasks").read_text() == "123"


def test_a_group_goes_when_nobody_is_left_in_it(root: Path) -> None:
    join(2, root, pid=1)
    remove_groups(root)
    assert (root / "opmark-ways-2").is_dir()


def test_reasons(root: Path, tmp_path: Path) -> None:
    assert "the kernel has no resctrl" in why_not(tmp_path / "nowhere")
    (root / "schemata").write_text("MB:0=100\n")
    assert "does not share out the last-level cache" in why_not(root)
    (root / "schemata").unlink()
    assert "mount -t resctrl" in why_not(root)
    with pytest.raises(UserError, match="3 ways of the cache cannot be had: resctrl is not mounted"):
        join(3, root)
