"""`--db` of the commands that keep another system's options: a file, or the address of a server."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable

import pytest

from opmark.interop.general_perf.command import _parser as general_perf_parser
from opmark.interop.opbench.options import make_parser as opbench_parser
from opmark.interop.opperf.command import _parser as opperf_parser
from opmark.interop.param.comms.options import parser as comms_parser
from opmark.interop.param.driver import parser as driver_parser
from opmark.interop.param.options import parser as param_parser

PARSERS: dict[str, Callable[[], ArgumentParser]] = {
    "general-perf": general_perf_parser, "opbench": opbench_parser, "opperf": opperf_parser, "param": param_parser,
    "param comms": comms_parser, "param driver": driver_parser,
}  # fmt: skip


@pytest.mark.parametrize("command", PARSERS)
def test_the_address_of_a_server_stays_as_it_was_typed(command: str) -> None:
    """A path would lose one of the two slashes."""
    needed = {"param driver": ["--device", "cpu", "gemm"]}.get(command, [])
    given, _ = PARSERS[command]().parse_known_args(["--db", "postgresql://me@host/runs", *needed])
    assert given.db == "postgresql://me@host/runs"
