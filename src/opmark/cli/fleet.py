"""opmark fleet"""

from __future__ import annotations

from typing import Annotated

import typer

from opmark.api.requests import talk
from opmark.cli.options import Db, Json, duration, share
from opmark.cli.output import console, print_json_lines
from opmark.errors import UserError
from opmark.schema.options import ExecutorOptions, options_of

fleet = typer.Typer()

Address = Annotated[str | None, typer.Option(help=options_of(ExecutorOptions)["address"].option.help)]
_AUTO = "auto"


@fleet.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    address: Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per node.")] = False,
) -> None:
    if context.invoked_subcommand:
        if as_json:
            raise UserError(f"`opmark fleet {context.invoked_subcommand}` lists no nodes", "give --json behind it")
        context.obj = address
        return
    from opmark.api.fleet import list_nodes
    from opmark.report.console.fleet import print_nodes

    nodes = list_nodes(address or _AUTO)
    if as_json:
        print_json_lines(nodes)
    else:
        print_nodes(nodes, console())


@fleet.command("drain")
def drain(
    context: typer.Context,
    node: Annotated[str, typer.Argument(help="Name of the node, as `opmark fleet` lists it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Let it take work again.")] = False,
    address: Address = None,
) -> None:
    """Let a node take no more work: what it measures now is its last task."""
    from opmark.api.fleet import drain_node

    drain_node(node, address or context.obj or _AUTO, undo=undo)
    talk(f"node {node} takes work again" if undo else f"node {node} takes no more work; --undo ends that")


@fleet.command("agree")
def agree_(
    context: typer.Context,
    backend: Annotated[str | None, typer.Option(help="[default: torch-cpu, or numpy-cpu]")] = None,
    suite: Annotated[str | None, typer.Option(help="A suite to measure. [default: six cases, as doctor --aa]")] = None,
    processes: Annotated[int, typer.Option(help="Fresh processes per node and case.")] = 5,
    margin: Annotated[str, typer.Option(help="Differences up to this are none: 0.03 or 3%.")] = "3%",
    nodes: Annotated[str, typer.Option(help=options_of(ExecutorOptions)["nodes"].option.help)] = "",
    chip: Annotated[str, typer.Option(help=options_of(ExecutorOptions)["chip"].option.help)] = "",
    unfit: Annotated[bool, typer.Option("--unfit", help=options_of(ExecutorOptions)["unfit"].option.help)] = False,
    wait: Annotated[
        float,
        typer.Option(
            parser=duration("--wait", zero=True),
            metavar="<str>",
            help="Seconds to wait for a node that takes no work.",
        ),
    ] = 600.0,
    address: Address = None,
    db: Db = None,
    as_json: Json = False,
) -> None:
    """Are all nodes of a kind equally fast? Measures the same cases on all of them. Exit code 1: one differs."""
    from opmark.api.fleet import agree
    from opmark.api.progress import StepProgress
    from opmark.report.console.fleet import agreement_text
    from opmark.schema.fleet import DIFFERS

    options = ExecutorOptions(
        executor="ray", address=address or context.obj or _AUTO, nodes=nodes, chip=chip, unfit=unfit, wait=wait
    )
    with StepProgress("fleet agree") as progress:
        found = agree(
            backend, suite=suite, processes=processes, margin=share(margin, "margin"), options=options, db=db,
            say=progress.say, on_step=progress.step,
        )  # fmt: skip
    if as_json:
        print_json_lines([found])
    else:
        console().print(agreement_text(found))
    if any(one.verdict == DIFFERS for one in found.nodes):
        raise typer.Exit(1)
