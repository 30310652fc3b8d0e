"""Documents are run: commands print what they are said to print, Python blocks work, and what documents name exists."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.core import TyperGroup

import opmark
from opmark.catalogue.expansion import expand
from opmark.cli.app import make_app
from opmark.cli.completion import SHELLS
from opmark.cli.interop import FOREIGN_COMMANDS
from opmark.hardware.host import host
from opmark.plugin import Operator
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import operator as find_operator
from opmark.plugin.registry import operators_like
from opmark.runner.workload_source import read_source
from opmark.schema import EFFORTS, Case, Settings, Task, Workload
from opmark.schema.codec import convert
from opmark.worker.verify.outputs import verify

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[1]
README, CONTRIBUTING, CHANGELOG = ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"
INDEX = ROOT / "docs" / "README.md"
DOCUMENTS = [README, CONTRIBUTING, ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]
"""The documents whose blocks are run."""
CHECKED = [*DOCUMENTS, CHANGELOG, ROOT / "benchmarks/README.md", *sorted(ROOT.glob("plugins/*/README.md"))]
"""The documents in which links lead somewhere and whatever they name exists."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")
SECTION = re.compile(r"\]\(([^)#:]*)#([^)]+)\)")
"""A link to a section of this or another document."""
# Numbers with their units, warning marks and padding differ from run to run; the words do not. What a fit over sizes
# can tell, and what it remarks, depends on the noise: its rows, as `4: 8..16M`, are left out.
MOOD = re.compile(
    r"^! |^run: .* so far|^  hint:|^stored as|to be doubted|^ *\"Run\": "
    r"| \d+: \d+[KMG]?\.\.\d+[KMG]? "
)
BUSY = re.compile(r"^! |\bdisturbed\b", re.MULTILINE)
LEFT_OUT = "…"
LISTED = re.compile(r'"Warnings": \[[^]]*\]')
DOUBTED = re.compile(r" \([a-z]+(-[a-z]+)?(, [a-z]+(-[a-z]+)?)*\)$")
CPU = "AMD EPYC"
"""The processor that the documents were written on."""
VARYING_NAME = re.compile(r"0x[0-9a-f]+|\b\d{8}-\d{6}-[0-9a-f]{4,8}\b")
"""Addresses, ids of runs."""
VARYING = re.compile(
    r"[<(]?[\d.,]+(e[+-]?\d+)?(–[\d.]+)?( ?(ns|µs|ms|s|KiB|MiB|B|%)\b)?|(?<=: latency )(ns|µs|ms|s)$| !+|\s+"
)


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
    stranger = "schema: 1\nname: stranger\ncases:\n  - {op: os:system, args: [{value: ls}]}\n"
    (tmp_path / "stranger.yaml").write_text(stranger)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    assert commands, name
    for part in commands:
        command, _, expected = part.partition("\n")
        wanted = words(expected)
        for _ in range(3):
            output = run(command, tmp_path)
            printed = abridged(words(output), wanted)
            # On a busy machine numbers are doubted or disturbed, and with them what is said of them.
            if printed == wanted or not BUSY.search(output):
                break
        assert printed == wanted, command


def test_the_readme_shows_rows_of_the_quick_suite() -> None:
    """The table has every case of the suite, in the order in which `make run` prints them, on 100 columns."""
    (shown,) = [text for kind, text in BLOCK.findall(README.read_text()) if kind == "text"]
    assert max(map(len, shown.splitlines())) <= 100
    table, folded = shown.partition("\nno room for ")[0], 1
    while folded:  # a name may take several lines
        table, folded = re.subn(r"(   .*)\n  (\S.*)", r" \2\1", table, count=1)
    above, _, *lines = table.splitlines()
    assert above == "torch-cpu ×2, latency warm; forward and float32 where a row says nothing else"
    plan = run("opmark run --suite quick --dry-run", ROOT)
    planned = [_planned_words(line) for line in plan.splitlines() if " torch-cpu " in line]
    assert [_shown_words(line) for line in lines] == planned


def _shown_words(row: str) -> list[str]:
    """The words that name a case: `M=N=256` is `M=256 N=256`."""
    words = re.split(r"  +", row)[0].split()
    return [f"{name}={word.rpartition('=')[2]}" if name else word for word in words for name in _names(word)]


def _names(word: str) -> list[str]:
    return word.split("=")[:-1] or [""]


def _planned_words(line: str) -> list[str]:
    """The same of a line of a plan, without what is usual."""
    case, _, rest = line.partition(" torch-cpu ")
    phase = re.search(r"\b(forward|backward|both)\b", rest)
    assert phase, line
    return [word for word in (*case.split(), phase[0]) if word not in ("float32", "forward")]


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
    first, step, sweep, functions = (convert(data, Workload, "guide") for data in own)
    cases = expand(first, find_operator)
    assert [sum(case.op == op for case in cases) for op in ("matmul", "softmax", "conv2d")] == [24, 2, 2]
    weights = [(case.op, case.count, case.duration) for case in expand(step, find_operator)]
    assert weights == [("layer_norm", 25, 3.1e-5), ("matmul", 12, None)]
    pools = expand(sweep, find_operator, match=operators_like)
    assert len(pools) == 2 * len({case.op for case in pools})
    assert {"max_pool2d", "avg_pool2d"} <= {case.op for case in pools}
    called = expand(functions, find_operator)
    assert [case.op for case in called] == ["torch.baddbmm"] * 8 + ["torch.nn.Conv2d"]
    assert called[-2].params["args"][0] == "16x256x256 float32"


@pytest.mark.parametrize("text", [text for name, text in blocks("yaml") if name == "switching.md"])
def test_foreign_files_of_the_guide_are_read(text: str, tmp_path: Path) -> None:
    (tmp_path / "foreign.yaml").write_text(text)
    taken = read_source(tmp_path / "foreign.yaml", strict=True)
    assert taken.foreign
    assert taken.cases


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    assert [target for target in LINK.findall(path.read_text()) if not (path.parent / target).exists()] == []
    sections = [
        (path.parent / target if target else path, anchor) for target, anchor in SECTION.findall(path.read_text())
    ]
    assert [anchor for target, anchor in sections if anchor not in anchors_of(target)] == []


def anchors_of(path: Path) -> set[str]:
    """Headings as addresses, in the way of GitHub: small letters, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_page_of_operators_is_what_the_catalogue_has() -> None:
    assert (ROOT / "docs" / "operators.md").read_text() == run("opmark list ops --markdown", ROOT)


# What documents name, in code font or as a path, has to exist.

FENCED = re.compile(r"^```(?:\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE_FONT = re.compile(r"`([^`\n]+)`")
PUBLIC_NAME = re.compile(r"(?<![\w./~-])opmark\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\(?)")
FILE_ENDINGS = {"db", "html", "json", "md", "xml"}
FIXTURE_METHODS = {"check_function("}
"""Methods of the fixture `opmark` of plugins/pytest-opmark, beside those that are names of the package too."""
OPEN_GROUPS = {"opmark.param_iterators", "opmark.param_generators"}
"""Groups of entry points that plug-ins may fill, and that neither opmark nor the example fills."""
REPOSITORY_PATH = re.compile(r"(?<![\w./-])(?:\.ci|benchmarks|docs|examples|plugins|src|tests)/[\w./-]*\w/?")
SOURCE_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*(?:/|\.py)|[\w.-]+(?:/[\w.-]+)+\.(?:css|html|js|yaml)")
COMMAND_LINE = re.compile(r"^(?:node-\w)?(?:\$ )?(?:(?:[A-Z_]+=|torchrun |srun |mpirun |mpiexec ).* )?opmark (.*)$")
ABOUT_OTHER_SYSTEMS = "switching.md"
"""The guide that names files of other systems."""
by_document = pytest.mark.parametrize("path", CHECKED, ids=lambda path: str(path.relative_to(ROOT)))


def text_of(path: Path) -> str:
    """The text of a document; of the changelog only the newest section, since older ones name what there was then."""
    text = path.read_text()
    return "\n## ".join(text.split("\n## ")[:2]) if path == CHANGELOG else text


def code_of(path: Path) -> Iterator[str]:
    """Everything in code font: pieces within lines, in blocks too, and the lines of blocks."""
    text = text_of(path)
    yield from CODE_FONT.findall(text)
    for block in FENCED.findall(text):
        yield from block.splitlines()


@by_document
def test_names_of_the_package_exist(path: Path) -> None:
    named = {name for code in code_of(path) for name in PUBLIC_NAME.findall(code)}
    assert sorted(f"opmark.{name}" for name in named if not is_name(name)) == []


def is_name(name: str) -> bool:
    """True for an attribute or a module of opmark, a group of entry points, and a file such as `opmark.db`.

    A name with a bracket behind it has to be callable: `opmark.report` is a package, `opmark.report(...)` is nothing.
    """
    if f"opmark.{name}" in entry_point_groups() or name in FILE_ENDINGS | FIXTURE_METHODS:
        return True
    module = "opmark"
    found: Any = opmark
    for part in name.rstrip("(").split("."):
        if has_module(f"{module}.{part}"):
            module = f"{module}.{part}"  # not imported: a module may bring a framework along
            found = None
        else:
            found = getattr(found or import_module(module), part, MISSING)
    return found is not MISSING and (callable(found) or not name.endswith("("))


MISSING = object()


def test_functions_are_in_the_module_that_the_library_page_names() -> None:
    """Rows of its table: one module or several, then their functions with arguments."""
    text = (ROOT / "docs" / "library.md").read_text()
    rows = re.findall(r"^\| (`opmark\.(?:api|report)\..*?) \| (.*) \|$", text, re.MULTILINE)
    assert rows
    for modules, functions in rows:
        names = re.findall(r"`(\w+)\(", functions)
        assert names
        owners = [import_module(module) for module in CODE_FONT.findall(modules)]
        assert [name for name in names if not any(callable(getattr(one, name, None)) for one in owners)] == []


def has_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # what should contain it is no package
        return False


@cache
def entry_point_groups() -> frozenset[str]:
    text = (ROOT / "pyproject.toml").read_text() + (ROOT / "plugins/opmark-example-npu/pyproject.toml").read_text()
    return frozenset(re.findall(r'^\[project\.entry-points\."([\w.]+)"\]', text, re.MULTILINE)) | OPEN_GROUPS


@by_document
def test_paths_exist(path: Path) -> None:
    prose = FENCED.sub("", text_of(path))
    named = set(REPOSITORY_PATH.findall(re.sub(r"\]\([^)]*\)", "]", prose)))  # links are checked above
    if path.name != ABOUT_OTHER_SYSTEMS:
        named |= {code for code in CODE_FONT.findall(prose) if SOURCE_PATH.fullmatch(code)}
    assert sorted(name for name in named if not is_path(name, path.parent)) == []


def is_path(name: str, folder: Path) -> bool:
    """True for a path in the repository, in a package or beside the document; NAME stands for any file or folder."""
    pattern = name.replace("NAME", "*")
    if "/" not in name.rstrip("/") and name.endswith(".py"):
        return any((ROOT / "src").rglob(pattern)) or any((ROOT / "plugins").rglob(pattern))
    places = (ROOT, ROOT / "src", ROOT / "src" / "opmark", *ROOT.glob("plugins/*/src/*"), folder)
    return any(any(place.glob(pattern)) for place in places)


@by_document
def test_targets_of_make_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert sorted({target for code in code_of(path) for target in targets_in(code)} - targets) == []


def targets_in(code: str) -> list[str]:
    """The targets of a command `make`; none where the Makefile is another one (`make -C kernels`)."""
    words = code.partition(" #")[0].split()
    return [word for word in words[1:] if "=" not in word] if words[:1] == ["make"] and "-C" not in words else []


def test_the_readme_is_short() -> None:
    lines = README.read_text().splitlines()
    assert len(lines) <= 200
    assert [line for line in lines if len(line) > 140 and not line.startswith("<picture>")] == []


def test_the_index_has_every_guide() -> None:
    linked = {(INDEX.parent / target).resolve() for target in LINK.findall(INDEX.read_text())}
    guides = sorted({*INDEX.parent.glob("*.md")} - {INDEX})
    assert [path.name for path in guides if path.resolve() not in linked] == []


def test_ci_runs_what_the_documents_say() -> None:
    commands = [line for line in (ROOT / ".ci" / "run").read_text().splitlines() if not re.match(r" *(#|echo )", line)]
    words = {word for line in commands for word in re.findall(r"[a-z][a-z-]*", line)}
    targets = sorted(words & set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)))
    assert {"test", "test-guests"} <= set(targets)
    said = [
        sorted(target for code in CODE_FONT.findall(paragraph) for target in targets_in(code))
        for path in (README, CONTRIBUTING)
        for paragraph in path.read_text().split("\n\n")
        if "`.ci/run` runs" in paragraph
    ]
    assert said
    assert [one for one in said if one != targets] == []


@by_document
def test_commands_and_their_options_exist(path: Path) -> None:
    lines = [found[1] for code in code_of(path) if (found := COMMAND_LINE.match(code))]
    assert sorted({mistake for line in lines for mistake in mistakes_in(line)}) == []


def mistakes_in(line: str) -> Iterator[str]:
    """Commands and options in the arguments of `opmark` that do not exist."""
    line = re.split(r" #| \| | > | && |; ", line)[0]
    try:
        words = shlex.split(line)
    except ValueError:  # a quotation that ends on another line
        words = line.split()
    name = ""
    for word in words:
        if word.startswith("-"):
            option = word.partition("=")[0]
            if re.fullmatch(r"--[a-z][\w-]*|-[a-zA-Z]", option) and option not in options_of(name):
                yield " ".join(filter(None, ("opmark", name, option)))
        elif find_command(f"{name} {word}".strip()):
            name = f"{name} {word}".strip()
        elif not name:
            if word not in SHELLS:  # the value of `opmark --completion`
                yield f"opmark {word}"
            return


COMMANDS: Any = typer.main.get_command(make_app())


def find_command(name: str) -> Any:
    """A command or a group of commands; nothing where there is none of this name. The name "" is opmark itself."""
    found = COMMANDS
    for word in name.split():
        found = found.get_command(None, word) if isinstance(found, TyperGroup) else None
    return found or name in ("param comms", "param driver")


@cache
def options_of(name: str) -> frozenset[str]:
    if name.partition(" ")[0] in FOREIGN_COMMANDS:  # they have parsers of their own
        return frozenset(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", run(f"opmark {name} --help", ROOT)))
    found = [option for parameter in find_command(name).params for option in parameter.opts + parameter.secondary_opts]
    return frozenset([*found, "--help"])
