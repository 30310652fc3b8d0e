"""Documents are run: commands print what they are said to print, and Python blocks work."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest
import yaml

from opmark.hardware.detect import host
from opmark.registry import backend as find_backend
from opmark.registry import operator as find_operator
from opmark.registry import operators_like
from opmark.runner.check import verify
from opmark.runner.intake import take_in
from opmark.schema import EFFORTS, Case, Operator, Settings, Task, Workload
from opmark.schema.codec import convert
from opmark.workloads.expand import expand

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
# Numbers with their units, warning marks and padding differ from run to run; the words do not. What a fit over sizes
# can tell, and what it remarks, depends on the noise: its rows, as `4: 8..16M`, are left out.
MOOD = re.compile(r"^! |^  hint:|^stored as|to be doubted|^ *\"Run\": | \d+: \d+[KMG]?\.\.\d+[KMG]? ")
LEFT_OUT = "…"
LISTED = re.compile(r'"Warnings": \[[^]]*\]')
DOUBTED = re.compile(r" \([a-z]+(-[a-z]+)?(, [a-z]+(-[a-z]+)?)*\)$")
CPU = "AMD EPYC"
"""The processor that the documents were written on."""
VARYING_NAME = re.compile(r"0x[0-9a-f]+|\b\d{8}-\d{6}-[0-9a-f]{4,8}\b")
"""Addresses, ids of runs."""
VARYING = re.compile(r"[<(]?[\d.,]+(–[\d.]+)?( ?(ns|µs|ms|s|KiB|MiB|B|%)\b)?| !+|\s+")


def blocks(language: str) -> list[tuple[str, str]]:
    found = [
        (path.name, text) for path in DOCUMENTS for kind, text in BLOCK.findall(path.read_text()) if kind == language
    ]
    assert found, language
    return found


# A block of output right behind one of Python is what that prints.
_PAIR = re.compile(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = {code: output for path in DOCUMENTS for code, output in _PAIR.findall(path.read_text())}


def words(text: str) -> list[str]:
    """The lines of an output without what varies; warnings depend on the machine's mood and are left out."""
    text = VARYING_NAME.sub("", text.replace(str(host()["cpu"]), CPU)).replace("...", LEFT_OUT)
    text = LISTED.sub('"Warnings": []', text)
    lines = [line for line in text.splitlines() if line.strip() and not MOOD.search(line)]
    return [" ".join(VARYING.sub(" ", DOUBTED.sub("", line)).split()) for line in lines]


def abridged(lines: list[str], expected: list[str]) -> list[str]:
    """With `...` where the document leaves something out: whole lines, or the rest of one."""
    if LEFT_OUT in expected:
        at = expected.index(LEFT_OUT)
        behind = len(expected) - at - 1
        lines = [*lines[:at], LEFT_OUT, *(lines[len(lines) - behind :] if behind else [])]
    return [
        wanted if wanted.endswith(LEFT_OUT) and line.startswith(wanted.removesuffix(LEFT_OUT)) else line
        for line, wanted in zip_longest(lines, expected, fillvalue="")
    ]


def run(command: str, folder: Path) -> str:
    """Standard output and standard error, as on a terminal."""
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        shlex.split(command), cwd=folder, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=120, check=False,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize(("name", "text"), blocks("console"))
def test_commands_print_what_the_document_says(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "typo.yaml").write_text("schema: 1\nname: typo\ncases:\n  - op: matmul\n    parms: {M: 1}\n")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    assert commands, name
    for part in commands:
        command, _, expected = part.partition("\n")
        printed = words(run(command, tmp_path))
        assert abridged(printed, words(expected)) == words(expected), command


def test_the_readme_shows_every_case_of_the_quick_suite() -> None:
    (shown,) = [text for kind, text in BLOCK.findall((ROOT / "README.md").read_text()) if kind == "text"]
    suite = yaml.safe_load((ROOT / "src/opmark/workloads/suites/quick.yaml").read_text())
    cases = expand(convert(suite, Workload, "quick"), find_operator)
    rows = [line.split()[0] for line in shown.splitlines()[1:] if " torch-cpu " in line]
    assert rows == [case.op for case in cases]


@pytest.mark.parametrize(("name", "text"), blocks("python"))
def test_python_blocks_run(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "block"}
    exec(compile(text, name, "exec"), scope)
    if expected := PRINTED.get(text):
        assert abridged(words(capsys.readouterr().out), words(expected)) == words(expected)
    for operator in scope.get("OPERATORS", ()):  # type: ignore[attr-defined]
        check(operator)


def check(operator: Operator) -> None:
    """The operator of the guide is right, forward and backward, wherever it claims to run."""
    params = operator.complete(operator.preset("small"))
    settings = Settings(1, "quick", EFFORTS["quick"])
    for name, phase in (("numpy-cpu", "forward"), ("torch-cpu", "forward"), ("torch-cpu", "backward")):
        info = find_backend(name)
        task = Task(Case.of(operator.name, params, phase), name, info.framework, settings)  # type: ignore[arg-type]
        (implementation,) = operator.implementations_for(info.framework)
        assert verify(task, operator, implementation, info.load(1)).checked == "full"


def test_the_workload_of_the_guide_expands_as_it_says() -> None:
    own = [yaml.safe_load(text) for name, text in blocks("yaml") if name != "switching.md"]
    first, sweep, functions = (convert(data, Workload, "guide") for data in own)
    cases = expand(first, find_operator)
    assert [sum(case.op == op for case in cases) for op in ("matmul", "softmax", "conv2d")] == [24, 2, 2]
    pools = expand(sweep, find_operator, match=operators_like)
    assert len(pools) == 2 * len({case.op for case in pools})
    assert {"max_pool2d", "avg_pool2d"} <= {case.op for case in pools}
    called = expand(functions, find_operator)
    assert [case.op for case in called] == ["torch.baddbmm"] * 8 + ["torch.nn.Conv2d"]
    assert called[-2].params["args"][0] == "16x256x256 float32"


@pytest.mark.parametrize("text", [text for name, text in blocks("yaml") if name == "switching.md"])
def test_foreign_files_of_the_guide_are_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "foreign.yaml").write_text(text)
    taken = take_in(tmp_path / "foreign.yaml", strict=True)
    assert taken.foreign
    assert taken.cases


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert [target for target in LINK.findall(path.read_text()) if not (path.parent / target).exists()] == []


def test_every_command_and_every_option_named_in_the_readme_exists() -> None:
    text = re.sub(r"^torchrun .*--no-python", "", (ROOT / "README.md").read_text(), flags=re.MULTILINE)  # not ours
    commands = {*re.findall(r"^(?:\$ )?opmark ([a-z-]+)", text, re.MULTILINE), "param comms"}
    assert {"run", "list", "describe", "show", "doctor"} <= commands
    options = set(re.findall(r"--[a-z][a-z-]+", text))
    helps = "".join(run(f"opmark {command} --help", ROOT) for command in sorted(commands))
    assert [option for option in sorted(options) if option not in helps] == []


def test_the_page_of_operators_is_what_the_catalogue_has() -> None:
    assert (ROOT / "docs" / "operators.md").read_text() == run("opmark list ops --markdown", ROOT)
