"""`pytest --again` runs what failed the last time with the same files, group and markers.

Where that time was cut short, everything runs. Unlike pytest's `--last-failed`, it keeps parts of the suite
apart, and a part without failures has nothing to do.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

FAILED = pytest.StashKey[list[str] | None]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--again", action="store_true", help="run only what failed the last time, if that came to its end")


def _place(config: pytest.Config) -> str:
    part = (*config.option.file_or_dir, config.option.group, config.option.markexpr)
    return f"opmark/failed/{sha256(repr(part).encode()).hexdigest()[:16]}"


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and hasattr(config, "cache"):
        again = config.getoption("--again")
        config.stash[FAILED] = config.cache.get(_place(config), None) if again else None
        if config.stash[FAILED] != []:
            config.cache.set(_place(config), None)  # until it has come to its end


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    failed = config.stash.get(FAILED, None)
    if failed is None or not collection_path.match("test_*.py"):
        return None
    return not any(collection_path == config.rootpath / test.partition("::")[0] for test in failed) or None


def pytest_collection_modifyitems(items: list[pytest.Item], config: pytest.Config) -> None:
    failed = config.stash.get(FAILED, None)
    if failed is not None:
        known = {name for item in items for name in (item.nodeid, item.nodeid.partition("::")[0])}
        if missing := sorted(set(failed) - known):
            raise pytest.UsageError(f"these failed the last time and are not there any more: {', '.join(missing)}")
        left_out = [item for item in items if not {item.nodeid, item.nodeid.partition("::")[0]} & set(failed)]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash.get(FAILED, None) == []:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if hasattr(config, "cache") and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        reports = (report for outcome in ("failed", "error") for report in terminalreporter.stats.get(outcome, []))
        config.cache.set(_place(config), sorted({report.nodeid for report in reports}))
