"""TVM's own tuner, MetaSchedule, for whatever TVM imports: operators and whole models.

This module is the program of a child process, which `tuner.py` starts and may kill at any time: each record is on disk
as soon as it is measured. A request is JSON on standard input (TuningOrder); `database_workload.json` and
`database_tuning_record.json` in its folder are the answer.

Two traps are avoided. TVM 0.27 with a newer apache-tvm-ffi than 0.1.14 ends in a segmentation fault, so that package is
pinned. And each of its processes imports hundreds of tensor intrinsics of other devices, for longer than a
candidate may take: only those of this processor are loaded.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opmark.frameworks.tvm.library import relax, tvm
from opmark.plugin import Params

_INTRINSICS = "tvm.s_tir.tensor_intrin"
_POPULATION = 96
"""TVM's default of 512 schedules takes minutes per generation on a few cores."""
_CANDIDATE_SECONDS = 30.0
"""Time limit of compiling one candidate, and of running it."""


@dataclass(frozen=True)
class TuningOrder:
    """What the child process is to tune."""

    op: str
    params: Params
    folder: str
    threads: int
    trials: int
    strategy: str = "evolutionary"
    """`evolutionary`, `replay-trace` or `replay-func`."""
    seed: int = 0

    def encode(self) -> str:
        return json.dumps(asdict(self))


def load_few_intrinsics() -> None:
    """Put a package in place of TVM's tensor intrinsics that has those of x86 alone. Processes of the builder call it
    before anything else."""
    if _INTRINSICS in sys.modules:
        return
    package = types.ModuleType(_INTRINSICS)
    package.__path__ = [str(Path(tvm.s_tir.__file__).parent / "tensor_intrin")]
    sys.modules[_INTRINSICS] = package
    tvm.s_tir.tensor_intrin = package
    importlib.import_module(f"{_INTRINSICS}.x86")


def tune(order: TuningOrder) -> None:
    """Tune an operator or a model, and leave the records in the folder of the order. What has a record there already is
    not measured again."""
    load_few_intrinsics()
    from tvm.s_tir import meta_schedule as ms

    from opmark.frameworks.tvm.candidates import FreshCandidates, RecordingRunner, hash_program
    from opmark.frameworks.tvm.targets import cpu_target, lower_graph, operator_graph

    target = cpu_target(order.threads)
    lowered = lower_graph(operator_graph(order.op, order.params), target)
    tasks = ms.relax_integration.extract_tasks(lowered, target)
    evolution = {"population_size": _POPULATION, "init_measured_ratio": 0.2, "init_min_unmeasured": 24}
    settings = {**evolution, "genetic_num_iters": 2} if order.strategy == "evolutionary" else {}
    database = ms.database.JSONDatabase(work_dir=order.folder)
    measured = {hash_program(record.as_measure_candidate()) for record in database.get_all_tuning_records()}
    strategy = FreshCandidates(ms.search_strategy.SearchStrategy.create(order.strategy, **settings), measured)
    contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
        tasks, order.folder, strategy=strategy, seed=order.seed
    )
    scheduler = ms.task_scheduler.GradientBased()
    runner = ms.runner.LocalRunner(
        timeout_sec=_CANDIDATE_SECONDS,
        evaluator_config=ms.runner.EvaluatorConfig(number=1, repeat=3, min_repeat_ms=10),
    )
    ms.tune_tasks(
        tasks=contexts,
        task_weights=weights,
        work_dir=order.folder,
        max_trials_global=order.trials,
        num_trials_per_iter=min(16, order.trials),
        builder=ms.builder.LocalBuilder(
            max_workers=order.threads, timeout_sec=_CANDIDATE_SECONDS, initializer=load_few_intrinsics
        ),
        runner=RecordingRunner(runner, scheduler, database),
        database=database,
        measure_callbacks=[ms.measure_callback.RemoveBuildArtifact(), ms.measure_callback.UpdateCostModel()],
        task_scheduler=scheduler,
    )


# Records as a configuration: JSON that a worker applies when it compiles.


def apply_records(lowered: Any, target: Any, records: Sequence[dict[str, Any]]) -> tuple[Any, int]:
    """Return the module with the schedules of the records, and how many of its kernels have got one. A record fits a
    kernel whose main computation is that of the record, whatever was fused with it."""
    from tvm.s_tir import meta_schedule as ms

    database = ms.database.MemoryDatabase(module_equality="anchor-block")
    for entry in records:
        workload = database.commit_workload(ms.database.Workload.from_json(entry["workload"]).mod)
        database.commit_tuning_record(ms.database.TuningRecord.from_json(entry["record"], workload))
    before = _unscheduled(lowered)
    with target, database:
        tuned = relax.transform.MetaScheduleApplyDatabase()(lowered)
    return tuned, before - _unscheduled(tuned)


def _unscheduled(module: Any) -> int:
    """Number of kernels that have no schedule yet."""
    kernels = [one for one in module.functions.values() if isinstance(one, tvm.tirx.PrimFunc)]
    return sum(
        not (one.attrs and one.attrs.get("tirx.is_scheduled", one.attrs.get("tir.is_scheduled"))) for one in kernels
    )


def main() -> None:
    # By its name, and not as `__main__`: the processes of the builder import what they call.
    own = importlib.import_module("opmark.frameworks.tvm.metaschedule")
    own.tune(own.TuningOrder(**json.load(sys.stdin)))


if __name__ == "__main__":
    main()
