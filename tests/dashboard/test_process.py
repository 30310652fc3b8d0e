"""The real server, as a process on a free port."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from showcase import showcase

pytest.importorskip("uvicorn")
TOKEN = "a-token-of-enough-characters"


def started(db: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "opmark", "serve", "--db", str(db), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    line = process.stderr.readline()
    found = re.search(r"http://\S+?:\d+/", line)
    assert found, line
    return process, found[0]


def refused(options: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "opmark", "serve", *options], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stderr


@pytest.mark.timeout(120)
def test_it_starts_answers_and_ends(tmp_path: Path) -> None:
    db, secret = tmp_path / "showcase.db", tmp_path / "token"
    showcase(db)
    secret.write_text(f"{TOKEN}\n")
    process, address = started(db, "--token-file", str(secret), "--log")
    try:
        asked = Request(f"{address}api/runs?q={TOKEN}", headers={"authorization": f"Bearer {TOKEN}"})
        with urlopen(asked, timeout=30) as answer:
            assert json.load(answer)["page"]["rows"] == 0
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "GET /api/runs 200" in said
    assert TOKEN not in said
    assert "Traceback" not in said


@pytest.mark.timeout(120)
def test_a_port_in_use_and_other_mistakes_are_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, said = refused(["--port", str(taken.getsockname()[1])])
    assert code == 2
    assert "cannot be listened at" in said
    assert "--port 0" in said
    code, said = refused(["--host", "0.0.0.0", "--port", "0"])
    assert code == 2
    assert "no token guards it" in said
    code, said = refused(["--token-file", str(tmp_path / "nix")])
    assert code == 2
    assert "cannot be read" in said
    code, said = refused(["--max-upload", "many"])
    assert code == 2
    assert "expected a size" in said
