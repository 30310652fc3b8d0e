"""The options of comms.py as a request. An option without an effect says why; an impossible one is refused."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmark.errors import UserError
from opmark.interop.param.comms.collectives import (
    COLLECTIVES,
    DTYPES,
    PT2PT,
    CommsEngine,
    find_collective,
    find_dtype,
    place_of,
    series,
    size_of,
)

_QUANTIZED = "nothing is quantised (--bitwidth is 32)"
_PROFILER = "PARAM's profiler is not part of its release; use `opmark run OPERATOR --profile`"

_WITHOUT_EFFECT: dict[str, str] = {
    "eager_init": "this is always so: ranks are connected before anything is timed",
    "include_0B": "operators move at least one element, so there is no row of 0 bytes",
    "use_device_time": "ranks are timed by the host's clock until the device is done",
    "enable_profiler": _PROFILER,
    "size_start_profiler": _PROFILER,
    "enable_local_report": "only rank 0 reports, with the times of all ranks",
    "use_ext_dist": "opmark calls torch.distributed itself",
    "use_perf_logger": "opmark loads no logger of PARAM; --json FILE writes every row",
    "ibv_devices": "NCCL reads them from the environment, as in NCCL_IB_HCA=mlx5_0",
    "quant_a2a_embedding_dim": _QUANTIZED,
    "quant_threshold": _QUANTIZED,
    "num_tpu_cores": "no TPU takes part",
}
"""Options without an effect, each with the reason that is printed when it is given."""

_PAIR = "opmark does not measure two collectives at once yet"
_PAIR_HINT = "`opmark run all_reduce_h2d` measures one beside a copy to the device"

_REFUSED: dict[str, tuple[object, str, str]] = {
    "bitwidth": (32, "quantised communication needs kernels that PARAM does not ship and opmark does not have",
                 "--data-types float16 or bfloat16 moves half the bytes"),
    "graph_launches": (0, "opmark does not capture communication as a graph", "leave it out"),
    "init_method": ("env://", "ranks connect through $MASTER_ADDR:$MASTER_PORT", "use --master-ip and --master-port"),
    "mode": ("comms", "this command does not measure computation beside communication",
             "`opmark run all_reduce -p asynchronous=true` measures how much computation hides"),
    "pair": (False, _PAIR, _PAIR_HINT),
    "collective_pair": (None, _PAIR, _PAIR_HINT),
    "overlap_pair_pgs": (False, _PAIR, _PAIR_HINT),
    "nw_stack": ("pytorch-dist", "ranks use torch.distributed only", "leave it out, or use pytorch-dist"),
}  # fmt: skip
"""Options that cannot be ignored, because the result would be another: accepted value, reason and hint."""

_LEAST = {"n": 1, "w": 0, "num_coll": 1, "window": 1, "multi_comms": 1, "root": 0}


@dataclass(frozen=True)
class CommsRequest:
    """The collectives and sizes to measure, checked as far as possible without the operators."""

    collectives: tuple[str, ...]
    """PARAM's names, or `pt2pt` alone."""
    dtypes: tuple[str, ...]
    """PARAM's names in lower case."""
    sizes: tuple[int, ...]
    splits: tuple[str, tuple[int, ...]] | None
    """The option and the elements for each rank, instead of sizes."""
    place: CommsEngine
    ranks: int
    group: int
    """Ranks of one collective; 0: all."""
    root: int
    blocking: bool
    imbalance: float
    pair: tuple[int, int]
    """Sender and receiver of pt2pt."""
    window: int
    warmup: int
    iterations: int
    per_iteration: int
    tag: str

    @property
    def group_size(self) -> int:
        return self.group or self.ranks


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments; raise UserError for options that opmark cannot do."""
    given = parser().parse_args(list(arguments))
    for name, (accepted, why, hint) in _REFUSED.items():
        value = getattr(given, name)
        if value is not None and value != accepted:
            raise UserError(f"{_option(name)}{_option_value(value)}: {why}", hint)
    for name, least in _LEAST.items():
        if getattr(given, name) < least:
            raise UserError(
                f"{_option(name)}: expected a whole number of at least {least}, got {getattr(given, name)}",
                f"as in {_option(name)} {max(least, 1)}",
            )
    return given


def remarks(given: argparse.Namespace) -> list[str]:
    """Return one line for each given option that has no effect."""
    values = {name: getattr(given, name) for name in _WITHOUT_EFFECT}
    used = [name for name, value in values.items() if value not in (None, False)]
    found = [f"{_option(name)}: {_WITHOUT_EFFECT[name]}" for name in used]
    if given.c == 0 and not given.no_verify:
        found.append("--c 0 has no effect: results are checked; use --no-verify to skip the check")
    return found


def make_request(given: argparse.Namespace, ranks: int) -> CommsRequest:
    from opmark.schema.options import MOST_RANKS

    if not 1 <= ranks <= MOST_RANKS:
        raise UserError(f"--ranks: expected a whole number from 1 to {MOST_RANKS}, got {ranks}", "as in --ranks 2")
    group = _group_size(given.multi_comms, ranks)
    names = _collectives(given)
    if given.root >= (group or ranks):
        raise UserError(f"--root {given.root}: ranks go from 0 to {(group or ranks) - 1}", "as in --root 0")
    splits = _splits(given, names)
    _check_cast_ranks(given, names, ranks)
    if not 0 <= given.imbalance <= 1:
        raise UserError(f"--imbalance: expected a number from 0 to 1, got {given.imbalance:g}", "as in --imbalance 0.5")
    if given.imbalance and not any(name != PT2PT and COLLECTIVES[name].uneven for name in names):
        uneven = ", ".join(name for name, one in COLLECTIVES.items() if one.uneven)
        raise UserError(f"--imbalance: {', '.join(names)} has equal parts only", f"use it with {uneven}")
    return CommsRequest(
        collectives=names,
        dtypes=tuple(dict.fromkeys(_check_dtype(name) for name in given.data_types)),
        sizes=() if splits else tuple(_sizes(given)),
        splits=splits,
        place=place_of(given.device, given.backend),
        ranks=ranks, group=group, root=given.root, blocking=given.z == 1, imbalance=given.imbalance,
        pair=_pair(given, ranks), window=given.window,
        warmup=given.w, iterations=given.n, per_iteration=given.num_coll,
        tag=f"-{given.tag}" if given.tag else "",
    )  # fmt: skip


def _check_dtype(text: str) -> str:
    find_dtype(text)
    return text.lower()


def _collectives(given: argparse.Namespace) -> tuple[str, ...]:
    if given.pt2pt:
        return (PT2PT,)
    named = [part for text in given.collective for part in text.split(",") if part.strip()]
    if not named:
        raise UserError("--collective: no collective is named", "as in --collective all_reduce")
    return tuple(dict.fromkeys(find_collective(part.strip()) for part in named))


def _sizes(given: argparse.Namespace) -> list[int]:
    if given.ss is not None:
        found = [size_of(text, "--ss") for text in given.ss]
        if not found or min(found) < 1:
            raise UserError("--ss: expected sizes of at least 1 byte", "as in --ss 1024,4096")
        return found
    begin, end = size_of(given.b, "--b"), size_of(given.e, "--e")
    return series(max(1, begin), end, given.f, given.sb)


def _splits(given: argparse.Namespace, names: Sequence[str]) -> tuple[str, tuple[int, ...]] | None:
    """Return the option and its splits; if both are given, --i counts as in PARAM."""
    both = (("i", given.i), ("o", given.o))
    found = next(((option, splits) for option, splits in both if splits), None)
    if found is None:
        return None
    option, splits = found
    for name in names:
        if name == PT2PT or option not in COLLECTIVES[name].split:
            taking = ", ".join(known for known, one in COLLECTIVES.items() if option in one.split)
            raise UserError(f"--{option}: {name} is not split", f"collectives that are split are {taking}")
    return f"--{option}", tuple(splits)


def _group_size(groups: int, ranks: int) -> int:
    if groups == 1:
        return 0
    if ranks % groups:
        raise UserError(
            f"--multi-comms {groups}: {ranks} ranks cannot be divided into {groups} equal groups",
            f"as in --multi-comms 2 --ranks {2 * -(-ranks // 2)}",
        )
    return ranks // groups


def rank_list(text: str, option: str, ranks: int) -> list[int]:
    """Parse `2`, `0,2` or `0:3`, both ends included."""
    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            found = list(range(first, last + 1))
        else:
            found = list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UserError(f"{option}: expected ranks, got `{text}`", f"as in {option} 0,2 or {option} 0:3") from None
    if not found or min(found) < 0 or max(found) >= ranks:
        raise UserError(f"{option} {text}: ranks go from 0 to {ranks - 1}", f"as in {option} 0")
    return found


def _pair(given: argparse.Namespace, ranks: int) -> tuple[int, int]:
    """Return sender and receiver; the operator has no parameters for several pairs at once."""
    if not given.pt2pt:
        return (0, 1)
    if ranks < 2:
        raise UserError(f"--pt2pt: expected at least 2 ranks, got {ranks}", "as in --ranks 2")
    senders = rank_list(given.src_ranks or "0", "--src-ranks", ranks)
    receivers = rank_list(given.dst_ranks or "1", "--dst-ranks", ranks)
    if len(senders) != len(receivers) or set(senders) & set(receivers):
        raise UserError(
            f"--pt2pt: expected as many receivers as senders, none of them both, got {senders} and {receivers}",
            "as in --src-ranks 0 --dst-ranks 1",
        )
    if len(senders) > 1:
        raise UserError(
            f"--pt2pt {given.pt2pt}: opmark does not measure {len(senders)} pairs at once",
            "name one pair, as in --src-ranks 0 --dst-ranks 1, or use --collective all_to_all for all ranks at once",
        )
    return senders[0], receivers[0]


def _check_cast_ranks(given: argparse.Namespace, names: Sequence[str], ranks: int) -> None:
    """Refuse a choice of ranks for incast and multicast, in which all ranks take part."""
    for name, option, text in (
        ("incast", "--src-ranks", given.src_ranks), ("multicast", "--dst-ranks", given.dst_ranks),
    ):  # fmt: skip
        if name not in names or not text:
            continue
        if set(rank_list(text, option, ranks)) | {given.root} != set(range(ranks)):
            raise UserError(f"{option} {text}: in {name} all ranks but the root take part", f"leave {option} out")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _option_value(value: object) -> str:
    if isinstance(value, bool):
        return ""
    return f" {' '.join(value) if isinstance(value, list) else value}"


# The options of PARAM's comms.py, and a few of opmark's own.

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
    add("--db", help="The store of runs. [$OPMARK_DB or the data directory]")


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
