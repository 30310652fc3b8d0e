"""The action: its file is well formed, and its steps do what they say when a shell runs them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from actions_shell import run_step

HERE = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((HERE / "action.yml").read_text())
STEPS: dict[str, dict[str, Any]] = {step["name"]: step for step in ACTION["runs"]["steps"]}
SMALL = "exp add --size small --backend null --effort quick --processes 5"


def known(**given: str) -> dict[str, str]:
    inputs = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()}
    return {f"inputs.{name}": text for name, text in {**inputs, "arguments": SMALL, **given}.items()}


def test_it_has_what_a_composite_action_needs() -> None:
    assert {"name", "description", "inputs", "runs"} <= ACTION.keys()
    assert ACTION["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" for step in STEPS.values() if "run" in step)
    assert all("description" in one for one in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))


def test_inputs_are_used_and_exist_and_none_gets_into_a_script() -> None:
    text = (HERE / "action.yml").read_text()
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    assert [name for name, step in STEPS.items() if "${{" in step.get("run", "")] == []


def test_the_readme_names_every_input_with_its_default() -> None:
    rows = [line for line in (HERE / "README.md").read_text().splitlines() if line.startswith("| `")]
    for name, one in ACTION["inputs"].items():
        (row,) = [line for line in rows if f"`{name}`" in line.split("|")[1]]
        assert f"`{one['default']}`" in row


def test_a_baseline_is_measured_and_then_held_against(tmp_path: Path) -> None:
    measured = run_step(STEPS["Measure"], known(command="run"), tmp_path)
    assert measured.returncode == 0, measured.stderr
    assert (tmp_path / "opmark.db").exists()
    checked = run_step(STEPS["Measure"], known(), tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "opmark: passed" in (tmp_path / "opmark.md").read_text()
    assert "opmark: passed" in (tmp_path / "step-summary.md").read_text()
    assert (tmp_path / "opmark.xml").read_text().startswith("<?xml")
    assert (tmp_path / "output.txt").read_text().split() == ["exit-code=0", "exit-code=0"]


def test_a_night_is_what_its_file_says(tmp_path: Path) -> None:
    job = "{name: small, ops: [exp], size: small, backend: 'null', effort: quick}"
    (tmp_path / "n.yaml").write_text(f"schema: 1\njobs: [{job}]\n")
    done = run_step(STEPS["Measure"], known(command="nightly", arguments="n.yaml"), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "passed" in (tmp_path / "step-summary.md").read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"command": "bench"}, "command is check, run or nightly, got 'bench'"),
        ({"baseline": "nowhere"}, "error: "),
        ({"arguments": "$(touch stolen) `touch stolen`; touch stolen"}, "error: "),
    ],
)
def test_a_mistake_ends_with_2_and_nothing_else_is_run(tmp_path: Path, given: dict[str, str], message: str) -> None:
    done = run_step(STEPS["Measure"], known(**given), tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stdout + done.stderr
    assert (tmp_path / "output.txt").read_text() == "exit-code=2\n"
    assert not (tmp_path / "stolen").exists()


def test_the_step_that_installs_passes_the_requirement_as_one_word() -> None:
    step = STEPS["Install opmark"]
    assert step["run"].endswith('"$INSTALL"')
    assert step["if"] == "${{ inputs.install != '' }}"
