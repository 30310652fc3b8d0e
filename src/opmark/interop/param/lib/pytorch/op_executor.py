"""PARAM's lib.pytorch.op_executor: one call of one operator, measured in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opmark.errors import OpmarkError
from opmark.interop.param.calls import ParamCall, make_call, operator_name
from opmark.interop.param.exporter import ConfigPosition
from opmark.interop.param.lib.operator import OperatorInterface
from opmark.interop.param.lib.pytorch.config_util import param_options
from opmark.interop.param.lib.pytorch.operator_impl import TorchOperator
from opmark.interop.param.plugin import holds_tensors, kept_tensors, plugin_entry
from opmark.interop.param.results import CaseResult, make_config, run
from opmark.interop.visible_devices import set_variables
from opmark.schema import Entry


class OpExecutor:
    def __init__(self, name: str, op: OperatorInterface, run_options: Mapping[str, Any]) -> None:
        self.name, self.op, self.run_options = name, op, run_options

    def run(
        self, input_args: list[Any], input_kwargs: dict[str, Any], run_id: str
    ) -> dict[str, dict[str, list[float]]]:
        """Measure a call and return its times in ms, as in `["forward"]["measure.time"]`; OpmarkError if it fails.

        Arguments are descriptions of the default generator, or tensors, which are written to a file for the worker.
        """
        options = param_options(self.run_options)
        place = ConfigPosition(self.name, run_id.replace(":", "|"), "")
        with kept_tensors() as keep:
            config = make_config(place, self._entry(input_args, input_kwargs, place, keep), options.phases)
            found: list[CaseResult] = []
            target = options.target()
            with set_variables(target.environ):
                run(config, options, target, found.append)
        (result,) = found
        if result.error:
            raise OpmarkError(f"{result.op_run_id}: {result.error['phase']}: {result.error['reason']}")
        return result.metric

    def _entry(self, args: list[Any], kwargs: dict[str, Any], place: ConfigPosition, keep: Any) -> Entry:
        own = None if isinstance(self.op, TorchOperator) else self.op
        name, items = (operator_name(self.name), []) if own is None else (self.name, [own])
        built = self.op.built if isinstance(self.op, TorchOperator) else None
        if holds_tensors([args, kwargs]):
            build = None if built is None else built._asdict()
            return plugin_entry(name, items, str(place), build=build, given={"tensors": keep([args, kwargs])})
        if own is not None:
            return plugin_entry(name, items, str(place), args=args, kwargs=kwargs)
        made = make_call(self.name, name, built, ParamCall(list(args), dict(kwargs)))
        return Entry(made.op, {}, args=made.args, kwargs=made.kwargs or None, build=made.build, source=str(place))
