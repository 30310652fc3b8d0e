"""opmark opbench: the command line of OpBench's op_performance_collector.py, measured by opmark."""

from __future__ import annotations

from collections.abc import Sequence

from opmark.errors import UserError
from opmark.interop.opbench.options import OpbenchOptions, make_parser, read_options
from opmark.interop.visible_devices import set_variables
from opmark.units import count_noun


def main(arguments: Sequence[str]) -> int:
    """Run the command; the exit code is 0 if everything that was asked for is there, 1 if a part failed or is missing,
    130 after Ctrl-C."""
    if make_parser().parse_args(list(arguments)).list:
        from opmark.interop.opbench.models import describe_names

        describe_names(print)
        return 0
    options = read_options(list(arguments))
    with set_variables(options.board):
        return _run(options)


def _run(options: OpbenchOptions) -> int:
    from opmark.api.requests import talk
    from opmark.interop.opbench.code import check_target
    from opmark.interop.opbench.models import choose_model
    from opmark.interop.opbench.options import check_tuner
    from opmark.interop.opbench.session import OpbenchSession
    from opmark.interop.opbench.targets import choose_target
    from opmark.plugin.registry import backend as find_backend
    from opmark.runner.probe import probe
    from opmark.tuning.tuners import TUNERS

    # Everything that can be wrong with the request is looked at before the first measurement.
    target = choose_target(options.target, board=bool(options.host))
    check_tuner(options.tuner, {**TUNERS, **find_backend(target.backend).tuners})
    if not target.timed and (options.iftune or options.ifcompare):
        raise UserError(
            f"--iftune and --ifcompare measure, and {options.target} is not here: {target.why_not_timed}",
            "--host and --port name a board; without them, operators are compiled for the target",
        )
    if options.host:
        (board,) = probe([find_backend(target.backend)])
        if board.reason:
            raise UserError(f"--host: {board.reason}")
    elif not target.timed:
        check_target(options.target)
    models = [
        choose_model(
            options.modelsource, name, options.batchsize, size=options.size, folder=options.output / "models",
            download=options.download, inputname=options.inputname,
        )
        for name in options.modelnames
    ]  # fmt: skip
    for model in models:
        if model.note:
            talk(f"{model.name}: {model.note}")
    if options.executor != "default":
        talk(f"--executor {options.executor}: TVM has one executor for compiled models, its virtual machine")
    session = OpbenchSession(options, target, models)
    try:
        return session.run()
    except KeyboardInterrupt:
        talk(f"interrupted; {count_noun(len(session.written), 'file')} written, and what was measured is in the store")
        return 130
