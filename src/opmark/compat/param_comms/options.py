"""The options of comms.py as a request. An option without an effect says why; an impossible one is refused."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from opmark.compat.param_comms.collectives import COLLECTIVES, PT2PT, find_collective, find_dtype
from opmark.compat.param_comms.engines import Place, place_of
from opmark.compat.param_comms.parser import parser
from opmark.compat.param_comms.sizes import series, size_of
from opmark.errors import UserError

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
class Asked:
    """The collectives and sizes to measure, checked as far as possible without the operators."""

    collectives: tuple[str, ...]
    """PARAM's names, or `pt2pt` alone."""
    dtypes: tuple[str, ...]
    """PARAM's names in lower case."""
    sizes: tuple[int, ...]
    splits: tuple[str, tuple[int, ...]] | None
    """The option and the elements for each rank, instead of sizes."""
    place: Place
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


def make_request(given: argparse.Namespace, ranks: int) -> Asked:
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
    return Asked(
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
