"""Environments of `opmark env` that a test makes by hand, so that nothing is fetched: they see what this interpreter
has, and a module of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec

from opmark.runner.guests.environments import Guest


def make_guest(root: Path, name: str, **modules: str) -> Guest:
    """An environment in the folder that $OPMARK_ENVS names. `work=TEXT` is its module work."""
    folder = root / name
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    installed = [sysconfig.get_path("purelib"), *(place for place in sys.path if "site-packages" in place)]
    known = dict.fromkeys([*os.environ.get("PYTHONPATH", "").split(os.pathsep), *installed])
    lines = "".join(f"import site; site.addsitedir({place!r})\n" for place in known if place)
    (packages / "shared.pth").write_text(lines)
    for module, text in modules.items():
        (packages / f"{module}.py").write_text(text)
    guest = Guest(name, name, (name,), ".".join(map(str, sys.version_info[:3])), {}, "2030-01-01T00:00:00+00:00")
    (folder / "opmark.json").write_bytes(msgspec.json.encode(guest))
    assert os.environ["OPMARK_ENVS"] == str(root)
    return guest
