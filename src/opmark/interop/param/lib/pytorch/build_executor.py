"""PARAM's lib.pytorch.build_executor: one build of an operator with all its inputs."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import Any

from opmark.interop.param.lib.config import OperatorConfig
from opmark.interop.param.lib.pytorch.config_util import param_options
from opmark.interop.param.library import run_config
from opmark.interop.param.results import CaseResult


class BuildExecutor(ABC):
    """The way in which a build and its inputs are run; a user may derive another one."""

    def __init__(self) -> None:
        self._skip_run = False
        self._resume_op_run_id: str | None = None

    @abstractmethod
    def run(self, op_config: OperatorConfig, build_input_config: dict[str, Any], config_build_id: str) -> Any:
        """Run all inputs of one build."""

    def set_resume_op_run_id(self, resume_op_run_id: str | None) -> None:
        """Skip all inputs before this id."""
        self._resume_op_run_id, self._skip_run = resume_op_run_id, bool(resume_op_run_id)

    def should_skip(self, op_run_id: str) -> bool:
        if self._skip_run and op_run_id.replace(":", "|") == str(self._resume_op_run_id).replace(":", "|"):
            self._skip_run = False
        return self._skip_run


class MaterializedBuildExecutor(BuildExecutor):
    """Runs one build with inputs that need no iterator; results are returned, and written to `out_stream`."""

    def __init__(self, run_options: dict[str, Any]) -> None:
        super().__init__()
        self.run_options = run_options
        self.out_stream = run_options.get("out_stream")

    def run(
        self, op_config: OperatorConfig, build_input_config: dict[str, Any], config_build_id: str
    ) -> list[CaseResult]:
        ids = config_build_id.replace(":", "|")
        inputs = []
        for number, spec in enumerate(build_input_config["input"]):
            if not self.should_skip(f"{op_config.name}|{ids}|{spec.get('id', number)}"):
                inputs.append({"id": str(number), **spec})
        if not inputs:
            return []
        config = [{"build": build_input_config.get("build"), "input": inputs}]
        batch = {"op_name": op_config.name, "config_build_id": ids, "op_info": {**op_config.info, "config": config}}
        options = param_options(self.run_options, resume_id=None, stop_id=None)
        return run_config(batch, options, on_result=lambda result: output_stats(self.out_stream, result))


class OpBuildExecutor(MaterializedBuildExecutor):
    """Runs one build; its inputs come from the iterator of the operator."""

    def run(
        self, op_config: OperatorConfig, build_input_config: dict[str, Any], config_build_id: str
    ) -> list[CaseResult]:
        points = op_config.input_iterator(build_input_config, "input", self.run_options["device"])
        inputs = [{"id": str(point_id), **spec} for point_id, spec in points]
        return super().run(op_config, {**build_input_config, "input": inputs}, config_build_id)


def output_stats(out_stream: Any, result: CaseResult) -> None:
    """Write the line of a result, if there is a stream for it."""
    if out_stream is not None:
        out_stream.write(json.dumps(result.line) + "\n")
        out_stream.flush()
