"""PARAM's lib.pytorch.benchmark: runs a whole config."""

from __future__ import annotations

from typing import Any

from opmark.interop.param.lib.config import BenchmarkConfig, OperatorConfig
from opmark.interop.param.lib.pytorch.build_executor import BuildExecutor, OpBuildExecutor, output_stats
from opmark.interop.param.lib.pytorch.config_util import ExecutionPass, get_benchmark_options, param_options
from opmark.interop.param.lib.pytorch.op_executor import OpExecutor
from opmark.interop.param.library import run_config

__all__ = ["Benchmark", "ExecutionPass", "OpExecutor", "get_benchmark_options", "make_default_benchmark"]


class Benchmark:
    """A config and the executor of its builds."""

    def __init__(self, bench_config: BenchmarkConfig, build_executor: type[BuildExecutor]) -> None:
        self.bench_config, self.run_options = bench_config, bench_config.run_options
        self.build_executor = build_executor(self.run_options)  # type: ignore[call-arg]
        self.build_executor.set_resume_op_run_id(self.run_options.get("resume_op_run_id"))

    def run(self) -> list[Any]:
        """Run all operators, write their lines to the run option `out_stream`, and return the results.

        PARAM returns nothing. With the default executor all cases share one worker, which starts once.
        """
        if type(self.build_executor) is not OpBuildExecutor:
            return [result for op_config in self.bench_config.op_configs for result in self.run_op(op_config)]
        stream = self.run_options.get("out_stream")
        options = param_options(self.run_options)
        return list(
            run_config(self.bench_config.bench_config, options, on_result=lambda found: output_stats(stream, found))
        )

    def run_op(self, op_config: OperatorConfig) -> list[Any]:
        """Give each build of an operator to the executor; ids of builds do not accumulate, as they do in PARAM."""
        results: list[Any] = []
        for config_id, config in enumerate(op_config.config):
            builds: Any = [("0", config.get("build"))]
            if config.get("build"):
                builds = op_config.build_iterator(config, "build", self.run_options["device"])
            for build_id, build in builds:
                both = {"build": build, "input": config["input"]}
                results += self.build_executor.run(op_config, both, f"{config_id}|{build_id}") or []
        return results


def make_default_benchmark(bench_config: BenchmarkConfig) -> Benchmark:
    return Benchmark(bench_config, OpBuildExecutor)
