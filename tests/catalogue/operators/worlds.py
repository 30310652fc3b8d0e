"""Communication between real processes: every case of every operator that several ranks compute, in one world.

It is a script and not a test: `python worlds.py 4` starts four processes once, each goes through the same cases and
prints every verdict of its rank as one JSON line.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

from opmark.errors import InvalidParameter, WrongResult
from opmark.plugin import Backend, Exchange, Operator, Params, Peers, ProcessGroup, World
from opmark.plugin.registry import backend, catalogue
from opmark.worker.verify.accuracy import compare_arrays
from opmark.worker.verify.outputs import bounds

TIMEOUT = 30.0
BOTH = (False, True)
REDUCTIONS = ("sum", "max", "min", "prod", "avg")
_ASYNC = {"asynchronous": BOTH}
_PARTS = {"lists": BOTH, "imbalance": (0.0, 0.6), **_ASYNC}

OPTIONS: dict[str, dict[str, Any]] = {
    "all_reduce": {"op": REDUCTIONS, "in_place": BOTH, **_ASYNC},
    "reduce_scatter": {"op": REDUCTIONS, "in_place": BOTH, **_PARTS},
    "all_gather": {"in_place": BOTH, **_PARTS},
    "all_to_all": _PARTS,
    "broadcast": {"root": (0, 1, 2), "in_place": BOTH, **_ASYNC},
    "reduce": {"root": (0, 1, 2), "op": REDUCTIONS, "in_place": BOTH, **_ASYNC},
    "gather_ranks": {"root": (0, 1, 2), **_ASYNC},
    "scatter_ranks": {"root": (0, 1, 2), **_ASYNC},
    "p2p": {"dst": (1, 0, 2), "src": (0, 1), "pattern": ("one_way", "ping_pong", "both_ways"), "window": (1, 3), **_ASYNC},  # noqa: E501
    "incast": {"root": (0, 1, 2)},
    "multicast": {"root": (0, 1, 2)},
    "all_gather_object": {},
    "broadcast_object": {"root": (0, 1, 2)},
    "barrier": {},
    "all_reduce_h2d": {"pinned": (False,)},
    "moe_dispatch": {"imbalance": (0.0, 0.5, 1.0)},
    "moe_all_combine": {"imbalance": (0.0, 0.5, 1.0)},
    "fault_ranks": {"kind": ("none", "late")},
}  # fmt: skip
"""Further options by operator: in float32 in all combinations; with odd sizes and groups one by one; reductions with
every element type."""

MOE = [
    {"num_tokens": 6, "hidden_size": 5, "num_experts": 12, "topk": 2},
    {"num_tokens": 7, "hidden_size": 3, "num_experts": 12, "topk": 12},
    {"num_tokens": 1, "hidden_size": 1, "num_experts": 12, "topk": 1},
]
SIZES = [{"size": 1000}, {"size": 1}]


class Case(NamedTuple):
    op: str
    params: dict[str, Any]


def operators() -> list[Operator]:
    return [op for op in catalogue().values() if op.ranks]


def cases(ranks: int) -> list[Case]:
    """Return each case once, without those that the rules refuse."""
    found: dict[str, Case] = {}
    for op in operators():
        for given in _given(op, ranks):
            try:
                params = op.complete({**given, "ranks": ranks})
                op.check_rules(params)
            except InvalidParameter:
                continue
            case = Case(op.name, params)
            found.setdefault(json.dumps(case), case)
    return list(found.values())


def _given(op: Operator, ranks: int) -> Iterator[dict[str, Any]]:
    axes = OPTIONS[op.name]
    first, *odd = MOE if "num_tokens" in op.by_name else SIZES if "size" in op.by_name else [{}]
    plain = {name: values[0] for name, values in axes.items()}
    others = {name: values for name, values in axes.items() if name != "op"}
    last = {name: values[-1] for name, values in others.items()}
    for chosen in product(*others.values()):
        yield {**plain, **first, **dict(zip(others, chosen, strict=True))}
    odd += [{**first, "group": size} for size in (1, 2) if "group" in op.by_name and size < ranks]
    for given in odd:
        yield from ({**plain, **given, name: value} for name, values in others.items() for value in values)
        yield {**plain, **given}
    for dtype in op.param("dtype").choices if "dtype" in op.by_name else ():
        yield from ({**plain, **first, "op": value, "dtype": dtype} for value in axes.get("op", ()))
        yield {**plain, **first, "dtype": dtype}
        yield {**plain, **first, **last, "dtype": dtype}


class Rank:
    """One process of the world."""

    def __init__(self, live: Backend, team: ProcessGroup, rank: int) -> None:
        self.live, self.team, self.rank = live, team, rank
        self.inputs: dict[str, Any] = {}

    def prepared(self, op: Operator, params: Params) -> tuple[Exchange, tuple[Any, ...]]:
        """Return an exchange and its expected outputs on this rank."""
        self.inputs = self._inputs(op, params, self.rank)
        built: Exchange = op.implementations[0].build(params, self._peers(params), **self.inputs)
        return built, self._due(op, params)

    def refilled(self, op: Operator, params: Params, exchange: Exchange) -> tuple[Any, ...]:
        """Put other data into the same tensors and nonsense into the outputs; return the expected outputs."""
        for output in exchange.outputs():
            self.live.poison(output)
        for name, tensor in self._inputs(op, params, self.rank, variant=1).items():
            self.live.copy_into(self.inputs[name], tensor)
        return self._due(op, params, variant=1)

    def _peers(self, params: Params) -> Peers:
        return self.team.peers(int(params.get("group") or params["ranks"]))

    def _due(self, op: Operator, params: Params, variant: int = 0) -> tuple[Any, ...]:
        peers = self._peers(params)
        every = [self._inputs(op, params, peers.world_rank(other), variant) for other in range(peers.size)]
        arrays = [{name: self.live.to_numpy(tensor) for name, tensor in one.items()} for one in every]
        due: tuple[Any, ...] = op.reference(params, peers.rank, arrays)
        return due

    def _inputs(self, op: Operator, params: Params, rank: int, variant: int = 0) -> dict[str, Any]:
        specs = op.inputs(params).items()
        return {name: self.live.tensor(spec, 100 * rank + 10 * variant + i) for i, (name, spec) in enumerate(specs)}

    def judge(self, op: Operator, params: Params, outputs: Any, expected: tuple[Any, ...]) -> str:
        relative, typical = bounds(op, params)
        found = [self.live.to_numpy(output) for output in outputs]
        if not found and not expected:
            return "ok"
        due = op.result_dtype(params)
        if {self.live.dtype(output) for output in outputs} != {due}:
            return f"not {due}"
        try:
            compare_arrays(found, expected, relative, typical * op.tolerance.magnitude(params), typical)
        except WrongResult as error:
            return f"WrongResult: {error}"
        return "ok"


def right(here: Rank, op: Operator, params: Params) -> str:
    """Check one call, a second call after restoring inputs, and a call with other data."""
    exchange, expected = here.prepared(op, params)
    if (exchange.finish is None) == bool(params.get("asynchronous")) and _communicates(here, params):
        return "something to wait for, or nothing, and it should be the other way round"
    outcomes = [here.judge(op, params, exchange(), expected)]
    if exchange.restore:
        exchange.restore()
    outcomes.append(here.judge(op, params, exchange(), expected))
    expected = here.refilled(op, params, exchange)
    outcomes.append(here.judge(op, params, exchange(), expected))
    return next((outcome for outcome in outcomes if outcome != "ok"), "ok")


def _communicates(here: Rank, params: Params) -> bool:
    """Return whether the exchange communicates: a copy within a rank is done when it returns."""
    return "src" not in params or params["src"] != params["dst"]


def _spoils() -> dict[str, Callable[[Any], Any]]:
    import torch

    def one_off(x: Any) -> Any:
        y = x.clone()
        y[-1] += 1
        return y

    return {
        "zeros": torch.zeros_like,
        "one short": lambda x: x[:-1],
        "one element off": one_off,
        "moved by one": lambda x: x.roll(1, 0),
        "from elsewhere": lambda x: x.flip(0),
    }


def wrong(here: Rank, op: Operator, params: Params) -> str:
    """Return `ok` if every way of spoiling the outputs is found; spoiling that changes nothing does not count."""
    exchange, expected = here.prepared(op, params)
    outputs = [output.clone() for output in exchange()]
    missed = []
    for (name, spoil), at in product(_spoils().items(), range(len(outputs))):
        spoiled = [spoil(output) if i == at else output for i, output in enumerate(outputs)]
        same = spoiled[at].shape == outputs[at].shape and bool((spoiled[at] == outputs[at]).all())
        if not same and not here.judge(op, params, spoiled, expected).startswith("WrongResult"):
            missed.append(name)
    return f"not found: {', '.join(missed)}" if missed else "ok"


def repeated(here: Rank, op: Operator, params: Params) -> str:
    """Call as often as allowed: numbers stay finite, and restored inputs give the same result again. All ranks call
    equally often, whatever they find, or the next case would meet messages of this one."""
    exchange, expected = here.prepared(op, params)
    calls, finite = min(exchange.most_calls or 12, 40), True
    for _ in range(2):
        for _ in range(calls):
            exchange.start()
        if exchange.finish:
            exchange.finish()
        finite &= all(bool(output.isfinite().all()) for output in exchange.outputs())
        if exchange.restore:
            exchange.restore()
    outcome = here.judge(op, params, exchange(), expected)
    return outcome if finite else f"not finite after {calls} calls"


def waited(here: Rank, op: Operator, params: Params) -> str:
    """Check that no rank leaves a barrier before the last has arrived, by a clock that all processes share."""
    exchange, _ = here.prepared(op, params)
    if here.rank == 0:
        time.sleep(0.1)
    came = time.monotonic()
    exchange()
    left = time.monotonic()
    times = here.team.gathered([came, left])
    return "ok" if max(row[0] for row in times) <= left else "left before everybody had come"


def verdicts(here: Rank, ranks: int) -> Iterator[dict[str, Any]]:
    jobs = [("right", right, case) for case in cases(ranks)]
    plain = {op.name: case for op in operators() for case in reversed(cases(ranks)) if case.op == op.name}
    jobs += [("wrong", wrong, case) for case in plain.values()]
    halves = (case for case in cases(ranks) if case.params.get("dtype") == "float16" and case.params.get("size", 9) > 1)
    jobs += [("repeated", repeated, case) for case in halves]
    jobs += [("waited", waited, plain["barrier"])]
    if ranks > 1:
        spoiled = {**plain["fault_ranks"].params, "kind": "wrong", "rank": 1}
        jobs += [("fault", right, Case("fault_ranks", spoiled))]
    for kind, judge, case in jobs:
        outcome = judge(here, catalogue()[case.op], case.params)
        yield {"kind": kind, "op": case.op, "params": case.params, "rank": here.rank, "outcome": outcome}


def process(rank: int, ranks: int, ports: Any, printing: Any) -> None:
    live = backend("torch-cpu").load(1)
    port = ports.get() if rank else 0
    world = World(rank, ranks, "127.0.0.1", port, TIMEOUT)
    team = live.join(world, lambda port: [ports.put(port) for _ in range(ranks - 1)] and None)
    lines = [json.dumps(verdict) for verdict in verdicts(Rank(live, team, rank), ranks)]
    team.barrier()
    team.leave()
    with printing:
        print("\n".join([*lines, json.dumps({"kind": "end"})]), flush=True)


def main(ranks: int) -> int:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's own name may not resolve
    context = multiprocessing.get_context("spawn")
    shared = context.Queue(), context.Lock()
    started = [context.Process(target=process, args=(rank, ranks, *shared)) for rank in range(ranks)]
    for one in started:
        one.start()
    for one in started:
        one.join()
    return max(abs(one.exitcode or 0) for one in started)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
