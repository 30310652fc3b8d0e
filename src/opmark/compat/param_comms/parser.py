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
    """Return the parser; as in PARAM, options are not abbreviated, so that `--s` is not a size."""
    made = argparse.ArgumentParser(
        prog="opmark param comms",
        allow_abbrev=False,
        description="PARAM's comms.py: the same options and the same table, with times of every iteration.",
    )
    _add_collectives(made.add_argument)
    _add_sizes(made.add_argument)
    _add_pairs(made.add_argument)
    _add_measurement(made.add_argument)
    _add_placement(made.add_argument)
    _add_own_options(made.add_argument_group("options of opmark, not of PARAM").add_argument)
    _add_without_effect(made.add_argument_group("accepted without an effect: each says why").add_argument)
    _add_refused(made.add_argument_group("refused: each says why").add_argument)
    return made


def split_words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def split_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in split_words(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers separated by commas, got `{text}`") from None


def _add_collectives(add: Add) -> None:
    add("--collective", "--collectives", nargs="+", default=["all_reduce"],
        help=f"One or several, separated by commas or blanks: {', '.join(COLLECTIVES)}. [all_reduce]")  # fmt: skip
    add(
        "--data-types",
        "--data-type",
        type=split_words,
        default=["float32"],
        help=f"Separated by commas: {', '.join(DTYPES)}. [float32]",
    )
    add("--root", type=int, default=0, help="Root of reduce, broadcast, gather, scatter, incast, multicast. [0]")
    add("--multi-comms", type=int, default=1, help="Number of groups that work at once, each with as many ranks. [1]")
    add("--z", "--blocking", type=int, nargs="?", const=1, choices=(0, 1),
        help="1: blocking; 0: start, then wait. [0]")  # fmt: skip
    add("--c", "--check-data", type=int, nargs="?", const=1, choices=(0, 1),
        help="Check results, which is the default; --no-verify skips it.")  # fmt: skip
    add("--init-only", action="store_true", help="Start and connect the ranks, and measure nothing.")
    add("--tag", default="", help="Added to the name of every row.")


def _add_sizes(add: Add) -> None:
    add("--b", "--begin-size", default="8", help="Smallest size in bytes, as in 8, 4K, 1M, 1G. [8]")
    add("--e", "--end-size", default="64", help="Largest size. [64]")
    add("--f", "--step-factor", type=int, default=2, help="Factor from size to size. [2]")
    add("--sb", "--step-bytes", type=int, default=0, help="Add this many bytes instead of multiplying. [0: multiply]")
    add("--ss", "--sizes", type=split_words, help="Only these sizes, separated by commas.")
    add("--i", "--in-split", type=split_numbers, help="Elements of the input per rank, with commas; only equal ones.")
    add("--o", "--out-split", type=split_numbers, help="Elements of the output for each rank; only equal ones.")


def _add_pairs(add: Add) -> None:
    add("--pt2pt", choices=PATTERNS, help="Send and receive instead of a collective.")
    add("--window", type=int, default=100, help="Messages in flight for the bandwidth of pt2pt. [100]")
    add("--src-ranks", help="Senders of pt2pt and incast: 0,2 or 0:3. [0; all for incast]")
    add("--dst-ranks", help="Receivers of pt2pt and multicast. [1; all for multicast]")


def _add_measurement(add: Add) -> None:
    add("--w", "--num-warmup-iters", "--num_warmup_iters", type=int, default=5, help="Iterations of warm-up. [5]")
    add("--n", "--num-iters", "--num_iters", type=int, default=5, help="Iterations that are timed. [5]")
    add("--num-coll", "--num-coll-per-iteration", type=int, default=1, help="Collectives per iteration. [1]")
    add("--log", "--log-level", default="WARNING", choices=LEVELS, type=str.upper,
        help="Messages on standard error. [WARNING]")  # fmt: skip


def _add_placement(add: Add) -> None:
    add("--device", choices=DEVICES, help="[cuda if there is one, else cpu]")
    add("--backend", help="The engine: gloo for cpu, nccl for cuda. [the one of the device]")
    add("--master-ip", help="Address of rank 0, under a launcher. [$MASTER_ADDR]")
    add("--master-port", help="Port of rank 0. [$MASTER_PORT]")
    add("--nw-stack", default="pytorch-dist", help="Only pytorch-dist. [pytorch-dist]")


def _add_own_options(add: Add) -> None:
    add("--ranks", type=int, help="Ranks to start on this machine. [as many as the launcher started, else 2]")
    add("--json", type=Path, metavar="FILE", help="Also write rows as JSON lines, with the times of every rank.")
    add("--imbalance", type=float, default=0.0,
        help="Parts of all_to_allv, all_gather_v, reduce_scatter_v differ by this share of the mean. [0]")  # fmt: skip
    add("--no-verify", action="store_true", help="Do not check results.")
    add("--timeout", type=float, default=600.0, help="Seconds that one size may take; PARAM has no limit. [600]")
    add("--db", type=Path, help="The store of runs. [$OPMARK_DB or the data directory]")


def _add_without_effect(add: Add) -> None:
    for name in ("--eager-init", "--include-0B", "--use-device-time", "--enable-profiler", "--enable-local-report"):
        add(name, action="store_true")
    add("--use-ext-dist", "--use-ext-pg", action="store_true")
    add("--use-perf-logger", "--use-custom-perf-logger", nargs="+")
    add("--size-start-profiler")
    add("--ibv-devices")
    for name in ("--quant-a2a-embedding-dim", "--quant-threshold", "--num-tpu-cores"):
        add(name, type=int)


def _add_refused(add: Add) -> None:
    add("--bitwidth", type=int, default=32, choices=(2, 4, 8, 16, 32), help="Other than 32.")
    add("--graph-launches", type=int, default=0, help="Other than 0.")
    add("--init-method", "--pg-init-method", help="Other than env://.")
    add("--mode", default="comms", help="Other than comms.")
    add("--pair", action="store_true")
    add("--collective-pair", "--collectives-pair", nargs="+")
    add("--overlap-pair-pgs", action="store_true")
