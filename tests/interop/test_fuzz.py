"""Foreign files with something wrong in them: a clear error or an import, never a traceback, never a silent drop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutations import JUNK, spoiled

from opmark.errors import UserError
from opmark.plugin.registry import importers
from opmark.runner.workload_source import WorkloadSource, read_source


def tensor(*shape: Any, dtype: str = "float", **more: Any) -> dict[str, Any]:
    return {"type": "tensor", "dtype": dtype, "shape": list(shape), **more}


PARAM = {
    "torch.add": {
        "input_data_generator": "PyTorch:DefaultDataGenerator",
        "config": [
            {"input": [{"args": [tensor(8, 8), tensor(8, 8)], "kwargs": {"alpha": {"type": "int", "value": 2}}}]}
        ],
    },
    "torch.mm": {
        "input_iterator": "RangeConfigIterator",
        "input_data_generator": "PyTorch:DefaultDataGenerator",
        "config": [
            {
                "input": [
                    {
                        "args": [
                            tensor([4, 8, 2], 8, __range__=["shape"]),
                            tensor(8, 3, __copy__=[{"shape": [0, [0, 1]]}]),
                        ]
                    }
                ]
            }
        ],
    },
    "torch.nn.Linear": {
        "build_data_generator": "PyTorch:DefaultDataGenerator",
        "input_data_generator": "PyTorch:DefaultDataGenerator",
        "config": [
            {
                "build": [{"args": [{"type": "int", "value": 8}, {"type": "int", "value_range": [1, 9]}]}],
                "input": [{"args": [tensor(4, 8)]}, {"args": [tensor(2, 8, dtype="double", requires_grad=False)]}],
            }
        ],
    },
}
V1_INPUTS = {
    "operator": "exp",
    "iterations": 100,
    "input_shape_groups": {"inputs": [[[4, 8], [16]]]},
    "dtype": ["float32", "half"],
}
V1_GEMM = {"operator": "gemm", "iterations": 100, "M/N/K": [[8, 4, 2], [1, 2, 3]], "dtype": ["float32"]}
V2 = {"cases": [{"arg_type": "default", "dtype": ["float32"], "batch_size": [1, 2], "dim_size": [8], "__note": "x"}]}
V3 = {
    "gemm": [{"arg_type": "default", "dtype": "float32", "K.N": [[4, 4], [8, 2]], "M": [1, 2]}],
    "moe_gating_gemm": [
        {"arg_type": "llm", "dtype": "float32", "sp_size.hidden_size.num_experts": [[1, 16, 4]], "num_tokens": [8]}
    ],
    "flash_attention": [
        {"arg_type": "batch_llm", "attn_mode": "prefill", "dtype": "bfloat16", "q_head_num": 2, "kv_head_num": 1,
         "head_dim": 8, "q_lens": [4, 2], "cache_lens": [0, 0]}
    ],
}  # fmt: skip
OPPERF = {"ops": ["add", "dot"], "inputs": [{"lhs": [8, 8], "rhs": [8, 8]}], "run_backward": True, "dtype": "float32"}
OPERATOR_BENCHMARK = {
    "op": "torch.add",
    "config_list": {
        "attr_names": ["M", "N"],
        "attrs": [[1, 2], [8, 8]],
        "cross_product_configs": {"device": ["cpu"], "dtype": ["torch.float"]},
        "tags": ["short"],
    },
    "args": ["{M}x{N} {dtype}", "{M}x{N} {dtype}"],
}
SAMPLES = {
    "param": ("p.json", PARAM),
    "v1 inputs": ("exp.json", V1_INPUTS),
    "v1 gemm": ("gemm.json", V1_GEMM),
    "v2": ("add.json", V2),
    "v3": ("ops.json", V3),
    "opperf": ("o.json", OPPERF),
    "operator_benchmark": ("b.json", OPERATOR_BENCHMARK),
}


def taken(folder: Path, file: str, content: Any, format: str = "") -> WorkloadSource | UserError:
    path = folder / file
    path.write_text(json.dumps(content))
    try:
        return read_source(path, format=format)
    except UserError as error:
        return error


@pytest.mark.parametrize("name", SAMPLES)
def test_the_documents_are_right_before_they_are_spoiled(name: str, tmp_path: Path) -> None:
    found = taken(tmp_path, *SAMPLES[name])
    assert isinstance(found, WorkloadSource), found
    assert found.cases
    assert found.problems == ()


@pytest.mark.parametrize("name", SAMPLES)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_spoiled_file_is_an_import_or_a_clear_error(name: str, tmp_path: Path, data: st.DataObject) -> None:
    file, content = SAMPLES[name]
    document = data.draw(spoiled(content))
    found = taken(tmp_path, file, document)
    if isinstance(found, UserError):
        assert found.message.startswith(str(tmp_path / file))
        assert len(found.message) > len(str(tmp_path / file)) + 5
        return
    assert found.cases or found.chips
    for problem in found.problems:
        assert str(tmp_path / file) in problem.where or file in problem.where
        assert problem.message
    if name in ("param", "v3") and isinstance(document, dict):
        _nothing_vanished(document, found)


def _nothing_vanished(document: dict[str, Any], found: WorkloadSource) -> None:
    """Every operator of the file is the source of a case, or named in a problem."""
    told = " ".join([*(source for case in found.cases for source in case.sources), *map(str, found.problems)])
    assert [name for name in document if name not in told and not name.startswith("__")] == []


@pytest.mark.parametrize("name", importers())
@pytest.mark.parametrize("data", [*JUNK, {"op_name": 1, "op_info": 2}, {"operator": 1}, {"cases": 1}, {"ops": 1}])
def test_a_format_that_is_insisted_on_is_an_import_or_a_clear_error(name: str, data: Any, tmp_path: Path) -> None:
    found = taken(tmp_path, "f.json", data, name)
    if isinstance(found, UserError):
        assert found.message.startswith(str(tmp_path / "f.json"))
    else:
        assert found.cases or found.chips
