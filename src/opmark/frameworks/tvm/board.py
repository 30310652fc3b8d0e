"""TVM on another machine, a board for instance, that runs `python -m tvm.exec.rpc_server`.

Code is compiled here and linked there; tensors are there; inputs are drawn and outputs are verified here. Calls are
timed by TVM's own evaluator on the board, so that the network is no part of any time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from opmark.errors import OpmarkError, TaskError, Unsupported, UserError, one_line
from opmark.frameworks.onnx.tvm import TvmBackend, TvmCall, TvmProgramCall
from opmark.frameworks.tvm.library import first_line, rpc, tvm
from opmark.frameworks.tvm.targets import read_target
from opmark.plugin import BackendInfo, Launch, Timer

_DEVICES = {"llvm": "cpu", "c": "cpu", "opencl": "cl"}
"""Names of devices in a session of TVM, where they are not those of the target."""
_ANSWER_SECONDS = 20.0
_SESSION_SECONDS = 900.0
"""Time that the board gives to one task; then it ends the session, and is free for the next one."""


class _BoardCall(TvmCall):
    """A graph in a virtual machine on the board, which keeps inputs and outputs: sessions carry tensors alone."""

    def __call__(self) -> Any:
        self.machine.set_input("main", *self.arguments)
        self.machine.invoke_stateful("main")
        return self.machine.get_outputs("main")

    def evaluate(self, device: Any, calls: int) -> Any:
        self.machine.set_input("main", *self.arguments)
        return self.machine.time_evaluator("invoke_stateful", device, number=calls, repeat=1)("main")


class _BoardProgramCall(TvmProgramCall):
    def evaluate(self, device: Any, calls: int) -> Any:
        return self.code.time_evaluator("main", device, number=calls, repeat=1)(*self.tensors)


class BoardBackend(TvmBackend):
    """Has a session with the board for each task, since a board serves one session at a time."""

    graph_call = _BoardCall
    program_call = _BoardProgramCall

    def __init__(self, info: BackendInfo, threads: int) -> None:
        super().__init__(info, threads)
        self._named = info.device_facts()

    @cached_property
    def target(self) -> Any:
        return read_target(self._named["target"])

    @cached_property
    def session(self) -> Any:
        return connect(self._named["chip"])

    @cached_property
    def device(self) -> Any:
        kind = self.target.kind.name
        return getattr(self.session, _DEVICES.get(kind, kind))(0)

    def why_unavailable(self) -> str | None:
        try:
            missing = self.info.why_missing()
            if not missing and not self.device.exist:
                missing = f"{self._named['chip']} has no device for `{self._named['target']}`"
        except OpmarkError as error:
            return one_line(error)
        finally:
            self._hang_up()
        return missing

    def environment(self) -> dict[str, Any]:
        threads = self.session.get_function("runtime.NumThreads")()
        self._hang_up()
        return {**super().environment(), "chip": self._named["chip"], "threads": threads}

    def usable(self) -> bool:
        answers = super().usable()
        self._hang_up()
        return answers

    def _hang_up(self) -> None:
        """End the session, which lasts as long as anything refers to it."""
        for name in ("session", "device"):
            self.__dict__.pop(name, None)
        gc.collect()

    def synchronize(self) -> None:
        self.device.sync()

    def layout(self, value: Any) -> None:
        """Tensors of another machine have no address here."""

    def load(self, executable: Any) -> Any:
        with TemporaryDirectory() as folder:
            file = Path(folder) / "program.tar"  # objects that the board links: nothing here can do that for it
            executable.export_library(str(file))
            try:
                self.session.upload(str(file))
                return self.session.load_module(file.name)
            except tvm.error.RPCError as error:  # what the board says
                target = self._named["target"]
                raise Unsupported(f"the board cannot link code for `{target}`: {first_line(error)}") from None
            except RuntimeError as error:
                raise TaskError(f"the board does not answer any more: {first_line(error)}") from None

    def timers(self) -> Mapping[str, Timer]:
        return {"device_time": _BoardTimer(self)}

    def clients(
        self, launch: Launch, others: Sequence[Mapping[str, Any]], rebuild: Callable[[Mapping[str, Any]], Launch]
    ) -> Sequence[Launch]:
        raise Unsupported("a request would be timed with its way through the network")


class _BoardTimer:
    name = "time_evaluator"
    resolution = 1e-6
    """A guess, on the safe side, of the clock of the board."""

    def __init__(self, backend: BoardBackend) -> None:
        self._backend = backend

    def time(self, launch: Any, calls: int) -> float:
        """Return the seconds of so many calls; one more runs ahead of them, and is not timed."""
        return float(launch.evaluate(self._backend.device, calls).results[0]) * calls

    def overhead(self, calls: int) -> float:
        return 0.0


def connect(address: str) -> Any:
    """Return a session with `HOST:PORT`, or by a tracker with `HOST:PORT/KEY`. UserError if nobody answers."""
    place, _, key = address.partition("/")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        raise UserError(
            f"OPMARK_BOARD: expected HOST:PORT of an RPC server of TVM, or HOST:PORT/KEY of a tracker, got `{address}`",
            "as in OPMARK_BOARD=10.0.0.7:9090",
        )
    found: list[Any] = []

    def call() -> None:
        try:
            if key:
                # It asks five times: a busy board tells the tracker its new key late, so that one request may miss it.
                asked = rpc.connect_tracker(host, int(port))
                found.append(asked.request(key, session_timeout=_SESSION_SECONDS))
            else:
                found.append(rpc.connect(host, int(port), session_timeout=_SESSION_SECONDS))
        except (RuntimeError, OSError, ValueError) as error:
            found.append(error)

    caller = Thread(target=call, daemon=True)  # TVM waits for ever for a server that says nothing
    caller.start()
    caller.join(_ANSWER_SECONDS)
    kind = f"tracker with a device `{key}`" if key else "RPC server"
    if not found:
        raise UserError(
            f"no {kind} of TVM answers at {place} within {_ANSWER_SECONDS:g} s",
            "a board serves one session at a time, and one that was left alone ends after "
            f"{_SESSION_SECONDS / 60:g} minutes; `python -m tvm.exec.query_rpc_tracker` lists what a tracker has",
        )
    if isinstance(found[0], Exception):
        raise UserError(
            f"no {kind} of TVM answers at {place}: {first_line(found[0])}",
            "start `python -m tvm.exec.rpc_server --host 0.0.0.0 --port PORT` on the board",
        )
    return found[0]
