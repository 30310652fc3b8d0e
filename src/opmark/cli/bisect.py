"""opmark bisect"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opmark.cli import case_options as options
from opmark.cli.ab import Make, Margin, Most, Repo, show
from opmark.cli.options import Db
from opmark.cli.output import print_json_lines
from opmark.cli.share import share

_MEASURING = ("timeout", "compile_timeout", "label", "db", "budget")


def bisect(
    ops: options.Ops = None,
    good: Annotated[str, typer.Option(help="A git revision that was fast.")] = "",
    bad: Annotated[str, typer.Option(help="A later one that is slow.")] = "HEAD",
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
    repo: Repo = None,
    make: Make = "",
    effort: options.Effort = "quick",
    quantity: options.Quantity = None,
    cache: options.Cache = None,
    processes: Most = None,
    budget: Annotated[float, typer.Option(help="Seconds that each commit may take to be decided.")] = 900.0,
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
    """Which commit made it slower? `git bisect` with a measured verdict, in a worktree of its own."""
    given = dict(locals())
    if not good:
        from opmark.errors import UserError

        raise UserError("--good names a revision that was fast", "as in --good v1.0 --bad main")
    asked = options.asked(given) | {name: given[name] for name in _MEASURING}
    _search({**asked, "good": good, "bad": bad, "repo": repo, "make": make, "margin": share(margin, "margin")},
            as_json=as_json)  # fmt: skip


def _search(asked: dict[str, Any], *, as_json: bool) -> None:
    from opmark import api
    from opmark.cli.turns import Turns
    from opmark.report.bisected import bisected_lines, step_line

    turns = Turns()
    try:
        found = api.bisect(
            **asked, on_turn=turns.turn, on_step=lambda step: turns.say(step_line(step)), say=turns.say
        )  # fmt: skip
    except KeyboardInterrupt:
        turns.say("interrupted: what was measured is stored; the repository is as it was")
        raise typer.Exit(130) from None
    finally:
        turns.end()
    if as_json:
        print_json_lines([found])
    else:
        if not found.first:
            show(found.compared, as_json=False)
        for line in bisected_lines(found):
            print(line)
        if found.log:
            print(found.log)
    if not found.first:
        raise typer.Exit(1)
