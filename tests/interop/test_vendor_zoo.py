"""Hardware files of ByteMLPerf's vendor_zoo: every layout that they come in, and every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmark.errors import InvalidFile, UserError
from opmark.interop.vendor_zoo import VENDOR_ZOO
from opmark.plugin.registry import importers
from opmark.runner.selection import select_cases
from opmark.runner.workload_source import read_source
from opmark.schema import Imported, Peaks
from opmark.schema.machine import MEMORY, Interconnect, Level
from opmark.schema.options import Selection

WHERE = Path("Fast/F1.json")
NOTHING = {"缓存类型": None, "缓存容量(MB)": None, "缓存带宽(TB/s)": None}


def document(**changed: Any) -> dict[str, Any]:
    """A chip that no vendor has, in the layout of the current files; dotted keys change a field."""
    whole: dict[str, Any] = {
        "SKU参数": {"厂商": "Fast", "型号": "F1", "用途": "Training", "照片": None},
        "硬件参数": {"制程(NM)": 5, "尺寸": "N/A", "接口": "OAM", "功耗(W/TDP)": 500},
        "内存参数": {
            "内存层次架构图": None,
            "内存": {"内存类型": "HBM3", "内存容量(GB)": 64, "内存带宽(GB/s)": 1638.4},
            "一级缓存": {"缓存类型": "Cache(x100)", "缓存容量(MB)": 12.8, "缓存带宽(TB/s)": None},
            "二级缓存": {"缓存类型": None, "缓存容量(MB)": 32, "缓存带宽(TB/s)": 6.4},
        },
        "算力参数": {
            "PE层次架构图": None,
            "PE参数": {"算力架构": "同构众核", "并行方式": "SIMT", "通信带宽(GB/s)": None},
            "标量参数": {"标量精度": None, "FP32标量算力(TFLOPS)": None},
            "向量参数": {"向量精度": "FP32", "INT8量算力(TOPS)": None, "FP32向量算力(TFLOPS)": 20.0},
            "张量参数": {
                "张量精度": "TF32, FP16, BF16, FP8, INT8, INT4", "INT4张量算力(TOPS)": 1280.0,
                "INT8张量算力(TOPS)": 640.0, "FP8张量算力(TFLOPS)": 640.0, "BF16张量算力(TFLOPS)": 320.0,
                "FP16张量算力(TFLOPS)": 320.0, "TF32张量算力(TFLOPS)": 160.0, "FP32张量算力(TFLOPS)": None,
            },
        },
        "卡间通信参数": {
            "通信方式": "F-Link", "端口数量": 4, "RDMA协议": None, "下行带宽(GB/s)": None, "上行带宽(GB/s)": None,
        },
        "数据源": ["https://example.com/f1.pdf", "https://example.com/more"],
    }  # fmt: skip
    for dotted, value in changed.items():
        *place, key = dotted.split(".")
        part = whole
        for step in place:
            part = part[step]
        part[key] = value
    return whole


def read(**changed: Any) -> Imported:
    return VENDOR_ZOO.read(WHERE, document(**changed), 0)


def chip(**changed: Any) -> Peaks:
    found = read(**changed)
    assert found.problems == ()
    (peaks,) = found.chips
    return peaks


def test_every_figure_arrives_in_base_units() -> None:
    peaks = chip()
    assert (peaks.chip, peaks.vendor, peaks.power, peaks.memory) == ("Fast F1", "Fast", 500.0, 64 * 10**9)
    assert peaks.levels == [Level("L1", None, 12_800_000), Level("L2", 6.4e12, 32_000_000), Level(MEMORY, 1638.4e9)]
    assert peaks.interconnect == [Interconnect("F-Link", None, 4)]
    assert peaks.flops == {
        "int4": 1280e12, "int8": 640e12, "float8_e4m3fn": 640e12, "float8_e5m2": 640e12, "bfloat16": 320e12,
        "float16": 320e12, "tfloat32": 160e12, "float32": 20e12,
    }  # fmt: skip
    assert peaks.notes == {"memory": "HBM3", "flops.float32": "of the vector units"}


def test_the_source_is_the_file_and_what_it_quotes() -> None:
    assert chip().source == "ByteMLPerf vendor_zoo, F1.json: https://example.com/f1.pdf, https://example.com/more"
    assert chip(数据源=None).source == "ByteMLPerf vendor_zoo, F1.json"


def test_what_has_no_room_is_named_in_one_line() -> None:
    assert read().notes == (
        "F1.json: ignored: use Training, process (nm) 5, slot OAM, architecture 同构众核, parallelism SIMT, "
        "vector types FP32, tensor types TF32, FP16, BF16, FP8, INT8, INT4",
    )


@given(st.sampled_from(["-", "N/A", "", " - ", "n/a", None, {}, "无"]))
def test_nothing_is_written_in_many_ways(nothing: Any) -> None:
    places = ("硬件参数.功耗(W/TDP)", "内存参数.二级缓存.缓存容量(MB)", "内存参数.二级缓存.缓存带宽(TB/s)")
    places += ("算力参数.张量参数.FP16张量算力(TFLOPS)", "卡间通信参数.端口数量", "卡间通信参数.通信方式")
    peaks = chip(**dict.fromkeys(places, nothing))
    assert (peaks.power, peaks.interconnect) == (None, [])
    assert [level.name for level in peaks.levels] == ["L1", MEMORY]
    assert "float16" not in peaks.flops


def test_an_explanation_where_a_number_belongs_is_told_and_not_kept() -> None:
    found = read(**{"卡间通信参数.端口数量": "A:21\nB:24", "卡间通信参数.上行带宽(GB/s)": "3*100GbE*8(one node)"})
    assert found.problems == ()
    assert found.chips[0].interconnect == [Interconnect("F-Link")]
    assert "F1.json: $.卡间通信参数.端口数量: `A:21 B:24` is not a number and is ignored" in found.notes
    assert any("`3*100GbE*8(one node)` is not a number" in note for note in found.notes)


def test_a_number_in_quotes_is_a_number() -> None:
    assert chip(**{"内存参数.内存.内存带宽(GB/s)": "2,039"}).memory_bandwidth == 2039e9


def test_a_bandwidth_beside_ports_may_be_that_of_one() -> None:
    link = {"卡间通信参数.上行带宽(GB/s)": 32, "卡间通信参数.下行带宽(GB/s)": 30}
    assert (
        chip(**link).notes["interconnect"]
        == "32 GB/s up, 30 GB/s down; the file does not say whether of one port or of all 4"
    )
    assert chip(**link).interconnect == [Interconnect("F-Link", None, 4)]
    assert chip(**link, **{"卡间通信参数.端口数量": None}).interconnect == [Interconnect("F-Link", 32e9)]


def test_the_fastest_unit_counts_and_the_others_are_noted() -> None:
    peaks = chip(**{"算力参数.标量参数.FP32标量算力(TFLOPS)": 2, "算力参数.张量参数.FP32张量算力(TFLOPS)": 40})
    assert peaks.flops["float32"] == 40e12
    assert peaks.notes["flops.float32"] == "of the tensor units; scalar 2.00 TFLOP/s; vector 20.0 TFLOP/s"


def test_matrix_figures_may_stand_with_the_vectors() -> None:
    vectors = {"向量精度": "FP16", "FP8量算力(TFLOPS)": 700, "FP16向量算力(TFLOPS)": 350}
    peaks = chip(**{"算力参数.向量参数": vectors, "算力参数.张量参数": {}})
    assert peaks.flops == {"float8_e4m3fn": 700e12, "float8_e5m2": 700e12, "float16": 350e12}


def test_an_older_file_calls_its_tf32_fp32() -> None:
    tensor = {
        "张量精度": "FP32, TF32, FP16",
        "INT8张量算力(TFLOPS)": 640,
        "FP16张量算力(TFLOPS)": 320,
        "FP32张量算力(TFLOPS)": 160,
    }
    found = read(**{"算力参数.张量参数": tensor})
    assert found.chips[0].flops["tfloat32"] == 160e12
    assert found.chips[0].flops["float32"] == 20e12
    assert any("FP32 of the tensor units is TF32" in note for note in found.notes)
    alone = read(**{"算力参数.张量参数": tensor, "算力参数.向量参数": {}})
    assert alone.chips[0].flops["float32"] == 160e12


def test_a_buffer_is_no_cache_and_a_chip_may_have_no_memory() -> None:
    sram = {"缓存类型": "Distributed Buffer", "缓存容量(MB)": 900, "缓存带宽(TB/s)": 65}
    peaks = chip(
        **{"内存参数.一级缓存": sram, "内存参数.二级缓存": NOTHING, "内存参数.内存": {"内存类型": "无片上DDR"}}
    )
    assert peaks.levels == [Level("SRAM", 65e12, 900_000_000)]
    assert peaks.memory is None


def test_whole_parts_may_be_missing() -> None:
    whole = document()
    del whole["内存参数"]["一级缓存"], whole["内存参数"]["二级缓存"], whole["算力参数"]["向量参数"], whole["数据源"]
    (peaks,) = VENDOR_ZOO.read(WHERE, whole, 0).chips
    assert peaks.levels == [Level(MEMORY, 1638.4e9)]


def test_a_chip_without_a_name_is_named_after_its_file() -> None:
    found = read(**{"SKU参数.型号": None})
    assert found.chips[0].chip == "Fast F1"
    assert "F1.json: the file has no 型号 (model): the chip is named F1 after the file" in found.notes
    assert chip(**{"SKU参数.型号": "Fast F2"}).chip == "Fast F2"


def test_an_unknown_field_is_told() -> None:
    found = read(**{"硬件参数.重量(kg)": 2.5, "新参数": "x", "算力参数.张量参数.FP2张量算力(TFLOPS)": 9})
    assert "F1.json: $.硬件参数.重量(kg) is unknown and ignored: 2.5" in found.notes
    assert "F1.json: $.算力参数.张量参数.FP2张量算力(TFLOPS) is unknown and ignored: 9" in found.notes
    (problem,) = found.problems
    assert str(problem) == "Fast/F1.json: $.新参数: expected a mapping, got x"


@pytest.mark.parametrize("wrong", [-3, 0, True, [3], {"a": {"b": 1}}, float("nan"), float("inf")])
def test_a_figure_that_cannot_be_is_a_problem_with_its_place(wrong: Any) -> None:
    found = read(**{"内存参数.内存.内存带宽(GB/s)": wrong})
    assert any("内存带宽" in problem.where for problem in found.problems) or any("unknown" in n for n in found.notes)
    assert [level.name for level in found.chips[0].levels] == ["L1", "L2"]
    assert found.chips[0].flops == chip().flops


@pytest.mark.parametrize("part", ["SKU参数", "内存参数", "算力参数", "卡间通信参数"])
def test_a_part_that_is_no_mapping_is_a_problem_and_the_rest_is_taken(part: str) -> None:
    found = read(**{part: [1, 2]})
    assert [str(problem) for problem in found.problems] == [f"Fast/F1.json: $.{part}: expected a mapping, got [1, 2]"]
    assert len(found.chips) == 1


def test_an_empty_file_has_no_chip() -> None:
    found = VENDOR_ZOO.read(WHERE, {"SKU参数": {"型号": "F1"}}, 0)
    assert (found.chips, len(found.problems)) == ((), 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
PLACES = [
    "SKU参数", "SKU参数.型号", "SKU参数.厂商", "硬件参数.功耗(W/TDP)", "内存参数.内存", "数据源",
    "内存参数.一级缓存.缓存容量(MB)", "内存参数.内存.内存容量(GB)", "算力参数.张量参数", "算力参数.张量参数.张量精度",
    "算力参数.张量参数.FP16张量算力(TFLOPS)", "卡间通信参数.端口数量", "卡间通信参数.上行带宽(GB/s)",
]  # fmt: skip


@given(st.sampled_from(PLACES), JSON)
def test_any_value_anywhere_is_read_noted_or_a_problem(place: str, value: Any) -> None:
    found = read(**{place: value})
    for peaks in found.chips:
        assert all(rate > 0 for rate in peaks.flops.values())
        assert peaks.chip


@given(JSON)
def test_anything_at_all_may_be_asked_for(data: Any) -> None:
    assert VENDOR_ZOO.recognises(WHERE, data) is False
    assert VENDOR_ZOO.recognises(WHERE, document()) is True


def test_it_is_a_registered_importer() -> None:
    assert importers()[VENDOR_ZOO.name] is VENDOR_ZOO


def test_a_folder_of_them_is_all_their_chips(tmp_path: Path) -> None:
    (tmp_path / "Fast").mkdir()
    for name in ("F1", "F2"):
        (tmp_path / "Fast" / f"{name}.json").write_text(json.dumps(document(**{"SKU参数.型号": name})))
    taken = read_source(tmp_path)
    assert ([peaks.chip for peaks in taken.chips], taken.cases, taken.foreign) == (
        ["Fast F1", "Fast F2"],
        (),
        "vendor-zoo",
    )


def test_figures_with_sparsity_are_made_dense_on_the_way_in(tmp_path: Path) -> None:
    path = tmp_path / "H100.json"
    sparse = {"SKU参数.厂商": "NVIDIA", "SKU参数.型号": "H100 SXM5", "算力参数.张量参数.FP16张量算力(TFLOPS)": 1979}
    path.write_text(json.dumps(document(**sparse)))
    taken = read_source(path)
    assert taken.chips[0].flops["float16"] == 989.5e12
    assert any("float16 twice the datasheet's, as with sparsity" in note for note in taken.notes)
    assert "NVIDIA H100 80GB HBM3" in taken.chips[0].aliases


def test_hardware_is_no_workload(tmp_path: Path) -> None:
    path = tmp_path / "F1.json"
    path.write_text(json.dumps(document()))
    with pytest.raises(UserError, match=r"F1\.json: a hardware file, no workload"):
        select_cases(Selection(workload=path))


def test_a_hardware_file_of_ones_own_is_told_apart_too(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("schema: 1\nchips: [{chip: F1, source: me, flops: {}, levels: []}]\n")
    assert [peaks.chip for peaks in read_source(path).chips] == ["F1"]
    with pytest.raises(UserError, match="a hardware file, no workload"):
        select_cases(Selection(workload=path))
    path.write_text("schema: 1\nchips: [{chip: F1}]\n")
    with pytest.raises(InvalidFile, match=r"own\.yaml"):
        read_source(path)
