"""The options of PARAM's comms.py, and a few of opmark's own."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opmark.compat.param_comms.collectives import COLLECTIVES, DTYPES

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
PATTERNS = ("one2one", "pairwise")
DEVICES = ("cpu", "cuda", "rocm", "tpu")

Add = Callable[..., Any]


def parser() -> argparse.ArgumentParser:
    """Names are never guessed from their beginning, as in PARAM: `--s` is no size."""
    made = argparse.ArgumentParser(
        prog="opmark param comms",
        allow_abbrev=False,
        description="PARAM's comms.py: the same options and the same table, with times of every iteration.",
    )
    _what(made.add_argument)
    _sizes(made.add_argument)
    _pairs(made.add_argument)
    _how(made.add_argument)
    _where(made.add_argument)
    _of_opmark(made.add_argument_group("of opmark, not of PARAM").add_argument)
    _needless(made.add_argument_group("taken, without an effect here: each says why").add_argument)
    _refused(made.add_argument_group("refused: each says why").add_argument)
    return made


def listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in listed(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers by comma, got `{text}`") from None


def _what(add: Add) -> None:
    add("--collective", "--collectives", nargs="+", default=["all_reduce"],
        help=f"One or several, by comma or blank: {', '.join(COLLECTIVES)}. [all_reduce]")  # fmt: skip
    add(
        "--data-types",
        "--data-type",
        type=listed,
        default=["float32"],
        help=f"By comma: {', '.join(DTYPES)}. [float32]",
    )
    add("--root", type=int, default=0, help="Of reduce, broadcast, gather, scatter, incast, multicast. [0]")
    add("--multi-comms", type=int, default=1, help="So many groups at once, each of as many ranks. [1]")
    add("--z", "--blocking", type=int, nargs="?", const=1, choices=(0, 1),
        help="1: blocking; 0: begun, then waited for. [0]")  # fmt: skip
    add("--c", "--check-data", type=int, nargs="?", const=1, choices=(0, 1),
        help="Check results: done anyway, before and after timing; --no-verify leaves it out.")  # fmt: skip
    add("--init-only", action="store_true", help="Start the ranks and let them meet once, measure nothing.")
    add("--tag", default="", help="Added to the name of every row.")


def _sizes(add: Add) -> None:
    add("--b", "--begin-size", default="8", help="Smallest size in bytes, as in 8, 4K, 1M, 1G. [8]")
    add("--e", "--end-size", default="64", help="Largest size. [64]")
    add("--f", "--step-factor", type=int, default=2, help="From size to size. [2]")
    add("--sb", "--step-bytes", type=int, default=0, help="Add so many bytes instead of multiplying. [0: multiply]")
    add("--ss", "--sizes", type=listed, help="These sizes only, by comma.")
    add("--i", "--in-split", type=numbers, help="Elements for each rank of what goes in, by comma: equal ones only.")
    add("--o", "--out-split", type=numbers, help="Elements for each rank of what comes out: equal ones only.")


def _pairs(add: Add) -> None:
    add("--pt2pt", choices=PATTERNS, help="Send and receive instead of a collective.")
    add("--window", type=int, default=100, help="Messages in flight of pt2pt's bandwidth. [100]")
    add("--src-ranks", help="Who sends, of pt2pt and incast: 0,2 or 0:3. [0; of incast all]")
    add("--dst-ranks", help="Who receives, of pt2pt and multicast. [1; of multicast all]")


def _how(add: Add) -> None:
    add("--w", "--num-warmup-iters", "--num_warmup_iters", type=int, default=5, help="Iterations of warm-up. [5]")
    add("--n", "--num-iters", "--num_iters", type=int, default=5, help="Iterations that are timed. [5]")
    add("--num-coll", "--num-coll-per-iteration", type=int, default=1, help="Collectives an iteration. [1]")
    add("--log", "--log-level", default="WARNING", choices=LEVELS, type=str.upper,
        help="What is told on standard error. [WARNING]")  # fmt: skip


def _where(add: Add) -> None:
    add("--device", choices=DEVICES, help="[cuda where there is one, else cpu]")
    add("--backend", help="The engine: gloo for cpu, nccl for cuda. [that of the device]")
    add("--master-ip", help="Where rank 0 is, under a launcher. [$MASTER_ADDR]")
    add("--master-port", help="Its port. [$MASTER_PORT]")
    add("--nw-stack", default="pytorch-dist", help="pytorch-dist, the only one. [pytorch-dist]")


def _of_opmark(add: Add) -> None:
    add("--ranks", type=int, help="Start so many here. [as many as the launcher started, else 2]")
    add("--json", type=Path, metavar="FILE", help="Every row as a line of JSON too, with the times of every rank.")
    add("--imbalance", type=float, default=0.0,
        help="Of all_to_allv, all_gather_v, reduce_scatter_v: parts differ by so much of their mean. [0]")  # fmt: skip
    add("--no-verify", action="store_true", help="Do not check results.")
    add("--timeout", type=float, default=600.0, help="Seconds that one size may take; PARAM waits for ever. [600]")
    add("--db", type=Path, help="The store of runs. [$OPMARK_DB or the data directory]")


def _needless(add: Add) -> None:
    for name in ("--eager-init", "--include-0B", "--use-device-time", "--enable-profiler", "--enable-local-report"):
        add(name, action="store_true")
    add("--use-ext-dist", "--use-ext-pg", action="store_true")
    add("--use-perf-logger", "--use-custom-perf-logger", nargs="+")
    add("--size-start-profiler")
    add("--ibv-devices")
    for name in ("--quant-a2a-embedding-dim", "--quant-threshold", "--num-tpu-cores"):
        add(name, type=int)


def _refused(add: Add) -> None:
    add("--bitwidth", type=int, default=32, choices=(2, 4, 8, 16, 32), help="Other than 32.")
    add("--graph-launches", type=int, default=0, help="Other than 0.")
    add("--init-method", "--pg-init-method", help="Other than env://.")
    add("--mode", default="comms", help="Other than comms.")
    add("--pair", action="store_true")
    add("--collective-pair", "--collectives-pair", nargs="+")
    add("--overlap-pair-pgs", action="store_true")
