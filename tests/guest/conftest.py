"""What the tests of guests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from opmark.plugin import registry
from opmark.runner.guests import placement

Sabotage = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def sabotage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sabotage:
    """Installs a table of a stranger's, as text, while it is open."""

    @contextmanager
    def installed(text: str) -> Iterator[None]:
        module = f"sabotage_{tmp_path.name}"  # another one for each test: this interpreter keeps what it has imported
        (tmp_path / f"{module}.py").write_text(f"from opmark.frameworks.implementation import computes\n{text}")
        info = tmp_path / "sabotage-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sabotage\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[opmark.implementations]\nsabotage = {module}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        forget = (registry.forget, placement.link_opmark.cache_clear)
        for each in forget:
            each()
        yield
        for each in forget:
            each()

    return installed
