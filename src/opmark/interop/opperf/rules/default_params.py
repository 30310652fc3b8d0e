"""benchmark.opperf.rules.default_params: the operators of opperf as attributes.

Default inputs belong to operators here, and not to names of parameters.
"""

from __future__ import annotations

from typing import NoReturn

from opmark.errors import nearest
from opmark.interop.opperf.operators import OPERATORS
from opmark.interop.opperf.utils import refuse_import

_INPUTS = "inputs belong to operators; utils.op_registry_utils.prepare_op_inputs('dot') returns those of dot"
_REFUSED = dict.fromkeys(("DEFAULT", "PARAMS_OF_TYPE_", "RAVEL_DATA"), _INPUTS)


class OperatorNames:
    """Has the operators of opperf as attributes: `MX_OP_MODULE.dot` is `dot`, which `run_performance_test` takes."""

    def __getattr__(self, name: str) -> str:
        if name in OPERATORS:
            return name
        near = nearest(name, OPERATORS)
        raise AttributeError(f"opperf has no operator {name!r}" + (f"; did you mean {near!r}?" if near else ""))

    def __dir__(self) -> list[str]:
        return sorted(OPERATORS)


MX_OP_MODULE = OperatorNames()


def __getattr__(name: str) -> NoReturn:
    refuse_import(__name__, name, _REFUSED)
