"""docs/add-a-backend.md says what is here: its code is that of the package, its commands print what it shows."""

from __future__ import annotations

import re
import shlex
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

from conftest import HERE, Site

ROOT = HERE.parents[1]
GUIDE = (ROOT / "docs" / "add-a-backend.md").read_text()
FILES = [path for path in HERE.rglob("*") if path.suffix in (".py", ".toml", ".yaml")]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = [text for kind, text in BLOCK.findall(GUIDE) if kind in ("py", "toml", "yml")]
SESSIONS = [text for kind, text in BLOCK.findall(GUIDE) if kind == "text"]


@pytest.fixture(scope="module")
def documents() -> Any:
    """How the other documents are compared with what commands print."""
    spec = spec_from_file_location("documents", ROOT / "tests" / "test_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("text", QUOTED, ids=lambda text: text.strip().partition("\n")[0])
def test_what_the_guide_quotes_is_in_the_package(text: str) -> None:
    assert any(text.strip("\n") in path.read_text() for path in FILES)


def test_the_guide_has_the_description_as_it_is() -> None:
    described = [text for kind, text in BLOCK.findall(GUIDE) if kind == "python" and "NPU_SIM" in text]
    assert [text in (HERE / "src/opmark_example_npu/__init__.py").read_text() for text in described] == [True]


@pytest.mark.parametrize("text", SESSIONS, ids=lambda text: text.partition("\n")[0])
def test_commands_of_the_guide_print_what_it_says(site: Site, documents: Any, text: str) -> None:
    command, _, expected = text.removeprefix("$ opmark ").partition("\n")
    done = site.run("-m", "opmark", *shlex.split(command))
    printed = documents.words(done.stdout + done.stderr)
    assert documents.abridged(printed, documents.words(expected)) == documents.words(expected)
