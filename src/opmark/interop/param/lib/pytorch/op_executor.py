"""PARAM's lib.pytorch.op_executor: one call of one operator, measured in a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opmark.errors import OpmarkError
from opmark.interop.param.calls import TABLE_NAMES, ParamCall, make_call, operator_and_params, operator_name
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
        in_torch = isinstance(self.op, TorchOperator)
        name, items = (operator_name(self.name), []) if in_torch else (self.name, [self.op])
        built: Any = getattr(self.op, "built", None)
        build = {"tensors": keep([built["args"], built["kwargs"]])} if holds_tensors(built) else _notation(built)
        if holds_tensors([args, kwargs]):
            return plugin_entry(name, items, str(place), build=build, given={"tensors": keep([args, kwargs])})
        call = ParamCall(_notation(list(args)), _notation(kwargs))
        if in_torch and self.name in TABLE_NAMES:
            op, params = operator_and_params(ParamCall(**build) if build else None, call)
            return Entry(op, params, source=str(place))
        if not in_torch or holds_tensors(built):
            return plugin_entry(name, items, str(place), build=build, args=call.args, kwargs=call.kwargs)
        made = make_call(self.name, name, ParamCall(**build) if build else None, call)
        return Entry(made.op, {}, args=made.args, kwargs=made.kwargs or None, build=made.build, source=str(place))


def _notation(value: Any) -> Any:
    """Return values of Python in opmark's notation, which has tuples as mappings."""
    if isinstance(value, tuple):
        return {"tuple": [_notation(item) for item in value]}
    if isinstance(value, dict):
        return {name: _notation(item) for name, item in value.items()}
    return [_notation(item) for item in value] if isinstance(value, list) else value
