"""opmark ab"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opmark.cli import case_options as options
from opmark.cli.options import Db
from opmark.cli.share import share

if TYPE_CHECKING:
    from opmark.schema.comparison import Compared

Env = Annotated[
    list[str] | None,
    typer.Option(help="VAR=VALUE for B; twice: for A, then for B. VAR= sets it empty, VAR alone is without it."),
]
Rev = Annotated[
    list[str] | None, typer.Option(help="A git revision for A, the files as they are now for B; twice: A, then B.")
]
Repo = Annotated[Path | None, typer.Option(help="The git repository. [default: that of the current folder]")]
Make = Annotated[str, typer.Option(help="A command to run in a revision's files first, as in 'make -C kernels'.")]
Budget = Annotated[float, typer.Option(help="Seconds after which no further pair of processes is started.")]
Margin = Annotated[str, typer.Option(help="Differences up to this are called the same: 0.01 or 1%.")]
Most = Annotated[int | None, typer.Option(help="Processes a side at most. [default: 5, 10, 20 until it is decided]")]

_MEASURING = ("timeout", "compile_timeout", "label", "db", "budget")


def ab(
    ops: options.Ops = None,
    workload: options.Workload = None,
    strict: options.Strict = False,
    suite: options.Suite = None,
    op: options.Op = None,
    category: options.Category = None,
    tag: options.Tag = None,
    params: options.Params = None,
    args: options.Args = None,
    kwargs: options.Kwargs = None,
    build: options.Build = None,
    size: options.Size = None,
    phase: options.Phase = None,
    backend: options.Backend = None,
    python: options.Python = None,
    threads: options.Threads = None,
    env: Env = None,
    rev: Rev = None,
    repo: Repo = None,
    make: Make = "",
    same: Annotated[bool, typer.Option("--same", help="A thing with itself: how much is noise?")] = False,
    ranks: options.Ranks = None,
    group_size: options.GroupSize = None,
    effort: options.Effort = "quick",
    quantity: options.Quantity = None,
    cache: options.Cache = None,
    processes: Most = None,
    budget: Budget = 900.0,
    margin: Margin = "1%",
    rel_ci: options.RelCi = None,
    min_time: options.MinTime = None,
    max_time: options.MaxTime = None,
    warmup: options.Warmup = None,
    samples: options.Samples = None,
    mode: options.Mode = "",
    timer: options.Timer = "",
    wrt: options.Wrt = None,
    seed: options.Seed = 0,
    verify: options.Verify = True,
    timeout: options.Timeout = 60.0,
    compile_timeout: options.CompileTimeout = 300.0,
    label: options.Label = "",
    db: Db = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure two sides in turns that differ in one thing; is B faster or slower?

    --backend, --python or --threads with two values, --env, --rev or --same says what A and B are.
    """
    given = dict(locals())
    asked = options.asked(given) | {name: given[name] for name in _MEASURING}
    asked |= {"env": env or [], "rev": rev or [], "repo": repo, "make": make, "same": same}
    _measure({**asked, "margin": share(margin, "margin")}, as_json=as_json)


def _measure(asked: dict[str, Any], *, as_json: bool) -> None:
    from opmark import api
    from opmark.cli.turns import Turns

    turns = Turns()
    shown: list[Compared] = []
    try:
        found = api.ab(**asked, on_turn=turns.turn, on_interrupted=shown.append, say=turns.say)
    except KeyboardInterrupt:
        turns.end()
        for compared in shown:
            show(compared, as_json=as_json)
        turns.say(
            f"interrupted: what was measured is stored as runs {' and '.join(shown[0].runs)}"
            if shown
            else "interrupted before both sides had been measured once"
        )
        raise typer.Exit(130) from None
    finally:
        turns.end()
    show(found, as_json=as_json)
    turns.say(f"stored as runs {' and '.join(found.runs)}")
    if failed(found):
        raise typer.Exit(1)


def show(compared: Compared, *, as_json: bool) -> None:
    from opmark.cli.compare import write_comparison

    write_comparison(compared, "json" if as_json else "table", None, [])


def failed(compared: Compared) -> bool:
    """Whether a case failed on a side, or none could be measured."""
    from opmark.schema.record import FAILED

    statuses = [status for pair in compared.pairs for status in pair.statuses]
    return "ok" not in statuses or bool(FAILED.intersection(statuses))
