"""Paths that cannot be reached: every command that takes one says so, as for every other mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from showcase import CPU, Maker, fill, run

Command = Callable[..., Any]

COMMANDS = [
    "run -w {}",
    "run add --backend null --db {}",
    "run add --backend null --python {}",
    "run add --backend numpy-cpu --impl {}.py:softmax",
    "run add --backend null --profiler command --profiler-command true --profiler-args {}",
    "run add --backend null --profiler command --profiler-command true --profile-dir {}",
    "describe {}",
    "show {}",
    "show --db {}",
    "show -o {}",
    "show -o {}/x.json",
    "show -f csv -o {}/x",
    "runs --db {}",
    "runs label {} text",
    "runs describe --db {} nightly text",
    "report {}",
    "report nightly {}",
    "report -o {}/x.html",
    "report -o {}",
    "report -o x.pdf --browser {}",
    "compare {} nightly",
    "compare nightly {}",
    "compare nightly {}::x",
    "compare numpy-cpu torch-cpu --db {}",
    "check --run nightly --baseline {}",
    "check --run {} --baseline nightly",
    "check --run nightly --baseline nightly --against-python {}",
    "check --run nightly --baseline nightly --junit {}",
    "check --run nightly --baseline nightly --markdown {}",
    "check --baseline nightly -w {}",
    "check --baseline nightly add --db {}",
    "ab add --backend null --rev HEAD --repo {}",
    "ab -w {} --same",
    "ab add --backend null --same --db {}",
    "ab add --backend null --python {} --same",
    "judge {}.py:f --like add",
    "judge {} --like add",
    "bisect add --good HEAD --repo {}",
    "bisect -w {} --good HEAD",
    "rank {}",
    "rank --db {}",
    "rank -o {}/x.html",
    "fit {}",
    "fit -o {}/x.html",
    "fit --db {}",
    "history {}",
    "history --db {}",
    "history add -o {}/x.html",
    "history add --case {}",
    "doctor --aa --backend null --db {}",
    "calibrate --backend null --db {}",
    "coverage {}",
    "env create {}",
    "env create mine --python {}",
    "env create mine --constraint {}",
    "env remove {}",
    "import {}",
    "import w.yaml -o {}/x.yaml",
    "import w.yaml -o {}",
    "export -w {} -f param",
    "export -w w.yaml -f param -o {}/x.json",
    "export nightly -f csv -o {}/x.csv",
    "export {} -f csv",
    "export --db {} -f csv",
    "query --views --db {}",
    "query SELECT(1) -o {}/x.csv",
    "query {}",
    "merge {}",
    "merge store.db --db {}",
    "push http://127.0.0.1:9 --token-file {}",
    "push http://127.0.0.1:9 --token abcdefghijklmnopqrstuvwxyz --db {}",
    "push http://127.0.0.1:9 --token abcdefghijklmnopqrstuvwxyz {}",
    "prune {}",
    "prune --label x --db {}",
    "serve --db {}",
    "serve --token-file {}",
    "list {}",
    "param -c {}",
    "param -c w.yaml -o {}/x",
    "micro-perf --task_dir {} --task all",
    "micro-perf --workload {}",
    "opperf --output-format json -f {}/x.json --ctx {}",
]  # fmt: skip


PLACES = {
    "a long name": "x" * 300,
    "a long path": "x/" * 3000 + "x",
    "below a file": "file/x",
}


@pytest.fixture
def _files(tmp_path: Path, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(db, [run(1, "nightly", [Maker(1).record("add", {"shape": [4]}, "torch-cpu", CPU)])])
    (tmp_path / "w.yaml").write_text("schema: 1\nname: mine\ncases: [{op: add, params: {shape: [4]}}]\n")
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("opmark.dashboard.serve.run_server", lambda *_: None)


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_path_that_cannot_be_reached_is_a_message_of_every_command(main: Command, place: str) -> None:
    """No command shows a traceback, which here would be an exception that passes through `main`."""
    for command in COMMANDS:
        code, _, err = main(*(part.replace("{}", place) for part in command.split()))
        assert code == 0 or err, command
        assert "Traceback" not in err, command
