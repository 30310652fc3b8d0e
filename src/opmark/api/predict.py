"""How long it would take, without running it: `opmark predict`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from opmark.api.calibrate import calibrate
from opmark.api.extract import describe_case, find_operators, model_case
from opmark.api.program_times import (
    HERE,
    WholeProgram,
    find_chip_of,
    floors_of,
    place_call,
    predict_whole,
    why_not_learnt,
)
from opmark.api.requests import RunRequest, talk
from opmark.api.result import facts_of, machine_facts, open_store
from opmark.api.run import run_request
from opmark.catalogue import workload_file
from opmark.catalogue.expansion import cases_of
from opmark.errors import InvalidParameter, UnknownName, Unsupported, UserError
from opmark.models.family import source_of
from opmark.plugin.registry import backend as find_backend
from opmark.plugin.registry import implementations
from opmark.plugin.registry import operator as find_operator
from opmark.prediction.library import model_folder, own_model
from opmark.prediction.measured import (
    FAMILIES,
    TIMES,
    choose_entries,
    device_name,
    entry_of,
    random_calls,
    samples_of_figures,
    usable_peaks,
)  # fmt: skip
from opmark.prediction.predictor import ENERGY, FAR, Prediction, Predictor, load, save, shipped, train
from opmark.prediction.readers import matching_chips, read_tables, tables_in
from opmark.prediction.samples import (
    ChipFigures,
    Samples,
    chip_figures,
    class_of,
    missing_figures,
    samples_of,
    sizes_of_case,
)  # fmt: skip
from opmark.runner.selection import default_backends, select_cases
from opmark.runner.supervisor import KeptWorkers, WorkerPool
from opmark.schema import Case, Entry, Workload
from opmark.schema.call_sizes import CallSizes
from opmark.schema.case import MODEL_PREFIX, TRACE_PREFIX
from opmark.schema.machine import Peaks, findings_key
from opmark.schema.options import PathLike, Selection
from opmark.schema.record import Figure
from opmark.schema.workload import VERSION
from opmark.store.protocol import Store
from opmark.store.record_codec import figures_of
from opmark.units import count_noun

PROBES = 10
LABEL = "predict"
"""Label of runs that were measured to learn from."""
_BATCH = 60
_CANDIDATES = 4
"""Candidates for each case that is measured."""


@dataclass(frozen=True)
class PredictedCase:
    case: Case
    prediction: Prediction
    floor: float
    """Seconds of the smallest call of this operator: what can be hidden behind other work."""


@dataclass(frozen=True)
class PredictedCases:
    """Predictions for a chip, and what they are based on."""

    what: str
    chip: str
    cases: tuple[PredictedCase, ...]
    skipped: tuple[str, ...]
    """Calls that cannot be predicted, and why."""
    predictor: Predictor
    notes: tuple[str, ...] = ()
    whole: WholeProgram | None = None
    """All calls of a model or a trace, in their order."""

    @property
    def alone(self) -> float:
        """Seconds if every call waits for the one before: nothing is hidden."""
        return sum(one.case.count * one.prediction.seconds for one in self.cases)

    @property
    def hidden(self) -> float:
        """Seconds if every launch but the first is hidden behind the work of the calls before it."""
        work = sum(one.case.count * max(one.prediction.seconds - one.floor, one.prediction.bound) for one in self.cases)
        return work + max((one.floor for one in self.cases), default=0.0)

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the interval of `alone`: errors on one chip go together, so ends are added."""
        ends = [(one.case.count * one.prediction.low, one.case.count * one.prediction.high) for one in self.cases]
        return sum(low for low, _ in ends), sum(high for _, high in ends)


def predict(
    what: str,
    params: Mapping[str, Any] | None = None,
    *,
    on: str,
    size: str = "",
    phase: str = "forward",
    backend: str | None = None,
    model: PathLike | None = None,
    quantity: str | None = None,
    far: bool = False,
) -> PredictedCases:
    """Predict the time of an operator, of a model's operators or of a workload on a chip, without running anything; its
    energy, if `quantity` says so and a model has learnt it.

    `far` answers even where the case lies far outside of what was learnt."""
    predictor = find_predictor(backend, on, model, quantity)
    cases, skipped = _cases(what, params, size, phase)
    name, peaks = find_chip_of(on, predictor)
    known: list[tuple[Case, CallSizes, ChipFigures, float]] = []
    for case in cases:
        dtype = str(case.params.get("dtype", "float32"))
        sizes = _case_sizes(case)
        reason = sizes if isinstance(sizes, str) else why_not_learnt(sizes, dtype, name, predictor)
        if reason or isinstance(sizes, str):
            skipped.append(_not_predicted(case, reason))
        else:
            known.append((case, sizes, *place_call(sizes, dtype, name, peaks, predictor)))
    if not known:
        raise UserError(
            f"nothing of `{what}` can be predicted: {skipped[0]}",
            "`opmark run` measures it, and `opmark predict train` learns from what was measured",
        )
    devices = [device_name(name, str(case.params.get("dtype", "float32"))) for case, *_ in known]
    samples = samples_of(
        [call for _, call, _, _ in known], devices, [float("nan")] * len(known),
        {device: figures for device, (_, _, figures, _) in zip(devices, known, strict=True)},
        [bound for *_, bound in known],
    )  # fmt: skip
    predictions = predictor.predict(samples)
    if not far:
        near = [row for row, one in enumerate(predictions) if one.distance <= FAR]
        beyond = [
            _not_predicted(case, f"it lies far outside of what was learnt: 2^{one.distance:.1f} times beyond it")
            for (case, *_), one in zip(known, predictions, strict=True)
            if one.distance > FAR
        ]
        if not near:
            raise UserError(
                f"nothing of `{what}` can be predicted: {beyond[0]}",
                f"learnt from {predictor.source}; `opmark run` measures it, --far answers all the same",
            )
        skipped += beyond
        known, predictions = [known[row] for row in near], [predictions[row] for row in near]
        samples = samples.take(near)
    floors = floors_of(samples, predictor)
    notes = []
    others = [sheet.chip for sheet in matching_chips(on) if sheet.chip != name] if on not in predictor.chips else []
    if peaks is not None and others:
        notes.append(f"`{on}` was taken for {name}; it also matches {', '.join(others)}")
    if peaks is not None and name not in predictor.chips and (missing := missing_figures(peaks)):
        notes.append(f"the datasheet of {name} lacks {', '.join(missing)}: typical figures stand in")
    if unseen := sorted({str(op) for op, one in zip(samples.operator, predictions, strict=True) if not one.seen}):
        notes.append(f"not in the training data, predicted as others of their class: {', '.join(unseen)}")
    found_cases = tuple(
        PredictedCase(case, one, floor) for (case, *_), one, floor in zip(known, predictions, floors, strict=True)
    )
    whole = None
    if (program := _program(what, params, size)) and predictor.quantity != ENERGY:
        info = find_backend(backend or predictor.backend)
        try:
            whole = predict_whole(program, on, predictor, info, far=far)
            if what.startswith(TRACE_PREFIX):
                notes.append("the whole is the last step of the trace; the cases above are the calls of all its steps")
        except (Unsupported, UserError) as error:
            notes.append(f"not predicted as a whole: {error.message}")
    return PredictedCases(what, name, found_cases, tuple(skipped), predictor, tuple(notes), whole)


def _program(what: str, params: Mapping[str, Any] | None, size: str) -> Case | None:
    """Return the case of a program, whose calls have an order; None for anything else."""
    if what.startswith(MODEL_PREFIX):
        return model_case(what, params, size)
    if what.startswith(TRACE_PREFIX):
        (case,) = cases_of(Entry(what, dict(params or {})), find_operator)
        return case
    return None


def find_predictor(
    backend: str | None = None, on: str = "", model: PathLike | None = None, quantity: str | None = None
) -> Predictor:
    """Return the model of a file; else the user's own for the backend, or for the chip; else the one that ships. What
    torch.compile makes is predicted by the model of torch on that device, unless it has one of its own."""
    _check_quantity(quantity)
    energy = quantity == ENERGY
    if model is not None:
        return load(Path(model))
    if on.casefold() in HERE and backend is None:
        backend = default_backends()[0]
    if backend is not None:
        own = own_model(find_backend(backend).name, quantity)
        if own.is_file():
            return load(own)
        if backend == shipped().backend and not energy:
            return shipped()
        info = find_backend(backend)
        if info.framework == "torch" and info.compiles:  # its operators are those of torch, and some are fused
            return find_predictor(f"torch-{info.device}", on, model, quantity)
        what = "the energy" if energy else "the times"
        raise UserError(
            f"no model was trained for {what} of {backend}",
            f"`opmark predict train --backend {backend}{' --quantity energy' if energy else ''}` learns from the "
            "store, and measures first with --budget 10m",
        )
    for path in sorted(model_folder().glob("*.npz")):
        found = load(path)
        if (found.quantity == ENERGY) == energy and _has_learnt(found, on):
            return found
    if energy:
        raise UserError(
            f"no model has learnt the energy of {on}", "`opmark predict train --quantity energy` learns from the store"
        )
    return shipped()


def _check_quantity(quantity: str | None) -> None:
    if quantity not in (None, ENERGY, *TIMES):
        raise InvalidParameter(f"--quantity: expected one of {', '.join((*TIMES, ENERGY))}, got `{quantity}`")


def _has_learnt(predictor: Predictor, on: str) -> bool:
    """Return whether a model has records or probes of a chip."""
    try:
        name, _ = find_chip_of(on, predictor)
    except UserError:
        return False
    return name in {one.partition(" [")[0] for one in (*predictor.chips, *predictor.probes)}


def train_from_files(
    paths: Sequence[PathLike],
    *,
    backend: str | None = None,
    source: str = "",
    seed: int = 0,
    say: Callable[[str], None] = talk,
) -> Predictor:
    """Train on tables of measured operators, each a file or a folder of them. `backend` is whose times they are, by
    default torch's on GPUs; `source` is what the model says of where they come from, by default their names."""
    name = find_backend(backend or "torch-cuda").name
    tables: list[Path] = []
    for path in map(Path, paths):
        tables += tables_in(path) if path.is_dir() else [path]
    samples = read_tables(tables, say=say)
    names = ", ".join(path.name for path in tables)
    return train(samples, source or names, backend=name, quantity="latency", seed=seed, say=say)


def train_from_store(
    backend: str | None = None,
    *,
    db: PathLike | None = None,
    quantity: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = talk,
) -> Predictor:
    """Train on the records of a backend in the store."""
    _check_quantity(quantity)
    backend = find_backend(backend or default_backends()[0]).name
    samples, found = stored_samples(backend, db=db, quantity=quantity, threads=threads)
    return train(samples, f"store, {len(samples)} shapes", backend=backend, quantity=found, seed=seed, say=say)


def stored_samples(
    backend: str, *, db: PathLike | None = None, quantity: str | None = None, threads: int | None = None
) -> tuple[Samples, str]:
    """Return what a store knows of a backend, and the quantity."""
    with closing(open_store(db)) as store:
        figures = _figures_of(store, backend, threads)
        cases = store.cases({one.case for one in figures})
        peaks = _known_peaks(store, figures)
    if figures and not peaks:
        raise UserError(
            f"no record of {backend} is on a chip with known peaks",
            f"`opmark calibrate --backend {backend}` measures the peaks of this machine",
        )
    return samples_of_figures(figures, cases, peaks, backend, quantity)


def _known_peaks(store: Store, figures: Sequence[Figure]) -> dict[str, tuple[str, Peaks]]:
    """Return by environment the name and the peaks of its chip."""
    peaks: dict[str, tuple[str, Peaks]] = {}
    for environment, facts in facts_of(store, (one.environment for one in figures)).items():
        known = machine_facts(store, facts)
        if found := usable_peaks(known.measured, known.datasheet):
            peaks[environment] = (findings_key(facts), found)
    return peaks


def _has_peaks(backend: str, db: PathLike | None, threads: int | None) -> bool:
    with closing(open_store(db)) as store:
        return bool(_known_peaks(store, _figures_of(store, backend, threads)))


def _figures_of(store: Store, backend: str, threads: int | None) -> list[Figure]:
    """Return what was measured of a backend as it is: studies of factors and tunings measure knobs and shares of the
    machine too, which are times of another kind."""
    studies = {run.id for run in store.runs() if run.session and run.session != LABEL}
    found = [one for one in store.figures() if one.backend == backend and threads in (None, one.threads)]
    kept = [one for one in found if one.run not in studies]
    for run in studies & {one.run for one in found}:
        for record in store.records(run):
            settings = record.task.settings
            if (
                record.task.backend == backend
                and threads in (None, settings.threads)
                and not (settings.configuration or settings.resources)
            ):
                kept += figures_of(run, record)
    return kept


def measure_for_training(
    backend: str | None,
    budget: float,
    *,
    operators: Sequence[str] = (),
    threads: int | None = None,
    quantity: str | None = None,
    db: PathLike | None = None,
    seed: int = 0,
    say: Callable[[str], None] = talk,
) -> int:
    """Measure cases to learn from until the budget (seconds) is spent; return how many were measured. `quantity`: what
    is to be learnt, by default times.

    Where the store has nothing of the backend, the first shapes are random. Later ones are, of many, those that would
    teach most: far from all that was measured, and of operators that could not be predicted well from their own other
    shapes. Peaks that are not known are measured after the first shapes, which tell the machine."""
    _check_quantity(quantity)
    backend = backend or default_backends()[0]
    generator = np.random.default_rng(seed)
    info = find_backend(backend)
    named = operators or [name for name in FAMILIES if implementations(find_operator(name), info)]
    known = _known_samples(backend, db, threads)
    pool = KeptWorkers()
    end, count = time.monotonic() + budget, 0
    try:
        while time.monotonic() < end:
            candidates = random_calls(_CANDIDATES * _BATCH, generator, named, on_device=info.device != "cpu")
            chosen = [entry for entry, _ in candidates[:_BATCH]]
            if known is not None:
                figures = next(iter(known.chips.values()))
                calls = samples_of(
                    [call for _, call in candidates], [figures.chip] * len(candidates),
                    [float("nan")] * len(candidates), {figures.chip: figures},
                )  # fmt: skip
                chosen = choose_entries([entry for entry, _ in candidates], calls, known, _BATCH)
            run_entries(chosen, backend, db=db, threads=threads, quantity=quantity, pool=pool)
            count += len(chosen)
            if not _has_peaks(backend, db, threads):
                say("the peaks of this machine are not known: `opmark calibrate` measures them, beside the budget")
                started = time.monotonic()
                calibrate(backend=backend, threads=threads, db=db, say=lambda line: None)
                end += time.monotonic() - started
            known, _ = stored_samples(backend, db=db, threads=threads)
            usable = f"the store has {count_noun(len(known), 'shape')} to learn from"
            say(f"{count} cases measured, {usable}; {max(0, end - time.monotonic()):.0f} s left")
    finally:
        pool.close()
    return count


def _known_samples(backend: str, db: PathLike | None, threads: int | None) -> Samples | None:
    """Return what a store knows of a backend; None where it has nothing to learn from."""
    try:
        return stored_samples(backend, db=db, threads=threads)[0]
    except UserError:
        return None


def run_entries(
    entries: Sequence[Entry],
    backend: str,
    *,
    db: PathLike | None = None,
    threads: int | None = None,
    quantity: str | None = None,
    pool: WorkerPool | None = None,
) -> None:
    """Measure quickly: times alone, or energy with them, and what other work disturbs is left out rather than measured
    again."""
    quantities = ("latency", ENERGY) if quantity == ENERGY else () if quantity is None else (quantity,)
    workload = Workload(VERSION, LABEL, list(entries))
    run_request(
        RunRequest(workload=workload, backend=[backend], effort="quick", processes=1, label=LABEL, session=LABEL, db=db,
                   threads=() if threads is None else (threads,), quantity=quantities, verify=False, retries=0,
                   pool=pool, say=lambda line: None)
    )  # fmt: skip


def probe_entries(predictor: Predictor, on: str, count: int = PROBES) -> dict[str, list[Entry]]:
    """Return by class the cases whose times would teach most about a chip."""
    name, peaks = find_chip_of(on, predictor)
    if peaks is None:
        raise UserError(f"no datasheet for `{on}`", "`opmark list chips` lists those that ship")
    figures = chip_figures(peaks, "float32", peaks.threads)
    found = {}
    for kind, model in predictor.models.items():
        known = model.reference
        retargeted = samples_of(_calls(known), [name] * len(known), known.seconds, {name: figures})
        found[kind] = [entry_of(retargeted, row) for row in model.candidates(retargeted, count)]
    return found


def probe_workload(on: str, *, backend: str | None = None, model: PathLike | None = None, count: int = PROBES) -> str:
    """Return the probes that would teach most about a chip as a workload file."""
    predictor = find_predictor(backend, on, model)
    _refuse_few_chips(predictor, predictor.models.keys())
    found = probe_entries(predictor, on, count)
    entries = [entry for kind in found.values() for entry in kind]
    return workload_file.yaml_text(Workload(VERSION, "probes", entries, f"Probes of {on} for `opmark predict probe`."))


def probe(
    on: str,
    *,
    tables: Sequence[PathLike] = (),
    backend: str | None = None,
    model: PathLike | None = None,
    count: int = PROBES,
    db: PathLike | None = None,
    say: Callable[[str], None] = talk,
) -> tuple[Predictor, int]:
    """Adapt a predictor to a chip by a few probes: of tables, or measured here. Return it and the number of probes."""
    predictor = find_predictor(backend, on, model)
    if tables:
        paths = [path for one in map(Path, tables) for path in (tables_in(one) if one.is_dir() else [one])]
        probes = read_tables(paths, keep_drift=True, say=say)
    else:
        _refuse_few_chips(predictor, predictor.models.keys())
        backend = backend or predictor.backend
        entries = [entry for kind in probe_entries(predictor, on, count).values() for entry in kind]
        run_entries(entries, backend, db=db)
        measured, quantity = stored_samples(backend, db=db)
        if quantity != predictor.quantity:
            say(f"probes are {quantity}, the model has learnt {predictor.quantity}")
        wanted = {(call.operator, call.m, call.n, call.k, call.batch)
                  for entry in entries if (call := _entry_call(entry)) is not None}  # fmt: skip
        rows = [row for row in range(len(measured)) if (
            measured.operator[row], measured.m[row], measured.n[row], measured.k[row], measured.batch[row]
        ) in wanted]  # fmt: skip
        probes = measured.take(np.asarray(rows, dtype=int))
    name, _ = find_chip_of(on, predictor)
    own = probes.take(np.flatnonzero(probes.device == name))
    if not len(own):
        raise UserError(
            f"no probe is of {name}; they are of {', '.join(sorted(set(probes.device))) or 'nothing'}",
            "--on names the chip that the probes were measured on",
        )
    _refuse_few_chips(predictor, {class_of(str(op)) for op in own.operator})
    predictor.add_probes(own)
    return predictor, len(own)


def _refuse_few_chips(predictor: Predictor, kinds: Set[str]) -> None:
    for kind in sorted(kinds & predictor.models.keys()):
        learnt = predictor.models[kind]
        if np.isnan(learnt.unseen):
            raise UserError(
                f"probes of class {kind} cannot adapt a model of {', '.join(learnt.own)}: how chips differ is learnt "
                "from three or more",
                "measure more shapes with `opmark run`, and learn from all of them with `opmark predict train`",
            )


def save_predictor(predictor: Predictor, path: PathLike | None = None) -> Path:
    """Write a predictor to a file, or where `opmark predict` finds it for its backend."""
    target = Path(path) if path is not None else own_model(predictor.backend, predictor.quantity)
    save(predictor, target)
    return target


def _cases(what: str, params: Mapping[str, Any] | None, size: str, phase: str) -> tuple[list[Case], list[str]]:
    if what.startswith(MODEL_PREFIX):
        if phase != "forward":
            raise InvalidParameter(f"--phase {phase}: the operators of a model are those of its forward call",
                                   "leave --phase out; `opmark capture` records a step of training")  # fmt: skip
        case = model_case(what, params, size)
        source = source_of(case.op.removeprefix(MODEL_PREFIX))
        assert source is not None
        found = find_operators(source, case.params, "torch", "cpu")
        cases = [one for entry in found.entries for one in cases_of(entry, find_operator)]
        return cases, [str(problem) for problem in found.problems]
    path = what.removeprefix(TRACE_PREFIX)
    if Path(path).is_file():
        if size or phase != "forward":
            raise InvalidParameter(f"--size and --phase are for operators: the cases of {path} have their own",
                                   "leave them out")  # fmt: skip
        selected = select_cases(Selection(workload=path, params=params))
        return list(selected.cases), list(map(str, selected.source.problems if selected.source else ()))
    if Path(path).suffix in (".yaml", ".yml", ".json"):
        raise UserError(f"there is no file {path}", "a workload or a trace is named by its path")
    sizes = [size] if size else ([] if params else ["typical"])
    return list(select_cases(Selection([what], params=params, size=sizes, phase=[phase])).cases), []


def _case_sizes(case: Case) -> CallSizes | str:
    """Return the sizes of a case, or why there are none."""
    try:
        return sizes_of_case(find_operator(case.op), case) or f"the work of `{case.op}` is not known"
    except UnknownName:
        return f"`{case.op}` is not in the catalogue"


def _entry_call(entry: Entry) -> CallSizes | None:
    (case,) = cases_of(entry, find_operator)
    return sizes_of_case(find_operator(case.op), case)


def _calls(samples: Samples) -> list[CallSizes]:
    columns = (samples.batch, samples.m, samples.n, samples.k, samples.flops, samples.nbytes, samples.image,
               samples.channels, samples.written)  # fmt: skip
    numbers = map(tuple, samples.numbers.tolist())
    rows: Iterator[Any] = zip(samples.operator, *(column.tolist() for column in columns), numbers,
                              samples.stride.tolist(), strict=True)  # fmt: skip
    return [CallSizes(*row) for row in rows]


def _not_predicted(case: Case, why: str) -> str:
    calls = f" ({case.count} calls)" if case.count > 1 else ""
    return f"{describe_case(case)}{calls}: {why}"
