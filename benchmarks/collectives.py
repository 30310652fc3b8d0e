"""Time of the sweep of all collectives, and agreement of the time of a call with a plain loop."""

from __future__ import annotations

import json
import sys
import time
from statistics import median

from benchmarks.common import OPMARK, Row, Shell
from opmark.units import seconds

TARGET = 180.0
RANKS = 4
SIZE = "1M"
WITHIN = 0.10
ROUNDS = 9
PLAIN = "benchmarks.plain_all_reduce"  # a script would import benchmarks/statistics.py instead of Python's statistics


def rows(shell: Shell) -> list[Row]:
    return [_sweep(shell), *(_agreement(shell, ranks) for ranks in (2, RANKS)), _start_up(shell)]


def _sweep(shell: Shell) -> Row:
    since = time.perf_counter()
    printed = shell.run(
        OPMARK, "run", "--suite", "collectives", "--tag", "sweep", "--effort", "quick", "--json", codes=(0, 1)
    )
    took = time.perf_counter() - since
    records = [json.loads(line) for line in printed.splitlines()]
    measured = [record for record in records if record["status"] == "ok"]
    operators = {record["op"] for record in records}
    return Row(
        f"{len(operators)} collectives, 8 B to 64 MiB, {RANKS} ranks on gloo, `quick`, from the shell to the output",
        f"under {TARGET:.0f} s",
        f"{took:.0f} s; {len(measured)} of {len(records)} records ok",
        took < TARGET and len(measured) == len(records),
    )


def _agreement(shell: Shell, ranks: int) -> Row:
    """Compare opmark with a plain loop in turns, so that drift hits both; each has the time of its slowest rank."""
    pairs = [(_plain(shell, ranks), _ours(shell, ranks)) for _ in range(ROUNDS)]
    plain, ours = (median(column) for column in zip(*pairs, strict=True))
    apart = ours / plain - 1
    return Row(
        f"all_reduce of {SIZE} on {ranks} ranks (gloo): opmark's time over that of a plain torch.distributed loop",
        f"within {WITHIN:.0%}",
        f"{apart:+.1%} ({seconds(ours)} and {seconds(plain)}, medians of {ROUNDS} runs in turns)",
        abs(apart) <= WITHIN,
    )


def _plain(shell: Shell, ranks: int) -> float:
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    return float(shell.run(*launch, "--module", PLAIN, str(1 << 20)))


def _ours(shell: Shell, ranks: int) -> float:
    command = ("run", "all_reduce", "--ranks", str(ranks), "-p", f"size={SIZE}", "--threads", "1", "--json")
    row = json.loads(shell.run(OPMARK, *command))
    return float(row["quantities"]["latency"]["warm"]["median"])


def _start_up(shell: Shell) -> Row:
    """Measure the cost of a second number of ranks, and of more cases with the same number."""
    few = ("--samples", "1", "--warmup", "0")
    one, many, two = (
        shell.time(OPMARK, "run", "all_reduce", "--ranks", ranks, "-p", size, *few)
        for ranks, size in (("2", "size=8"), ("2", "size=8..1K"), ("2,3", "size=8"))
    )
    return Row(
        "starting ranks: 1 size on 2 ranks, 8 sizes on 2 ranks, 1 size on 2 and on 3 ranks",
        "once a rank count",
        f"{seconds(one)}, {seconds(many)}, {seconds(two)}",
        None,
    )
