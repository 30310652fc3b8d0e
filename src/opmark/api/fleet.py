"""Fleets: nodes of a Ray cluster that measure. `opmark fleet`, `opmark fleet drain`, `opmark fleet agree`."""

from __future__ import annotations

import getpass
import queue
import secrets
import shlex
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark.analysis.agreement import compare_nodes, medians_of
from opmark.api.requests import PlanRequest, talk
from opmark.api.result import facts_of, open_store
from opmark.errors import UserError
from opmark.runner.doctor import reference_cases
from opmark.runner.executors.base import Resumed
from opmark.runner.executors.cluster import Node, RayCluster
from opmark.runner.executors.ray_executor import RayExecutor
from opmark.runner.executors.seats import FleetOptions
from opmark.runner.plan import Plan, make_plan, settings_for
from opmark.runner.profilers.profile_run import Profiling
from opmark.runner.selection import default_backends, select_cases
from opmark.runner.session import Retries, RunRecorder, new_run
from opmark.runner.supervisor import Say, WorkerOptions
from opmark.schema import Environment, Record
from opmark.schema.fleet import AGREEMENT, NODE_FACT, Agreement, FleetNode, ProfilerChoice
from opmark.schema.machine import chip
from opmark.schema.options import DEFAULT_TIMEOUT, ExecutorOptions, MeasureOptions, PathLike, split_names
from opmark.schema.progress import OnStep, ignore_step
from opmark.schema.record import utc_now
from opmark.stats.verdict import FEWEST
from opmark.store.location import without_secrets
from opmark.store.protocol import Store

_COMMAND = 120
"""Characters of a command that others see who wait for a device."""


def open_fleet(options: ExecutorOptions, profile: Profiling | Sequence[Profiling] | None = None) -> RayExecutor:
    """Join the cluster that the options name, and return the executor that runs tasks on its nodes."""
    if isinstance(options, MeasureOptions) and options.artifact:
        raise UserError("--artifact writes files where tasks run, and these are on other machines", "leave it out")
    profilers = [profile] if isinstance(profile, Profiling) else list(profile or ())
    for one in profilers:
        one.find_profiler()
        if one.program or one.label:
            raise UserError("a profiler with a program or labels of its own runs on this machine alone")
    cluster = RayCluster(options.address, only=split_names(options.nodes), chip=options.chip)
    clocks = options.clocks if isinstance(options, MeasureOptions) else ""
    command = shlex.join(without_secrets([Path(sys.argv[0]).name, *sys.argv[1:]]))
    command = command if len(command) <= _COMMAND else f"{command[: _COMMAND - 4]} ..."
    wanted = FleetOptions(
        command, unfit=options.unfit, wait=options.wait, clocks=clocks, profilers=tuple(map(_choice, profilers))
    )
    return RayExecutor(cluster, wanted)


def _choice(one: Profiling) -> ProfilerChoice:
    return ProfilerChoice(
        one.profiler, one.bin, tuple(one.args), one.warmup, one.iterations, one.batch, one.command, one.timeout,
        str(Path(one.folder).resolve()),
    )  # fmt: skip


def homes_of(store: Store, records: Sequence[Record]) -> dict[str, str]:
    """Return, by id of a case, the node that has measured it in a run that is resumed."""
    nodes = {key: facts.get(NODE_FACT) for key, facts in facts_of(store, (r.environment for r in records)).items()}
    return {record.task.case.id: node for record in records if (node := nodes.get(record.environment))}


def agree(
    backend: str | None = None,
    *,
    suite: str | None = None,
    processes: int = 5,
    margin: float = 0.03,
    options: ExecutorOptions,
    db: PathLike | None = None,
    say: Callable[[str], None] = talk,
    on_step: OnStep = ignore_step,
) -> Agreement:
    """Measure the same cases on all nodes of a kind at the same time, and say which of them differ. The result is
    stored: comparisons mix nodes that agree, and no others."""
    if processes < FEWEST:
        raise UserError(f"processes: expected at least {FEWEST}, got {processes}", "as in --processes 5")
    cases = select_cases(PlanRequest(suite=suite), 0).cases if suite else reference_cases()
    with closing(open_fleet(options)) as fleet:
        name = backend or default_backends(cases)[0]
        nodes = fleet.nodes_for(name)
        if len(nodes) < 2:
            raise UserError(
                f"only {nodes[0].name} can run {name}: there is nothing to compare it with",
                "`opmark fleet` lists the nodes and why they take no work",
            )
        fleet.choose_kind([name])
        measure = MeasureOptions(effort="quick", processes=processes, verify=False)
        plan = make_plan(cases, [name], settings_for(measure, fleet.threads), missing_there=fleet.why_missing)
        with closing(open_store(db, create=True, say=say)) as store:
            return _agree_on(fleet, nodes, plan, store, margin, say, on_step)


def _agree_on(
    fleet: RayExecutor, nodes: Sequence[Node], plan: Plan, store: Store, margin: float, say: Say, on_step: OnStep
) -> Agreement:
    # Each has a session of its own: histories leave these runs out, and they were not measured in turns.
    runs = {node.name: replace(new_run(plan, f"agree {node.name}"), session=secrets.token_hex(8)) for node in nodes}
    recorders = {name: RunRecorder(store, run) for name, run in runs.items()}
    arrived: queue.Queue[tuple[str, Record | Environment | str | None]] = queue.Queue()

    def measure(node: Node) -> None:
        def put(what: Record | Environment | str | None) -> None:
            arrived.put((node.name, what))

        try:
            for records in fleet.on_node(node).run(
                plan, WorkerOptions(DEFAULT_TIMEOUT, say=put, keep=put), Retries(), Resumed()
            ):
                for record in records:
                    put(record)
        finally:
            put(None)

    done, facts = 0, dict[str, Any]()
    with ThreadPoolExecutor(len(nodes)) as pool:
        left = [pool.submit(measure, node) for node in nodes]
        while sum(future.done() for future in left) < len(left) or not arrived.empty():
            try:
                name, what = arrived.get(timeout=0.2)
            except queue.Empty:
                continue
            if isinstance(what, Record):
                recorders[name].add(what)
                done += 1
                on_step(done, len(plan.tasks) * len(nodes), f"{name}: {what.task.case.op}")
            elif isinstance(what, Environment):
                facts = what.facts
                store.add_environment(what)
            elif what:
                say(what)
        for future in left:
            future.result()
    figures = {name: store.figures(runs=[run.id]) for name, run in runs.items() if recorders[name].begun}
    values = medians_of(figures)
    if len(values) < 2 or not any(values.values()):
        raise UserError("too little was measured to compare nodes", "`opmark runs --label 'agree *'` lists the runs")
    whole, single = compare_nodes(values, store.cases({case for own in values.values() for case in own}), margin)
    first = next(iter(runs.values()))
    processes = max(task.settings.process for task in plan.tasks) + 1
    found = Agreement(chip(facts), plan.tasks[0].backend, first.started, margin, processes, whole, single)
    store.keep(AGREEMENT, found.kind, found.started, found)
    return found


def list_nodes(address: str) -> list[FleetNode]:
    """Return the nodes of a cluster with their devices, leases and versions, and why they take no work."""
    with closing(RayCluster(address, ask=False)) as cluster:
        return cluster.examine()


def drain_node(name: str, address: str, *, undo: bool = False) -> None:
    """Let a node take no more work: what it measures now is its last task. With `undo` it takes work again."""
    with closing(RayCluster(address, ask=False)) as cluster:
        names = [node.name for node in cluster.nodes.values()]
        if name not in names:
            raise UserError(f"no node named `{name}` in the cluster at {address}", f"it has {', '.join(names)}")
        cluster.book.drain(name, "" if undo else f"drained by {getpass.getuser()} at {utc_now()}")
