"""The process of one rank: orders in on stdin, words out on a pipe of its own, one JSON line each."""

from __future__ import annotations

import os
import sys
from typing import IO

from opmark.errors import OpmarkError
from opmark.interfaces import Backend, World
from opmark.runner.execute import reason_of
from opmark.runner.ranks.execute import RankBench
from opmark.runner.ranks.orders import Do, Failed, Join, Joined, Listening, Word, encode, orders
from opmark.runner.worker import Hello, opened, settle_in

LOCAL_SIZE = "LOCAL_WORLD_SIZE"


def main(backend_name: str, threads: int, pipe: int) -> None:
    settle_in(pipe)
    with os.fdopen(pipe, "wb", buffering=0) as out:
        info, backend, sensors, hello = opened(backend_name, threads)
        if hello.unavailable or type(backend).join is Backend.join:
            reason = hello.unavailable or f"{info.name} has no way to join several processes"
            out.write(encode(Hello(reason, hello.environment)) + b"\n")
            return
        bench = RankBench(info, backend, hello.environment.id, sensors, int(os.environ.get(LOCAL_SIZE, "1")))
        out.write(encode(hello) + b"\n")
        for line in sys.stdin.buffer:
            order = orders.decode(line)
            _say(out, bench.do(order.task) if isinstance(order, Do) else _joined(order, bench, backend, out))


def _joined(order: Join, bench: RankBench, backend: Backend, out: IO[bytes]) -> Word:
    world = World(order.rank, order.size, order.host, order.port, order.timeout)
    try:
        bench.left()
        team = backend.join(world, lambda port: _say(out, Listening(port)))
    except OpmarkError as error:
        return Failed("skipped", error.message)
    except Exception as error:  # noqa: BLE001 - an engine raises anything; it is told to the parent, who ends the crew
        return Failed("error", reason_of(error))
    bench.joined(team, order.rank)
    return Joined(team.engine)


def _say(out: IO[bytes], word: Word) -> None:
    out.write(encode(word) + b"\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
