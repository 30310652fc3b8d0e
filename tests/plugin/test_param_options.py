"""The options that give a case its parameters are those that a command line takes."""

from __future__ import annotations

import shlex

from opmark.plugin.param import param_options
from opmark.plugin.registry import catalogue, parameters_of
from opmark.runner.selection import parse_params, select_cases
from opmark.schema import Case
from opmark.schema.options import Selection


def test_they_name_the_same_case_of_every_operator() -> None:
    checked = 0
    for op in catalogue():
        for case in select_cases(Selection(ops=[op], size="small")).cases[:2]:
            flags, texts = (param_options(case, parameters_of(op))[start::2] for start in (0, 1))
            assert set(flags) <= {"-p"}
            found = select_cases(Selection(ops=[op], params=parse_params([op], texts), phase=case.phase)).cases
            assert [one.id for one in found] == [case.id], (op, texts)
            checked += 1
    assert checked > 300


def test_arguments_of_a_callable_are_given_as_such() -> None:
    case = Case.of("call:torch.nn.ReLU", {"args": ["8x64 float32"], "kwargs": {}, "build": None}, "forward")
    assert shlex.join(param_options(case, {})) == "--args '[\"8x64 float32\"]'"
