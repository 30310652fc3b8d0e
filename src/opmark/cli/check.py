"""opmark check"""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opmark.cli import case_options as options
from opmark.cli.options import Db
from opmark.cli.output import console, split, write_out
from opmark.cli.share import share
from opmark.errors import UserError

if TYPE_CHECKING:
    from opmark.schema.checked import Checked

_AS_GIVEN = ("baseline", "against_rev", "against_python", "against_backend", "make", "budget", "unlike", "db",
             "timeout", "compile_timeout")  # fmt: skip
_STDOUT = "-"
_OF_MEASURING = (
    "ops", "workload", "strict", "suite", "op", "category", "tag", "params", "args", "kwargs", "build", "size", "phase",
    "backend", "python", "threads", "effort", "quantity", "cache", "processes", "rel_ci", "min_time", "max_time",
    "warmup", "samples", "wrt", "seed", "verify", "label",
)  # fmt: skip


def check(
    ops: options.Ops = None,
    baseline: Annotated[str, typer.Option(help="The run to hold it against: its label, its id, or STORE::RUN.")] = "",
    run: Annotated[str | None, typer.Option(help="A stored run to check, instead of measuring now.")] = None,
    margin: Annotated[str, typer.Option(help="Differences up to this are called the same: 0.03 or 3%.")] = "3%",
    drift: Annotated[
        str, typer.Option(help="How far apart two sessions of the same code may be; 0 where clocks are locked.")
    ] = "2%",
    fail_on: Annotated[
        list[str] | None,
        typer.Option(help="slower, failed, unconfirmed, missing, undecided, none. [default: slower,failed]"),
    ] = None,
    against_rev: Annotated[
        str, typer.Option(help="Measure the baseline again as this git revision. [default: the one it is of]")
    ] = "",
    against_python: Annotated[
        str, typer.Option(help="Measure the baseline again in this interpreter. [default: the one it was made in]")
    ] = "",
    against_backend: Annotated[str, typer.Option(help="Measure the baseline again on this backend.")] = "",
    make: Annotated[
        str, typer.Option(help="A command to run in the files of a revision first, as in 'make -C kernels'.")
    ] = "",
    budget: Annotated[float, typer.Option(help="Seconds that measuring again may take.")] = 900.0,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a summary for a pull request to this file; - is standard output.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    unlike: Annotated[bool, typer.Option("--unlike", help="Also where the machines are not alike.")] = False,
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
    effort: options.Effort = "standard",
    quantity: options.Quantity = None,
    cache: options.Cache = None,
    processes: options.Processes = None,
    rel_ci: options.RelCi = None,
    min_time: options.MinTime = None,
    max_time: options.MaxTime = None,
    warmup: options.Warmup = None,
    samples: options.Samples = None,
    wrt: options.Wrt = None,
    seed: options.Seed = 0,
    verify: options.Verify = True,
    timeout: options.Timeout = 60.0,
    compile_timeout: options.CompileTimeout = 300.0,
    label: options.Label = "",
    db: Db = None,
) -> None:
    """Has anything become slower than the baseline? Exit code 1 only where it is slower when measured again.

    Checks a stored run (--run), or measures what is asked for as `opmark run` would.
    """
    given = dict(locals())
    if not baseline:
        raise UserError("no baseline is named", "as in --baseline main, the label of an earlier run")
    asked = {**{name: given[name] for name in _AS_GIVEN}, **_shares(margin, drift), "current": run}
    asked["fail_on"] = _words(fail_on)
    live = options.asked(given)
    if run is None:
        asked |= live | {"label": label}
    else:
        _refuse_beside_run({name: given[name] for name in _OF_MEASURING if name in given})
    for path in (markdown, junit):
        _try_to_write(path)
    _report(_checked(asked), markdown, junit, as_json=as_json)


def _refuse_beside_run(given: dict[str, Any]) -> None:
    """A stored run says itself what was measured, and how: nobody is to believe that these had a say."""
    from inspect import signature

    usual = signature(check).parameters
    named = next((name for name, value in given.items() if value != usual[name].default), None)
    if named is not None:
        option = "operators" if named == "ops" else f"--{named.replace('_', '-')}"
        raise UserError(f"--run is of a run that is stored; {option} is for what is measured now", "leave one out")


def _try_to_write(path: Path | None) -> None:
    """Before anything is measured: it would be a pity afterwards."""
    if path is None or str(path) == _STDOUT:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):  # not the file itself: an interrupted check would leave it empty
            pass
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from None


def _shares(margin: str, drift: str) -> dict[str, float]:
    return {"margin": share(margin, "margin"), "drift": share(drift, "drift")}


def _words(fail_on: list[str] | None) -> list[str]:
    from opmark.api.checking import DEFAULT_FAIL_ON, check_words

    words = list(DEFAULT_FAIL_ON) if fail_on is None else [word for word in split(fail_on) if word != "none"]
    check_words(words)
    return words


def _checked(asked: dict[str, Any]) -> Checked:
    from opmark import api
    from opmark.cli.progress import Progress
    from opmark.cli.turns import Turns
    from opmark.result import Result

    def measured(ops: Any, **how: Any) -> Result:
        with Progress(as_json=False) as progress:
            return api.run(ops, **{**how, "say": progress.say}, on_start=progress.start, on_record=progress.advance)

    turns = Turns()
    try:
        return api.check(**asked, measure=measured, on_turn=turns.turn, say=turns.say)
    except KeyboardInterrupt:
        turns.say("interrupted: what was measured until then is stored, and nothing is decided")
        raise typer.Exit(130) from None
    finally:
        turns.end()


def _report(checked: Checked, markdown: Path | None, junit: Path | None, *, as_json: bool) -> None:
    import msgspec

    from opmark.report.checked import checked_view, print_checked
    from opmark.report.comparison_markdown import summary_markdown
    from opmark.report.junit import junit_xml

    to_stdout = markdown is not None and str(markdown) == _STDOUT
    if junit is not None:
        write_out(junit_xml(checked), junit)
    if markdown is not None:
        write_out(summary_markdown(checked), None if to_stdout else markdown)
    if as_json:
        write_out(msgspec.json.encode(checked_view(checked)).decode() + "\n", None)
    elif not to_stdout:
        print_checked(checked, console())
    if checked.exit_code:
        raise typer.Exit(checked.exit_code)
