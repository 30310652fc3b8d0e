"""The fragments of the READMEs of five other systems, as they are printed there.

Programs differ in the package that they import from, and in nothing else.
"""

# ruff: noqa: E501 - fragments are as wide as they are printed

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from micro_perf_runs import quickly
from param_runs import Command

from opmark.errors import InvalidFile
from opmark.interop.bytemicroperf.command import main as micro_perf
from opmark.interop.param.arguments import Draw, node_of
from opmark.interop.param.command import main
from opmark.interop.param.options import parser
from opmark.runner.workload_source import read_source

PARAM_PACKAGE, DL_PACKAGE = "param_bench.train.compute.python", "mxnet_benchmarks"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPMARK_DB", str(tmp_path / "runs.db"))


def run_program(text: str, **names: Any) -> dict[str, Any]:
    """Run a program, with opmark's package in place of the other system's."""
    ours = text.replace(PARAM_PACKAGE, "opmark.interop.param").replace(DL_PACKAGE, "opmark.interop.opperf")
    assert (ours != text) == ("import" in text)
    exec(compile(ours, "README", "exec"), names)
    return names


# PARAM.

PARAM_COMMANDS = """
python -m param_bench.train.compute.python.pytorch.run_benchmark -c examples/pytorch/configs/simple_add.json
python -m python.pytorch.run_benchmark -c python/examples/pytorch/configs/simple_add.json
"""
SIMPLE_ADD = {
    "torch.add": {
        "input_data_generator": "PyTorch:DefaultDataGenerator",
        "config": [{"input": [{"args": [{"dtype": "float", "shape": [256, 256], "type": "tensor"}] * 2}]}],
    }
}


@pytest.mark.parametrize("line", PARAM_COMMANDS.split("\n")[1:-1])
def test_param_s_program_as_a_module(line: str, tmp_path: Path) -> None:
    words = line.split()
    config = tmp_path / words[-1]
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps(SIMPLE_ADD))
    module = re.sub(r"^(param_bench\.train\.compute\.)?python", "opmark.interop.param", words[2])
    ran = subprocess.run(
        [sys.executable, "-m", module, *words[3:], "-d", "null"], capture_output=True, text=True, env=os.environ,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "torch.add|0|0|0 forward" in ran.stderr
    (file,) = tmp_path.glob("benchmark_result_*.json")
    assert json.loads(file.read_text().splitlines()[1])["op_name"] == "torch.add"


def test_param_s_import() -> None:
    found = run_program("from param_bench.train.compute.python.lib.config import BenchmarkConfig\n")
    assert found["BenchmarkConfig"].__name__ == "BenchmarkConfig"


USAGE = """\
=> python -m param_bench.train.compute.python.pytorch.run_benchmark -h
usage: run_benchmark.py [-h] [-c CONFIG] [-w WARMUP] [-i ITERATION] [-b] [-d DEVICE] [-o OUTPUT_PREFIX] [-r RESUME_ID] [-s STOP_ID] [-a] [--cuda-l2-cache [{on,off}]] [--ncu] [--ncu-bin NCU_BIN] [--ncu-args-file NCU_ARGS_FILE] [--ncu-warmup NCU_WARMUP]
                        [--ncu-iteration NCU_ITERATION] [--nsys] [--nsys-bin NSYS_BIN] [--nsys-args-file NSYS_ARGS_FILE] [--nsys-warmup NSYS_WARMUP] [--nsys-iteration NSYS_ITERATION] [--run-batch-size RUN_BATCH_SIZE] [--batch-cuda-device BATCH_CUDA_DEVICE]
                        [--batch-cmd BATCH_CMD] [--exec-mode [{discrete,continuous,continuous_events}]] [-p] [-l LOG_LEVEL] [--version]

PyTorch Microbenchmarks

optional arguments:
  -h, --help            show this help message and exit
  -c CONFIG, --config CONFIG
                        The benchmark config file.
  -w WARMUP, --warmup WARMUP
                        Number of warm up iterations.
  -i ITERATION, --iteration ITERATION
                        Number of benchmark iterations.
  -b, --backward        Include backward pass.
  -d DEVICE, --device DEVICE
                        Target device for benchmark.
  -o OUTPUT_PREFIX, --output-prefix OUTPUT_PREFIX
                        File name prefix to write benchmark results.
  -r RESUME_ID, --resume-id RESUME_ID
                        Define a resume op_run_id to continue benchmark, skip all previous configs.
  -s STOP_ID, --stop_id STOP_ID
                        Define a stop op_run_id (exclusive) to stop benchmark, skip remaining configs.
  -a, --append          Append to output file, rather than overwrite.
  --cuda-l2-cache [{on,off}]
                        Set option for CUDA GPU L2 cache between iterations in discrete mode.
  --ncu                 Run NSight Compute to collect metrics.
  --ncu-bin NCU_BIN     Path to the NSight Compute (ncu) binary.
  --ncu-args-file NCU_ARGS_FILE
                        NSight Compute extra command line options (metrics etc.).
  --ncu-warmup NCU_WARMUP
                        NSight Systems number of warmup runs.
  --ncu-iteration NCU_ITERATION
                        NSight Systems number of measured iteration runs.
  --nsys                Run NSight Systems to collect metrics.
  --nsys-bin NSYS_BIN   Path to the NSight Systems (nsys) binary.
  --nsys-args-file NSYS_ARGS_FILE
                        NSight Systems extra command line options (metrics etc.).
  --nsys-warmup NSYS_WARMUP
                        NSight Systems number of warmup runs.
  --nsys-iteration NSYS_ITERATION
                        NSight Systems number of measured iteration runs.
  --run-batch-size RUN_BATCH_SIZE
                        Batch run input size (number of input configs to run in one launch), used by both NCU and NSYS.
  --batch-cuda-device BATCH_CUDA_DEVICE
                        CUDA GPU device ID to run batch job.
  --batch-cmd BATCH_CMD
                        Run batch job command.
  --exec-mode [{discrete,continuous,continuous_events}]
                        Set execution mode of the operators (discrete, continuous, continuous_events). Default=discrete
  -p, --profile         Enable profiler and tracing.
  -l LOG_LEVEL, --log-level LOG_LEVEL
                        Log output verbosity.
  --version             Print version.
"""


def test_every_option_of_param_s_usage_is_known() -> None:
    known = parser()._option_string_actions
    printed = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", USAGE)) - {"-m"}
    assert len(printed) > 30
    assert printed - set(known) == set()


def test_param_s_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert "PARAM" in capsys.readouterr().out


EMBEDDING = """\
embedding = torch.nn.EmbeddingBag(
            num_embeddings=embeddingbags,
            embedding_dim=dim,
            mode=mode,
            include_last_offset=include_last_offset,
            sparse=sparse).to(device=device)
embedding(input, offset)
"""


@pytest.mark.parametrize("include_last_offset", [False, True])
def test_param_s_embedding_with_input_and_offset(include_last_offset: bool, tmp_path: Path) -> None:
    """The fragment is run as it is, and the config that says the same runs forward and backward."""
    torch = pytest.importorskip("torch")
    sizes: dict[str, Any] = {"embeddingbags": 100, "dim": 8, "mode": "sum", "sparse": False}
    starts = torch.arange(0, 65 if include_last_offset else 64, 8)
    given = {"input": torch.randint(100, (64,)), "offset": starts, "device": "cpu", "torch": torch}
    built = run_program(EMBEDDING, **sizes, **given, include_last_offset=include_last_offset)["embedding"]
    assert built(given["input"], starts).shape == (8, 8)

    def spec(value: Any) -> dict[str, Any]:
        return {"type": {bool: "bool", int: "int", str: "str"}[type(value)], "value": value}

    words = {"num_embeddings": 100, "embedding_dim": 8, "mode": "sum", "include_last_offset": include_last_offset,
             "sparse": False}  # fmt: skip
    indices = {"type": "tensor", "dtype": "long", "requires_grad": False, "low": 0}
    offset = {**indices, "shape": [len(starts)], "high": 64, "values": "bounds" if include_last_offset else "offsets"}
    config = {
        "torch.nn.EmbeddingBag": {
            "build_data_generator": "PyTorch:DefaultDataGenerator",
            "input_data_generator": "PyTorch:DefaultDataGenerator",
            "config": [
                {
                    "build": [{"args": [], "kwargs": {name: spec(value) for name, value in words.items()}}],
                    "input": [
                        {"args": [{**indices, "shape": [64], "high": 100, "values": values}, offset]}
                        for values in ("zipf",)
                    ],
                }
            ],
        }
    }
    ran = Command(tmp_path)(config, "-d", "cpu", "-b")
    assert ran.code == 0, ran.lines
    assert list(ran.cases[0]["metric"]) == ["forward", "backward"]
    assert ran.cases[0]["metric"]["backward"]["measure.time"]


SCHEMA = """\
{
  "operator_name": {
    "build_iterator": "(optional) build iterator name",
    "input_iterator": "(optional) input iterator name",
    "build_data_generator": "(optional) data generator name",
    "input_data_generator": "(required) data generator name",
    "config": [
      <a list of config spec>
      {
        "build": [
          <(optional) a list of build spec>
        ]
        "input": [
          <(required) a list of input spec>
        ]
      }
    ]
  }
  <additional key:value of operator and its spec>
}
"""


def test_param_s_schema_of_a_config_is_no_config(tmp_path: Path) -> None:
    """It holds notes in <>, and lacks a comma; the message names the first place."""
    (tmp_path / "schema.json").write_text(SCHEMA)
    with pytest.raises(InvalidFile, match=r"schema\.json:8:7"):
        read_source(tmp_path / "schema.json")


BADDBMM = """\
{
  "torch.baddbmm": {
    "input_data_generator": "PyTorch:DefaultDataGenerator",
    "config": [
      {
        "input": [
          {
            "args": [
              {
                "dtype": "float",
                "shape": [2, 1, 512],
                "type": "tensor"
              },
              {
                "dtype": "float",
                "shape": [2, 512, 512],
                "type": "tensor"
              },
              {
                "dtype": "float",
                "shape": [2, 512, 512],
                "type": "tensor"
              }
            ],
            "kwargs": {
              "beta": {
                "type": "int",
                "value": 1
              },
              "alpha": {
                "type": "int",
                "value": 1
              }
            }
          }
        ]
      }
    ]
  }
}
"""


def test_param_s_example_config(tmp_path: Path) -> None:
    (tmp_path / "baddbmm.json").write_text(BADDBMM)
    assert main(["-c", "baddbmm.json", "-d", "null", "-o", "out"]) == 0
    (file,) = tmp_path.glob("out_*.json")
    line = json.loads(file.read_text().splitlines()[1])
    assert (line["op_name"], line["id"]) == ("torch.baddbmm", "0|0|0")
    assert line["config"]["input"] == json.loads(BADDBMM)["torch.baddbmm"]["config"][0]["input"][0]


TYPES = """\
{
  "type": "int",
  "value": 237
},
{
  "type": "int",
  "value_range": [100, 1000]
},
{
  "type": "long",
  "value": 8328
},
{
  "type": "long",
  "value_range": [1000, 10000]
},
{
  "type": "float",
  "value": 1.2
},
{
  "type": "float",
  "value_range": [0.0, 2.0]
},
{
  "type": "double",
  "value": 3.4
},
{
  "type": "double",
  "value_range": [0.5, 5.5]
},
{
  "type": "bool",
  "value": false
},
{
  "type": "device",
  "value": "cpu"
},
{
  "type": "str",
  "value": "a string value"
},
{
  "type": "genericlist",
  "value": [
    {
      "type": "int",
      "value": 237,
    },
    {
      "type": "tensor",
      "dtype": "float",
      "shape": [16, 32],
    }]
},
{
  "type": "tuple",
  "value": [
    {
      "type": "tensor",
      "dtype": "float",
      "shape": [16, 32],
    },
    {
      "type": "tensor",
      "dtype": "float",
      "shape": [16, 32],
    }]
},
{
  "type": "tensor",
  "dtype": "float",
  "shape": [128, 256]
}
"""


def test_param_s_data_types(tmp_path: Path) -> None:
    """The list has trailing commas and no brackets around it; each type is an argument of a config."""
    call = (
        f'{{"config": [{{"input": [{{"args": [{TYPES}]}}]}}], "input_data_generator": "PyTorch:DefaultDataGenerator"}}'
    )
    (tmp_path / "types.json").write_text(f'{{"torch.f": {call}}}')
    found = read_source(tmp_path / "types.json", format="param")
    assert [problem for problem in found.problems if "types.json" in problem.where and "args" in problem.where] == []
    assert any("trailing commas" in note for note in found.notes)
    (entry,) = found.workload.cases
    assert entry.args is not None
    assert (len(entry.args), entry.args[0], entry.args[-1]) == (14, 237, "128x256 float32 0..1")
    assert entry.args[-3:-1] == [
        [237, "16x32 float32 0..1"], {"tuple": ["16x32 float32 0..1", "16x32 float32 0..1"]},
    ]  # fmt: skip
    assert 100 <= entry.args[1] <= 1000
    assert node_of({"type": "device", "value": "cpu"}, Draw("x"), "") == "cpu"


# DL Operator Benchmarks.

ARITHMETIC = """\
#! /usr/bin/python
from mxnet_benchmarks.nd import run_all_arithmetic_operations_benchmarks

# Run all Arithmetic operations benchmarks with default input values
run_all_arithmetic_operations_benchmarks()

"""
ARITHMETIC_OUTPUT = """\
MX_Add_Forward_Backward_Time - 0.015201 seconds
MX_Multiply_Forward_Backward_Time - 0.021678 seconds
MX_Subtract_Forward_Backward_Time - 0.016154 seconds
MX_Divide_Forward_Backward_Time - 0.024327 seconds
MX_Modulo_Forward_Backward_Time - 0.045726 seconds
MX_Power_Forward_Backward_Time - 0.077152 seconds
MX_Negative_Forward_Backward_Time - 0.014472 seconds
MX_Inplace_Add_Forward_Time - 0.003824 seconds
MX_Inplace_Subtract_Forward_Time - 0.004137 seconds
MX_Inplace_Multiply_Forward_Time - 0.006589 seconds
MX_Inplace_Division_Forward_Time - 0.003869 seconds
MX_Inplace_Modulo_Forward_Time - 0.018180 seconds
"""


def test_all_arithmetic_operators(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    run_program(ARITHMETIC)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MX_")]
    assert all(re.fullmatch(r"MX_\w+_Time - \d+\.\d{6} seconds", line) for line in lines)
    assert [line.split()[0] for line in lines] == [line.split()[0] for line in ARITHMETIC_OUTPUT.split("\n")[:-1]]


ADD = """\
#! /usr/bin/python
from mxnet_benchmarks.nd import Add

# Run all Arithmetic operations benchmarks with default input values
add_benchmark = Add()
add_benchmark.run_benchmark()
add_benchmark.print_benchmark_results()

"""
ADD_FLOAT64 = """\
#! /usr/bin/python
from mxnet_benchmarks.nd import Add

# Run all Arithmetic operations benchmarks with default input values
add_benchmark = Add(inputs={"dtype": "float64"})
add_benchmark.run_benchmark()
add_benchmark.print_benchmark_results()

"""


@pytest.mark.parametrize("text", [ADD, ADD_FLOAT64])
def test_one_operator(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    run_program(text)
    assert re.search(r"^MX_Add_Forward_Backward_Time - 0\.\d{6} seconds$", capsys.readouterr().out, re.MULTILINE)


ADD_INPUTS = """\
from mxnet_benchmarks.nd import Add

# Run all Arithmetic operations benchmarks with default input values
add_benchmark = Add(inputs={"dtype": "float64"})
print(add_benchmark.inputs)
"""
ADD_INPUTS_OUTPUT = """\
{'lhs': (1024, 1024), 'rhs': (1024, 1024), 'initializer': <function normal at 0x117b607b8>, 'run_backward': True, 'dtype': 'float64'}
"""


def test_the_inputs_of_an_operator(capsys: pytest.CaptureFixture[str]) -> None:
    run_program(ADD_INPUTS)
    out, printed = (re.sub(r"0x\w+", "0x0", text) for text in (capsys.readouterr().out, ADD_INPUTS_OUTPUT))
    assert out == printed


def test_the_driver_of_all_operators_is_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python dl-operator-benchmark/benchmark_driver.py`: here the classes themselves are not run."""
    import runpy

    called: list[bool] = []
    name = "opmark.interop.opperf.benchmark_executor.run_all_mxnet_operator_benchmarks"
    monkeypatch.setattr(name, lambda: called.append(True))
    runpy.run_module("opmark.interop.opperf.benchmark_driver", run_name="__main__")
    assert called == [True]


# ByteMicroPerf and ByteMLPerf.

REPORT = """\
{
    "Operator": "EXP",
    "Backend": "GPU",
    "Host Info": "Intel(R) Xeon(R) Platinum 8336C CPU @ 2.30GHz",
    "Device Info": "NVIDIA A800-SXM4-80GB",
    "Performance": [
        {
            "Dtype": "float32",
            "Tensor Shapes": [
                [
                    256,
                    8192
                ]
            ],
            "Read IO Size(MB)": 8.0,
            "Write IO Size(MB)": 8.0,
            "Memory Size(MB)": 16.0,
            "Kernel bandwidth(GB/s)": 1790.52,
            "Bandwidth Utilization(%)": 87.81,
            "Avg latency(us)": 9.37,
            "QPS": 27321.24
        }
    ]
}
"""


def test_bytemicroperf_s_command_and_report(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`python3 launch.py --task exp --hardware_type GPU`, here on the backend without a device."""
    quickly(monkeypatch)
    printed = json.loads(REPORT)
    workload = {
        "operator": "exp",
        "iterations": 5,
        "input_shape_groups": {"inputs": [[[256], [8192]]]},
        "dtype": ["float32"],
    }
    (tmp_path / "workloads").mkdir()
    (tmp_path / "workloads" / "exp.json").write_text(json.dumps(workload))
    assert micro_perf(["--task", "exp", "--hardware_type", "null"]) == 0
    found = json.loads((tmp_path / "reports/null/exp/result-float32.json").read_text())
    assert set(printed) <= set(found)
    (row,), (here,) = printed["Performance"], found["Performance"]
    assert set(row) - set(here) == set()
    for key in ("Dtype", "Tensor Shapes", "Read IO Size(MB)", "Write IO Size(MB)", "Memory Size(MB)"):
        assert here[key] == row[key]


INFERENCE_WORKLOAD = """\
{
    "model": "bert-torch-fp32",   //The name of the model to be evaluated, which needs to be aligned with the model_zoo name
    "test_perf": true,            //Evaluate model performance
    "test_accuracy": true,        //Evaluate model accuracy
    "test_numeric": true,         //Accuracy：Evaluate model numeric
    "clients": 3,                 //Performance：Client threads that submit data
    "iterations": 100,            //Performance：How many iterations are submitted by each thread
    "batch_sizes":[1,4,8,16,32,64],//Performance：The batch size when each thread submits data
    "data_percent": 50,           //Accuracy：Ratio of data to assess accuracy, [1-100]
    "compile_only": false,           //Compile the model only
}
"""


def test_a_workload_of_whole_models_is_read(tmp_path: Path) -> None:
    """Its comments and its last comma are no obstacle, and it is not taken for the model that it is named after."""
    (tmp_path / "bert-torch-fp32.json").write_text(INFERENCE_WORKLOAD)
    found = read_source(tmp_path / "bert-torch-fp32.json")
    assert found.problems == ()
    assert [case.op for case in found.cases] == ["model:bert-base"] * 6
    assert [case.params["batch"] for case in found.cases] == [1, 4, 8, 16, 32, 64]


# OpBench: its README's lines are run by tests/interop/opbench.
