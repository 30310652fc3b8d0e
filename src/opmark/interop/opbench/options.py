"""The options of OpBench's op_performance_collector.py, as its README describes them, and those that opmark adds."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmark.errors import UserError
from opmark.interop.opbench.models import SOURCES
from opmark.schema.task import EFFORTS

_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
_EXECUTORS = ("default", "graph", "vm")
MOST_TRIALS = 1_000_000


@dataclass(frozen=True)
class OpbenchOptions:
    modelsource: str
    modelnames: tuple[str, ...]
    target: str
    batchsize: int
    iftune: bool
    ifcompare: bool
    ifpartial: bool
    iftime: bool
    tuner: str
    trials: int
    executor: str
    inputname: str
    host: str
    port: int
    key: str
    download: bool
    output: Path
    top: float
    size: str
    seconds: float
    threads: int | None
    processes: int | None
    library: str
    effort: str
    timeout: float
    db: str | None

    @property
    def board(self) -> dict[str, str]:
        """The variables that name the board to the backend `tvm-board`; none without one."""
        if not self.host:
            return {}
        address = f"{self.host}:{self.port}" + f"/{self.key}" * bool(self.key)
        return {"OPMARK_BOARD": address, "OPMARK_BOARD_TARGET": self.target}


def read_options(arguments: list[str]) -> OpbenchOptions:
    found = vars(make_parser().parse_args(arguments))
    if not found["modelsource"]:
        raise UserError("--modelsource: no source is named", f"it is one of {', '.join(SOURCES)}; --list lists models")
    names = tuple(part for part in found.pop("modelname").split(",") if part)
    if not names:
        raise UserError("--modelname: no model is named", "as in --modelname resnet-18; --list lists them")
    if bool(found["host"]) != bool(found["port"]):
        raise UserError("--host and --port belong together", "they name the RPC tracker or server of a board")
    if found["ifpartial"] and not found["iftune"]:
        raise UserError(
            "--ifpartial compares a model after the first 100, 300, ... trials, and needs --iftune true",
            "add --iftune true",
        )
    if found["ifpartial"] and not found["iftime"]:
        raise UserError(
            "--ifpartial needs the time of the model, which --iftime false leaves out", "leave --iftime away"
        )
    return OpbenchOptions(modelnames=names, **{name: value for name, value in found.items() if name != "list"})


def check_tuner(name: str, known: Mapping[str, Any]) -> None:
    if name not in known:
        raise UserError(f"--tuner: no tuner is called `{name}`", f"there are {', '.join(known)}")


def truth(text: str) -> bool:
    """Return what true and false stand for. OpBench took every text, `false` too, for true."""
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise argparse.ArgumentTypeError(f"expected true or false, got `{text}`")


def share(text: str) -> float:
    """Return a share: 90%, 90 % and 0.9 are the same."""
    number = text.strip().removesuffix("%")
    try:
        value = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"expected a share above 0 and up to 100%, as in 90% or 0.9, got `{text}`")
    return value


def _whole(least: int, most: int) -> Any:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, got `{text}`")
        return value

    return parse


def _above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got `{text}`")
    return value


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UserError(f"{self.prog}: {message}", f"`{self.prog} --help` says what can be typed")


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="opmark opbench",
        description="OpBench's op_performance_collector.py: the operators of a model with their counts, times and "
        "configuration spaces; tuning; and a comparison of the tuned model with the default, in turns. Results go to "
        "OUTPUT/data/ConfigSpace and OUTPUT/data/Performance, and to the store.",
        allow_abbrev=False,
    )
    theirs = parser.add_argument_group("as in OpBench")

    def flag(group: Any, name: str, text: str, *, default: bool = False) -> None:
        group.add_argument(name, type=truth, nargs="?", const=True, default=default, metavar="true|false", help=text)

    add = theirs.add_argument
    add("--modelsource", default="", help=f"{', '.join(SOURCES)}")
    add("--modelname", default="", help="a model, as resnet-18; several with commas; for remoteonnx a path or a URL")
    add("--target", default="llvm", help="a target of TVM: llvm, cuda, 'llvm -mtriple=aarch64-linux-gnu' [llvm]")
    add("--batchsize", type=_whole(1, 1 << 20), default=1, help="samples in a call [1]")
    flag(theirs, "--iftune", "tune the key operators [false]")
    flag(theirs, "--ifcompare", "measure the model default and tuned, in turns, and give a verdict [false]")
    flag(theirs, "--ifpartial", "also the model after the first 100, 300, 500, 1000 trials; needs --iftune [false]")
    add("--tuner", default="xgb", help="xgb, xgb-rank, xgb_knob, xgb_itervar, xgb_curve, ga, random, gridsearch [xgb]")
    add("--trials", type=_whole(1, MOST_TRIALS), default=3000, help="configurations per operator at most [3000]")
    add("--executor", choices=_EXECUTORS, default="default", help="all mean TVM's virtual machine, the only one it has")
    add("--inputname", default="", help="name of an input, which is checked; every input gets data")
    add("--host", default="", help="address of an RPC tracker or server with the board that --target names")
    add("--port", type=_whole(1, 65535), default=0, help="its port")
    own = parser.add_argument_group("further options")
    add = own.add_argument
    add("--list", action="store_true", help="list the models and end")
    flag(own, "--iftime", "time the operators and the model [true]", default=True)
    add("--top", type=share, default=1.0, help="keep the key operators: the first that make up this share of the time, "
        "as in 90%% [100%%]")  # fmt: skip
    add("--output", type=Path, default=Path("opbench"), help="folder of the results [opbench]")
    flag(own, "--download", "fetch a model that --modelname names by its URL [false]")
    add("--key", default="", help="name of the board at the RPC tracker; empty: --host is a server itself")
    add("--size", choices=("full", "small"), default="full", help="small: a small model of the same structure [full]")
    add("--seconds", type=_above_zero, default=3600.0, help="seconds of tuning per operator at most [3600]")
    add("--threads", type=_whole(1, 4096), default=None, help="threads of the processor [all cores]")
    add(
        "--processes",
        type=_whole(4, 50),
        default=None,
        help="processes per side of a comparison at most [until decided]",
    )
    add(
        "--library",
        default="",
        help="backend of the vendor library to compare with, or none [torch on the same device]",
    )
    add("--effort", choices=tuple(EFFORTS), default="quick", help="how long to measure [quick]")
    add("--timeout", type=_above_zero, default=600.0, help="seconds that one measurement may take [600]")
    add("--db", default=None, help="the store: a file, or postgresql://USER@HOST/DATABASE [$OPMARK_DB or the data "
        "directory]")  # fmt: skip
    return parser
