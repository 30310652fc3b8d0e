"""A real Ray cluster of several nodes on this machine, in a process of its own, for tests and benchmarks.

python ray_nodes.py        reads commands from standard input, one JSON line each, and answers in the same way
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil


class RayNodes:
    """The cluster. Its first node, `a`, is the head; the others come and go."""

    def __init__(self, *names: str, environ: dict[str, str] | None = None) -> None:
        """`environ`: variables of all nodes."""
        self._folder = tempfile.mkdtemp(prefix="oray-")  # paths of sockets must be short
        quiet = {"RAY_DISABLE_IMPORT_WARNING": "1", "RAY_USAGE_STATS_ENABLED": "0"}
        own = {"RAY_TMPDIR": self._folder}  # Ray notes its address there; its own folder need not exist
        (Path(self._folder) / "ray").mkdir()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL, env={**os.environ, **quiet, **own, **(environ or {})}, start_new_session=True,
        )  # fmt: skip
        self._raylets: dict[str, int] = {}
        self.address = ""
        for name in names or ("a",):
            self.add(name)

    def add(self, name: str, **environ: str) -> None:
        answer = self._ask({"add": name, "environ": environ})
        self.address, self._raylets[name] = answer["address"], answer["raylet"]

    def remove(self, name: str) -> None:
        """Let a node leave in good order."""
        self._ask({"remove": name})
        del self._raylets[name]

    def raylet(self, name: str) -> psutil.Process:
        return psutil.Process(self._raylets[name])

    def seat(self, name: str, seconds: float = 30.0) -> psutil.Process:
        """The process of a seat on a node; it is waited for."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for child in self.raylet(name).children(recursive=True):
                try:
                    if "SeatActor" in " ".join(child.cmdline()):
                        return child
                except psutil.Error:
                    continue
            time.sleep(0.05)
        raise AssertionError(f"node {name} has no seat")

    def close(self) -> None:
        try:
            self._ask({"close": True})
        finally:
            group = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            self._process.communicate()
            for child in group:
                if child.is_running():
                    child.kill()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, command: dict[str, Any]) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("answer "):
                return json.loads(line.removeprefix("answer "))
        raise AssertionError("the cluster has ended")


def serve() -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    nodes: dict[str, Any] = {}
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        if name := command.get("add"):
            head = {} if nodes else {"include_dashboard": False}
            environ = command["environ"]
            nodes[name] = cluster.add_node(
                num_cpus=1, node_name=name, **head, **({"env_vars": environ} if environ else {})
            )
            raylet = nodes[name].all_processes["raylet"][0].process.pid
            answer = {"address": cluster.address, "raylet": raylet}
        elif name := command.get("remove"):
            cluster.remove_node(nodes.pop(name), allow_graceful=True)
        else:
            cluster.shutdown()
        print("answer", json.dumps(answer), flush=True)
        if command.get("close"):
            return


if __name__ == "__main__":
    serve()
