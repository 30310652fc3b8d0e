"""opmark predict"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from typer.core import TyperGroup

from opmark.api.requests import talk
from opmark.cli.options import Db, duration
from opmark.cli.output import console, print_json_lines, write_out
from opmark.errors import InvalidParameter
from opmark.files import check_writable
from opmark.report.console.table import plain_table
from opmark.units import count_noun, joules, seconds

if TYPE_CHECKING:
    from opmark.api.predict import PredictedCase, PredictedCases

_CASE = "case"
_On = Annotated[
    str,
    typer.Option(
        "--on", help="The chip: a name as in `opmark list chips`, or a part of one; `here`, with your own model."
    ),
]
_Model = Annotated[
    Path | None, typer.Option(help="A model file. [default: your own for the backend, else the shipped]")
]
_Backend = Annotated[str | None, typer.Option("-b", "--backend", help="Backend whose model is used or trained.")]


class PredictGroup(TyperGroup):
    """`opmark predict matmul` is `opmark predict case matmul`."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if found := super().get_command(ctx, cmd_name):
            return found
        made = copy(self.commands[_CASE])
        made.params = [copy(param) for param in made.params]
        for param in made.params:
            if param.name == "what":
                param.required, param.default = False, cmd_name
        return made


predict = typer.Typer(cls=PredictGroup, no_args_is_help=True)


@predict.command(_CASE)
def case(
    what: Annotated[str, typer.Argument(help="An operator, a model (model:resnet-18), or a workload or trace file.")],
    on: _On,
    param: Annotated[list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE.")] = None,
    size: Annotated[str, typer.Option(help="small, typical, large.")] = "",
    phase: Annotated[str, typer.Option(help="forward, backward, both.")] = "forward",
    backend: _Backend = None,
    model: _Model = None,
    quantity: Annotated[
        str | None, typer.Option(help="`energy` for joules, where a model has learnt them. [default: the time]")
    ] = None,
    far: Annotated[bool, typer.Option("--far", help="Answer even far outside of what was learnt.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per case.")] = False,
) -> None:
    """Predict time and 90 % interval on a chip, without running; `opmark predict OP` is short for it."""
    from opmark.api.predict import predict as predict_case
    from opmark.api.requests import parse_params

    found = predict_case(
        what,
        parse_params([] if Path(what).is_file() else [what], param) if param else None,
        on=on,
        size=size,
        phase=phase,
        backend=backend,
        model=model,
        quantity=quantity,
        far=far,
    )
    if as_json:
        print_json_lines(_view(found, one) for one in found.cases)
        if found.whole:
            about = {"op": found.what, "chip": found.chip, "source": "predicted", "backend": found.predictor.backend}
            print_json_lines([{**about, "whole": msgspec.to_builtins(found.whole)}])
        for line in (*found.notes, *_not_predicted(found)):
            talk(line)
        return
    console().print(_table(found))
    for line in _basis(found):
        talk(line)


@predict.command()
def train(
    tables: Annotated[
        list[Path] | None, typer.Option("--from", help="Tables (CSV) or folders of them. [default: the store]")
    ] = None,
    source: Annotated[
        str, typer.Option(help="Where the tables are from, as the model will say. [default: names]")
    ] = "",
    backend: _Backend = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="First measure the shapes that would teach most, for 10 minutes.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(parser=duration("--budget"), metavar="<str>", help="First measure for so long, as in 10m or 90s."),
    ] = None,
    op: Annotated[
        list[str] | None, typer.Option("--op", help="Operators to measure. [default: two dozen of a dozen classes]")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads to measure with. [default: all cores]")] = None,
    quantity: Annotated[
        str | None, typer.Option(help="What to learn: device_time, latency, energy. [default: what most records have]")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed and data give the same model.")] = 0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Model file to write.")] = None,
    db: Db = None,
) -> None:
    """Learn from the store, or from tables of measured operators."""
    from opmark.api.predict import measure_for_training, save_predictor, train_from_files, train_from_store

    check_writable(output)
    if tables:
        if measure or budget or op or quantity or threads:
            raise InvalidParameter(
                "--from learns from tables: --measure, --budget, --op, --threads and --quantity are for the store",
                "leave out --from, or the others",
            )
        predictor = train_from_files(tables, backend=backend, source=source, seed=seed)
    else:
        if measure or budget:
            measure_for_training(
                backend, budget or 600.0, operators=op or (), threads=threads, quantity=quantity, db=db, seed=seed
            )
        elif op:
            raise InvalidParameter("--op says what to measure", "--budget 10m measures for 10 minutes")
        predictor = train_from_store(backend, db=db, quantity=quantity, threads=threads, seed=seed)
    path = save_predictor(predictor, output)
    talk(f"model of {predictor.backend}, data {predictor.data_hash}, seed {seed}, in {path}")


@predict.command()
def probe(
    on: _On,
    tables: Annotated[
        list[Path] | None, typer.Option("--from", help="Tables (CSV) of probes. [default: measure]")
    ] = None,
    backend: _Backend = None,
    model: _Model = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=100, help="Probes per class of operators.")] = 10,
    show: Annotated[
        bool, typer.Option("--list", help="List the probes that would teach most, measure nothing.")
    ] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Model file to write.")] = None,
    db: Db = None,
) -> None:
    """Adapt a model to a chip with a few measured operators."""
    from opmark.api.predict import probe as adapt
    from opmark.api.predict import probe_workload, save_predictor

    check_writable(output)
    if show:
        write_out(probe_workload(on, backend=backend, model=model, count=count), output)
        return
    predictor, found = adapt(on, tables=tables or (), backend=backend, model=model, count=count, db=db)
    path = save_predictor(predictor, output)
    talk(f"adapted by {count_noun(found, 'probe')}, in {path}")


def _amount(found: PredictedCases) -> Callable[[float], str]:
    """Return how an amount of what the model has learnt is written."""
    return joules if found.predictor.quantity == "energy" else seconds


def _table(found: PredictedCases) -> Any:
    from opmark.api.extract import describe_case

    amount = _amount(found)
    table = plain_table("case", "calls", "predicted", "90 % interval", "roofline alone", "nearest, scaled")
    for one in sorted(found.cases, key=lambda one: -one.case.count * one.prediction.seconds):
        guess = one.prediction
        table.add_row(
            describe_case(one.case), str(one.case.count), amount(guess.seconds),
            f"{amount(guess.low)} – {amount(guess.high)}", amount(guess.roofline), amount(guess.neighbour),
        )  # fmt: skip
    return table


def _basis(found: PredictedCases) -> list[str]:
    """Return what the predictions are based on, in lines."""
    predictor = found.predictor
    chips = ", ".join(predictor.chips)
    lines = [f"on {found.chip}: {predictor.quantity} of {predictor.backend}, predicted and not measured"]
    amount = _amount(found)
    if len(found.cases) > 1 or found.cases[0].case.count > 1:
        low, high = found.interval
        without = f", without {len(found.skipped)} that could not be predicted," if found.skipped else ""
        text = f"together{without} {amount(found.alone)} ({amount(low)} – {amount(high)})"
        if predictor.quantity != "energy":  # a hidden launch saves time, not joules
            text += f" if every call waits for the one before; {amount(found.hidden)} if all launches are hidden"
        lines.append(text)
    if whole := found.whole:
        fused = f", fused from {whole.made}" if whole.calls < whole.made else ""
        views = f" and {count_noun(whole.views, 'view')}" if whole.views else ""
        hidden = "hidden behind work where there is enough" if whole.hidden else "each waiting for the one before"
        lines.append(
            f"as a whole {amount(whole.seconds)} ({amount(whole.low)} – {amount(whole.high)}): "
            f"{count_noun(whole.calls, 'call')}{fused}{views} in their order, launches of {amount(whole.launch)} "
            f"{hidden}"
        )
        lines += [f"not in the whole: {whole.unknown}"] if whole.unknown else []
    bases = sorted({one.prediction.basis for one in found.cases})
    words = {"measured": "records of this chip", "probes": "probes of this chip", "datasheet": "the chip's datasheet"}
    shapes = sum(sum(model.counts.values()) for model in predictor.models.values())
    lines.append(f"based on {' and '.join(words[basis] for basis in bases)}; learnt from {shapes:,} shapes on {chips}")
    worst = max(one.prediction.distance for one in found.cases)
    lines.append(
        f"outside of what was learnt by a factor of {2**worst:.1f}" if 2**worst >= 1.05 else "inside of what was learnt"
    )
    lines += found.notes
    return [*lines, *_not_predicted(found)]


def _not_predicted(found: PredictedCases) -> list[str]:
    return [f"not predicted: {why}" for why in found.skipped]


def _view(found: PredictedCases, one: PredictedCase) -> dict[str, Any]:
    guess = msgspec.to_builtins(one.prediction)
    if found.predictor.quantity == "energy":
        guess = {"joules" if name == "seconds" else name: value for name, value in guess.items()}
    return {
        "op": one.case.op, "params": one.case.params, "phase": one.case.phase, "count": one.case.count,
        "chip": found.chip, "source": "predicted", "quantity": found.predictor.quantity,
        "backend": found.predictor.backend, **guess, "data_hash": found.predictor.data_hash,
    }  # fmt: skip
