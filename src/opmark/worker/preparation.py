"""Makes the inputs and the launch of one task on its backend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opmark.errors import OutOfMemory, Unsupported
from opmark.plugin import Backend, Implementation, Launch, Operator, Params
from opmark.plugin.space import THREADS
from opmark.schema import Compilation, Task, TensorSpec
from opmark.schema.arguments import WEIGHTS
from opmark.schema.cost import nbytes
from opmark.units import count_bytes, count_noun

_RANK_SEEDS = 1_000_003


@dataclass(frozen=True)
class PreparedLaunch:
    inputs: dict[str, Any]
    launch: Launch
    seeds: Sequence[Any] = ()
    """The gradients of the outputs, where there is a backward pass."""
    reads: Sequence[Any] = ()
    """Tensors that a foreign call takes: its cost is counted from these."""
    called: str = ""
    compilation: Compilation | None = None
    kept: int = 0
    """Bytes that were on the device before, because several launches share them: the weights of a model."""


def prepare(
    params: Params,
    task: Task,
    operator: Operator,
    implementation: Implementation,
    backend: Backend,
    variant: int = 0,
) -> PreparedLaunch:
    """Make new inputs, and a launch over them. `variant` chooses other data of the same kind."""
    inputs = make_inputs(params, task, operator, backend, variant)
    return bind(params, task, operator, implementation, backend, inputs, variant)


def make_inputs(
    params: Params, task: Task, operator: Operator, backend: Backend, variant: int = 0, rank: int = 0
) -> dict[str, Any]:
    """Make the input tensors. The same arguments give the same data, so that any rank can compute the inputs of
    another one."""
    return {
        name: backend.tensor(spec, seed) for name, spec, seed in _seeded_inputs(params, task, operator, variant, rank)
    }


def bind(
    params: Params,
    task: Task,
    operator: Operator,
    implementation: Implementation,
    backend: Backend,
    inputs: dict[str, Any],
    variant: int = 0,
) -> PreparedLaunch:
    """Make a launch over inputs that exist already."""
    backend.compute_in(str(params.get("dtype", "")))
    own: dict[str, Any] = {}
    chosen = dict(task.settings.configuration)
    if implementation.space:
        space = implementation.space(params)
        own["configuration"] = space.check({k.name: chosen.pop(k.name) for k in space.knobs if k.name in chosen})
    if implementation.takes:
        taken = {name: chosen.pop(name) for name in implementation.takes if name in chosen}
        own["configuration"] = {**own.get("configuration", {}), **taken}
    of_backend = backend.info.find_space(operator, params) if chosen else None
    if of_backend:
        of_worker = {} if THREADS in chosen else {THREADS: backend.threads}
        chosen = {name: of_worker.get(name, value) for name, value in of_backend.check(chosen).items()}
    backend.configure(chosen)
    with backend.placing():
        built = implementation.build(params, **own, **backend.operands(implementation.framework, inputs))
        launch = backend.compile(built, inputs)
    reads, called = getattr(built, "reads", ()), getattr(built, "described", "")
    if task.case.phase == "forward":
        compilation = getattr(launch, "compilation", None)
        return PreparedLaunch(inputs, launch, (), reads, called, compilation, getattr(built, "kept", 0))
    leaves = _gradient_tensors(params, task, operator, launch, inputs)
    start = _seed(task, variant) + len(inputs)
    whole = getattr(launch, "flat", launch)
    both = task.case.phase == "both"
    backward, seeds = backend.backward(whole, leaves, start, forward=both, some=operator.foreign)
    compilation = getattr(backward, "compilation", None) or getattr(launch, "compilation", None)
    return PreparedLaunch(inputs, backward, seeds, reads, called, compilation)


def _gradient_tensors(
    params: Params, task: Task, operator: Operator, launch: Launch, inputs: dict[str, Any]
) -> list[Any]:
    """The tensors whose gradients are computed: for a foreign call all that can have one, if the case names none."""
    if operator.foreign and not task.case.wrt:
        if not hasattr(launch, "leaves"):
            raise Unsupported("a callable of this framework has no backward phase here")
        leaves = list(launch.leaves)
        if not leaves:
            raise Unsupported("nothing that goes in has a gradient")
        return leaves
    chosen = gradient_names(task, operator, params)
    if operator.foreign and WEIGHTS in chosen:
        leaves = [*(inputs[name] for name in chosen if name != WEIGHTS), *getattr(launch, "weights", ())]
        if not leaves:
            raise Unsupported("the module has no weights, and no input is to have a gradient")
        return leaves
    return [inputs[name] for name in chosen]


def refill(
    params: Params,
    task: Task,
    operator: Operator,
    backend: Backend,
    prepared: PreparedLaunch,
    variant: int,
    *,
    keep_ends: bool = False,
) -> None:
    """Put other data into the same tensors, one after the other, so that it takes the memory of one of them.

    With `keep_ends`, some elements at the beginning and the end stay: a cache must not know an input by these. Values
    that belong together (sorted offsets) are replaced as a whole.
    """
    for name, spec, seed in _seeded_inputs(params, task, operator, variant):
        target, source = prepared.inputs[name], backend.tensor(spec, seed)
        if keep_ends and spec.elements > 2 and not spec.make:
            kept = 1 + seed % max(1, spec.elements // 256)
            backend.splice(target, source, kept, spec.elements - kept)
        else:
            backend.copy_into(target, source)


def _seeded_inputs(
    params: Params, task: Task, operator: Operator, variant: int, rank: int = 0
) -> Iterator[tuple[str, TensorSpec, int]]:
    first = _seed(task, variant, rank)
    for i, (name, spec) in enumerate(operator.inputs(params).items()):
        yield name, spec, first + i


def _seed(task: Task, variant: int, rank: int = 0) -> int:
    """A seed that is far from those of any other variant, and of any other rank."""
    return 1000 * task.settings.seed + 100 * variant + _RANK_SEEDS * rank


def gradient_names(task: Task, operator: Operator, params: Params) -> tuple[str, ...]:
    """Names of the inputs whose gradients are computed. `params`: those of the case, or the smaller ones that it is
    verified with."""
    return task.case.wrt or operator.gradients_of(params)


def case_bytes(params: Params, operator: Operator) -> int:
    """Bytes of the inputs and outputs of one call, and of what the operator holds besides."""
    return nbytes(operator.inputs(params).values()) + operator.cost(params).bytes_written + operator.held(params)


def refuse_if_too_large(params: Params, operator: Operator, backend: Backend, ranks: int = 0, clients: int = 0) -> None:
    """Raise OutOfMemory where a call needs more than is free: a machine that swaps or kills is worse than a record.

    `ranks`: how many ranks of a group share this memory; 0 where a single worker has it. `clients`: how many clients
    have inputs and outputs of their own; one of them has its memory already, and what a model holds is shared. An
    operator that works in place has no output, but a copy of its inputs to be put back.
    """
    free = backend.available_bytes()
    need = case_bytes(params, operator) * max(1, ranks)
    if clients:
        need = (case_bytes(params, operator) - operator.held(params)) * (clients - 1)
    if free is not None and need > free:
        what = f"buffers of {count_noun(ranks, 'rank')}" if ranks else "inputs and outputs"
        what += f" of {count_noun(clients - 1, 'more client')}" if clients else ""
        raise OutOfMemory(f"{what} need {count_bytes(need)}, {count_bytes(free)} are free")
