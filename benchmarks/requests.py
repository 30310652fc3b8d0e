"""Requests under load: what the load generator costs, how well it keeps its schedule, and MLPerf's LoadGen beside it.

python -m benchmarks requests             # the rows of the table
python -m benchmarks.requests             # beside LoadGen: needs `pip install mlcommons_loadgen`, which opmark does not
"""

from __future__ import annotations

import json
import os
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.common import Row, Shell
from opmark.analysis.load import LoadFigures, load_figures
from opmark.plugin import Launch
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.runner.plan import settings_for
from opmark.schema import EFFORTS, Case, Measurement, Task
from opmark.schema.load import Load
from opmark.schema.options import MeasureOptions
from opmark.worker.measure.instruments import ConditionsMonitor
from opmark.worker.measure.load import measure_load
from opmark.worker.preparation import bind, make_inputs, prepare

MOST_OVERHEAD = 20e-6
MOST_LATE = 1e-3
REQUESTS = 5000
RATE = 500.0
TURNS = 5


def rows(shell: Shell) -> list[Row]:
    return [_overhead(1), _overhead(3), _schedule()]


def _null_launches(clients: int) -> Sequence[Launch]:
    """Launches of the backend that computes nothing."""
    return _launches("null", "matmul", {}, clients)


def _overhead(clients: int) -> Row:
    """What a request costs where the model costs nothing: the time of a client from one request to the next, and the
    share of it that is in the latency. Threads of clients share Python's lock, so it is counted per request of all."""
    found = [_measure(_null_launches(clients), Load(clients, REQUESTS)) for _ in range(TURNS)]
    each = median([_facts(one).window / len(one.samples) for one in found])
    inside = median([fmean(one.samples) for one in found])
    return Row(
        f"a request to a model that does nothing, {clients} client{'s' * (clients > 1)}, {REQUESTS} requests each",
        f"at most {MOST_OVERHEAD * 1e6:.0f} µs",
        f"{each * 1e6:.1f} µs, of these {inside * 1e6:.1f} µs in its latency",
        max(each, inside) <= MOST_OVERHEAD,
    )


def _schedule() -> Row:
    found = [_measure(_null_launches(2), Load(2, 500, "poisson", RATE), str(i)) for i in range(TURNS)]
    late = sorted(value for one in found for value in _facts(one).late)
    tail = late[int(0.99 * (len(late) - 1))]
    plain = _plain_lateness()
    return Row(
        f"schedule error at {RATE:.0f} requests/s, Poisson arrivals, 2 clients, {len(late)} requests",
        f"99 % below {MOST_LATE * 1e3:.0f} ms",
        f"99 % below {tail * 1e3:.3f} ms, 90 % below {late[int(0.9 * len(late))] * 1e3:.3f} ms, half below "
        f"{median(late) * 1e6:.0f} µs; a plain loop that sleeps: 99 % below {plain * 1e3:.3f} ms",
        tail < MOST_LATE,
    )


def _plain_lateness() -> float:
    """Return the 99th percentile by which a loop that only sleeps wakes up too late: what the machine allows."""
    late, due = [], time.perf_counter() + 0.01
    for _ in range(REQUESTS):
        time.sleep(max(0.0, due - time.perf_counter()))
        late.append(time.perf_counter() - due)
        due = max(due, time.perf_counter()) + 1 / RATE
    return sorted(late)[int(0.99 * REQUESTS)]


def _facts(measurement: Measurement) -> Any:
    assert measurement.load is not None
    return measurement.load


def _measure(launches: Sequence[Launch], load: Load, seed: str = "") -> Measurement:
    return measure_load(launches, load, EFFORTS["quick"], seed, ConditionsMonitor(None))


def _launches(name: str, op: str, given: dict[str, Any], clients: int) -> Sequence[Launch]:
    """Launches of one loaded model, one per client."""
    info, operator = find_backend(name), find_operator(op)
    live = info.load(1)
    (settings,) = settings_for(MeasureOptions(effort="quick", threads=[1], clients=clients))
    params = operator.complete({**operator.preset("small"), **given})
    implementation = implementations(operator, info)[0]
    task = Task(Case.of(op, params, "forward"), name, implementation.label, settings)
    first = prepare(params, task, operator, implementation, live)
    others = [make_inputs(params, task, operator, live, variant) for variant in range(1, clients)]
    return live.clients(
        first.launch, others,
        lambda inputs: bind(params, task, operator, implementation, live, dict(inputs)).launch,
    )  # fmt: skip


# Beside MLPerf's LoadGen: the same launches, in turns.

COUNT = 400
SERVER_RATE = 60.0


def _loadgen(launches: Sequence[Launch], *, server: bool) -> dict[str, float]:
    """Return p50, p90 (seconds) and requests per second as LoadGen reports them: SingleStream by one client, Server by
    threads that take the queries from a queue."""
    import mlperf_loadgen as lg

    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def serve(launch: Launch) -> None:
        while (sample := waiting.get()) is not None:
            launch()
            lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0)])

    def issue(samples: Any) -> None:
        for sample in samples:
            if server:
                waiting.put(sample)
            else:
                launches[0]()
                lg.QuerySamplesComplete([lg.QuerySampleResponse(sample.id, 0, 0)])

    threads = [threading.Thread(target=serve, args=(launch,), daemon=True) for launch in launches] if server else []
    for thread in threads:
        thread.start()
    settings = lg.TestSettings()
    settings.scenario = lg.TestScenario.Server if server else lg.TestScenario.SingleStream
    settings.mode = lg.TestMode.PerformanceOnly
    settings.min_duration_ms = 0
    settings.min_query_count = settings.max_query_count = COUNT
    settings.server_target_qps = SERVER_RATE
    settings.server_target_latency_ns = 10**10
    system = lg.ConstructSUT(issue, lambda: None)
    library = lg.ConstructQSL(16, 16, lambda samples: None, lambda samples: None)
    with tempfile.TemporaryDirectory() as folder:
        output = lg.LogOutputSettings()
        output.outdir, output.copy_summary_to_stdout = folder, False
        logs = lg.LogSettings()
        logs.log_output, logs.enable_trace = output, False
        lg.StartTestWithLogSettings(system, library, settings, logs)
        summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
    lg.DestroyQSL(library)
    lg.DestroySUT(system)
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()
    facts = dict(line.split(":", 1) for line in summary.splitlines() if ":" in line)
    found = {name.strip(): value.strip() for name, value in facts.items()}
    rate = found["Completed samples per second" if server else "QPS w/ loadgen overhead"]
    return {
        "p50": float(found["50.00 percentile latency (ns)"]) * 1e-9,
        "p90": float(found["90.00 percentile latency (ns)"]) * 1e-9,
        "rate": float(rate),
    }


def _own(launches: Sequence[Launch], *, server: bool, turn: int) -> dict[str, float]:
    clients = len(launches)
    load = Load(clients, COUNT // clients, "poisson", SERVER_RATE) if server else Load(1, COUNT)
    figures = load_figures([_measure(launches if server else launches[:1], load, str(turn))], {})
    assert isinstance(figures, LoadFigures)
    known = {name: figures.percentiles[name].value for name in ("p50", "p90")}
    found = {**known, "rate": figures.requests_per_second.value}
    return {name: value for name, value in found.items() if value is not None}


def _compare(what: str, launches: Sequence[Launch], *, server: bool) -> None:
    pairs = []
    for turn in range(TURNS):
        pairs.append((_own(launches, server=server, turn=turn), _loadgen(launches, server=server)))
    for name in ("p50", "p90", "rate"):
        ours, theirs = (median([pair[side][name] for pair in pairs if name in pair[side]]) for side in (0, 1))
        scale, unit = (1e3, "ms") if name != "rate" else (1.0, "requests/s")
        print(
            f"| {what}, {'Server' if server else 'SingleStream'} | {name} | {ours * scale:.3f} {unit} | "
            f"{theirs * scale:.3f} {unit} | {ours / theirs:.3f} |",
            flush=True,
        )


def _sleeper(seconds: float) -> Callable[[], None]:
    return lambda: time.sleep(seconds)


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    print(json.dumps({"load average": os.getloadavg()[0], "cores": os.cpu_count()}))
    print("| model | figure | opmark | LoadGen | ratio |\n|---|---|---|---|---|")
    resnet = _launches("onnxruntime-cpu", "model:resnet50", {"batch": 1}, 2)
    for what, launches in (("5 ms of sleep", [_sleeper(0.005)] * 2), ("resnet50 small, ONNX Runtime", resnet)):
        for server in (False, True):
            _compare(what, launches, server=server)


if __name__ == "__main__":
    main()
