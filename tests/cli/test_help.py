"""Help that leads: panels by task, examples, first steps, completion, suggestions."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import which
from time import monotonic
from typing import Any

import pytest
import typer

from opmark.cli.app import COMMANDS, PANELS, make_app
from opmark.cli.completion import SHELLS, VALUES
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
                found, inner, left = command.resolve_command(context, rest)
                inner.make_context(found, left, parent=context)


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
        (("opmark", "rank", "--by", ""), ["operator", "dtype", "size", "case"]),
        (("opmark", "coverage", "--by", ""), ["framework", "backend"]),
        (("opmark", "report", "--format", ""), ["html", "md", "pdf"]),
        (("opmark", "import", "--format", "ven"), ["vendor-zoo"]),
        (("opmark", "compare", "--only", "slower,sam"), ["slower,same"]),
        (("opmark", "run", "exp", "--quantity", "lat"), ["latency"]),
    ],
)
def test_a_shell_completes(typed: tuple[str, ...], offered: list[str]) -> None:
    found = completions(*typed)
    assert found[: len(offered)] == offered or {*offered} <= {*found}


def test_a_shell_completes_labels_of_the_store(main: Command, db: Path) -> None:
    assert main("run", "exp", "--size", "small", "--backend", "null", "--label", "nightly").code == 0
    assert completions("opmark", "show", "nig") == ["nightly"]
    assert completions("opmark", "check", "--baseline", "nig") == ["nightly"]
    assert completions("opmark", "runs", "label", "nig") == ["nightly"]


HOSTILE = r"nightly\`touch stolen\`"
"""A label that zsh would run: typer writes a backslash before each `, but not before a backslash."""


def test_a_label_that_a_shell_would_obey_is_not_offered(main: Command, db: Path) -> None:
    for label in (HOSTILE, "nightly; touch stolen", "nightly$(touch stolen)", "nightly"):
        assert (
            main("run", "exp", "--size", "small", "--backend", "null", "--effort", "quick", "--label", label).code == 0
        )
    assert completions("opmark", "show", "nig") == ["nightly"]
    found = completions("opmark", "show", "2", _OPMARK_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="opmark show 2")
    assert "\\\\" not in " ".join(found), "texts beside the ids"


def test_what_is_offered_is_what_the_help_of_the_option_says() -> None:
    for name in COMMANDS:
        command = APP.get_command(None, name)
        for param in command.params:
            own = VALUES.get(f"{name} {param.name}") or VALUES.get(param.name)
            if own is not None and own.__name__ == "<lambda>":  # a fixed list
                offered = [value for value, _ in own(None)]
                assert all(value in (param.help or "") for value in offered), (name, param.name)


def test_a_store_that_is_not_there_offers_nothing(tmp_path: Path) -> None:
    assert completions("opmark", "show", "x", OPMARK_DB=str(tmp_path / "none.db")) == []


# The scripts, in the shells themselves.


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`opmark` on the PATH, without an installation, and a home without configuration."""
    folder = tmp_path / "bin"
    folder.mkdir()
    source = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m opmark.cli.main "$@"\n'
    (folder / "opmark").write_text(source)
    (folder / "opmark").chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join((str(folder), os.environ["PATH"])))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    for name in ("HOME", "ZDOTDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)


TYPED = [
    ("opmark rank --by d", "dtype"),
    ("opmark run matmul -p dtype=bf", "dtype=bfloat16"),
    ("opmark cal", "calibrate"),
]


@pytest.mark.skipif(not which("bash"), reason="bash is not installed")
@pytest.mark.parametrize(("typed", "word"), TYPED)
def test_bash_completes(program: None, typed: str, word: str) -> None:
    asked = f"""
        eval "$(opmark --completion bash)"
        COMP_WORDS=({typed}) COMP_CWORD={len(typed.split()) - 1}
        _opmark_completion opmark
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == (word, "")


@pytest.mark.skipif(not which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(("typed", "word"), TYPED)
def test_fish_completes(program: None, typed: str, word: str) -> None:
    asked = f"opmark --completion fish | source; complete -C '{typed}'"
    done = subprocess.run(["fish", "-c", asked], capture_output=True, text=True, timeout=60, check=False)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [word]


@pytest.mark.skipif(not which("fish"), reason="fish is not installed")
def test_fish_offers_files_where_a_file_is_meant(program: None, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").touch()
    asked = "opmark --completion fish | source; complete -C 'opmark run -w min'"
    done = subprocess.run(["fish", "-c", asked], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["mine.yaml"]


def type_in_zsh(typed: str, until: str) -> str:
    """What a zsh without configuration shows after the script was evaluated, and this and the tabulator were typed."""
    import pty

    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="dumb", PS1="> ")
        os.execvp("zsh", ["zsh", "-f", "-i"])
    shown, ready, deadline = "", False, monotonic() + 60
    try:
        os.write(terminal, b'eval "$(opmark --completion zsh)"; echo rea""dy\n')
        while monotonic() < deadline and not (ready and until in shown):
            if select.select([terminal], [], [], 0.1)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")
            if not ready and "ready" in shown:
                ready, shown = True, ""
                os.write(terminal, f"{typed}\t".encode())
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    return shown


@pytest.mark.skipif(not which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize(("typed", "word"), TYPED)
def test_zsh_completes(program: None, typed: str, word: str) -> None:
    assert word in type_in_zsh(typed, word)


@pytest.mark.skipif(not which("zsh"), reason="zsh is not installed")
def test_zsh_obeys_no_label(program: None, main: Command, db: Path, tmp_path: Path) -> None:
    for label in (HOSTILE, "nightly-2"):
        assert (
            main("run", "exp", "--size", "small", "--backend", "null", "--effort", "quick", "--label", label).code == 0
        )
    assert "nightly-2" in type_in_zsh("opmark show nig", "nightly-2")
    assert not (tmp_path / "stolen").exists()


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
