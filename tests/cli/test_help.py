"""Help that leads: panels by task, examples, first steps, completion, suggestions."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from opmark.cli.app import COMMANDS, PANELS, make_app
from opmark.cli.completion import SHELLS
from opmark.cli.help_text import EXAMPLES
from opmark.cli.interop import FOREIGN_COMMANDS

APP: Any = typer.main.get_command(make_app())
Command = Callable[..., Any]


def sections(text: str) -> dict[str, list[str]]:
    """The names that each panel of a help text begins its lines with."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in text.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            title = line.removesuffix(":")
        elif title and line.startswith("  ") and line[2:3].strip():
            found.setdefault(title, []).append(line.split()[0].rstrip(","))
    return found


def test_commands_stand_in_panels_by_task_and_each_has_one(main: Command) -> None:
    found = sections(main("--help").out)
    assert {title: names for title, names in found.items() if title in PANELS} == {
        title: list(names) for title, names in PANELS.items()
    }
    listed = [name for names in PANELS.values() for name in names]
    assert sorted(listed) == sorted([*COMMANDS, *FOREIGN_COMMANDS])


def test_no_summary_of_a_command_is_cut(main: Command) -> None:
    text = main("--help").out
    assert "..." not in text.partition("Measure:")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_opmark_alone_says_what_to_try_first(main: Command) -> None:
    done = main()
    assert done.code == 0
    tried = [line for line in done.out.splitlines() if line.startswith("  opmark ")]
    assert tried[0].split()[:3] == ["opmark", "run", "matmul"]
    for line in tried:
        parse(line.partition("#")[0])
    assert "`opmark --help` lists all commands" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def parse(line: str) -> None:
    """Raise an error if the command line has an unknown command, option or argument; nothing is run."""
    program, name, *words = shlex.split(line)
    assert program == "opmark"
    with APP.make_context("opmark", [name], resilient_parsing=True) as root:
        command = APP.get_command(root, name)
        with command.make_context(name, words, parent=root) as context:
            rest = [*getattr(context, "_protected_args", []), *context.args]
            if rest:
                command.get_command(context, rest[0]).make_context(rest[0], rest[1:], parent=context)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_can_be_typed(main: Command, name: str) -> None:
    text = main(name, "--help").out
    for line in EXAMPLES[name]:
        assert f"  {line}\n" in text
        parse(line)


@pytest.mark.parametrize("name", ["run", "ab", "check", "bisect"])
def test_options_stand_in_panels_the_common_ones_first(main: Command, name: str) -> None:
    found = sections(main(name, "--help").out)
    titles = [title for title in found if title not in ("Usage", "Examples")]
    assert titles[:2] == ["Arguments", "Common options"]
    assert {"Which cases", "How to measure", "Where it is kept", "Output"} <= {*titles}
    assert {"--suite", "--backend", "--effort"} <= {*found["Common options"]}
    options = [option for title in titles[1:] for option in found[title]]
    assert len(options) == len(set(options))
    assert max(len(found[title]) for title in titles) < 25


def test_a_command_with_few_options_has_one_panel(main: Command) -> None:
    assert "Options" in sections(main("rank", "--help").out)


# Completion: a shell calls opmark with what was typed.


def completions(*typed: str, **environ: str) -> list[str]:
    command = [sys.executable, "-c", "from opmark.cli.main import main; main()"]
    asked = {"_OPMARK_COMPLETE": "complete_bash", "COMP_WORDS": shlex.join(typed), "COMP_CWORD": str(len(typed) - 1)}
    if not typed[-1]:
        asked["COMP_WORDS"] = shlex.join(typed[:-1]) + " "
    done = subprocess.run(
        command, env={**os.environ, **asked, **environ}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("opmark", "cal"), ["calibrate"]),
        (("opmark", "run", "soft_marg"), ["soft_margin_loss"]),
        (("opmark", "run", "exp,soft_marg"), ["exp,soft_margin_loss"]),
        (("opmark", "run", "--suite", "qui"), ["quick"]),
        (("opmark", "run", "exp", "--backend", "numpy"), ["numpy-cpu"]),
        (("opmark", "run", "matmul", "-p", ""), ["M=", "N=", "K="]),
        (("opmark", "run", "matmul", "-p", "dtype=bf"), ["dtype=bfloat16"]),
        (("opmark", "run", "matmul", "--param", "dtype=bf"), ["dtype=bfloat16"]),
        (("opmark", "run", "--effo"), ["--effort"]),
        (("opmark", "list", "chi"), ["chips"]),
    ],
)
def test_a_shell_completes(typed: tuple[str, ...], offered: list[str]) -> None:
    found = completions(*typed)
    assert found[: len(offered)] == offered or {*offered} <= {*found}


def test_a_shell_completes_labels_of_the_store(main: Command, db: Path) -> None:
    assert main("run", "exp", "--size", "small", "--backend", "null", "--label", "nightly").code == 0
    assert completions("opmark", "show", "nig") == ["nightly"]
    assert completions("opmark", "check", "--baseline", "nig") == ["nightly"]


def test_a_store_that_is_not_there_offers_nothing(tmp_path: Path) -> None:
    assert completions("opmark", "show", "x", OPMARK_DB=str(tmp_path / "none.db")) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_for_a_shell_is_printed(main: Command, shell: str) -> None:
    done = main("--completion", shell)
    assert done.code == 0
    assert "_OPMARK_COMPLETE" in done.out


def test_an_unknown_shell_is_refused(main: Command) -> None:
    done = main("--completion", "csh")
    assert done.code == 2
    assert "no shell named `csh`" in done.err


# Suggestions and hints.


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("pytorch", "torch-cpu"),
        ("torch", "torch-cpu"),
        ("cuda", "torch-cuda"),
        ("gpu", "torch-cuda"),
        ("pytorch-gpu", "torch-cuda"),
        ("onnx", "onnxruntime-cpu"),
        ("tensorflow", "tensorflow-cpu"),
        ("torch-cdua", "torch-cuda"),
    ],
)
def test_the_backend_that_was_meant_is_suggested(main: Command, given: str, meant: str) -> None:
    done = main("run", "exp", "--backend", given)
    assert done.code == 2
    assert f"did you mean `{meant}`?" in done.err


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        (["torch.add"], "as in --args '[8x64 float32, 2]'"),
        (["torch.add", "--args", "8x64"], "as in --args '[8x64 float32, 2]'"),
        (["torch.add", "--kwargs", "3"], "as in --kwargs '{dim: 1}'"),
    ],
)
def test_a_hint_is_what_can_be_typed_here(main: Command, typed: list[str], hint: str) -> None:
    done = main("run", *typed)
    assert done.code == 2
    assert hint in done.err


def test_chips_are_listed_by_either_name(main: Command) -> None:
    chips = main("list", "chips")
    assert chips.code == 0
    assert "H200" in chips.out
    assert main("list", "hardware").out == chips.out
