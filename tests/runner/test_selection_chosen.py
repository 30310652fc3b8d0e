from __future__ import annotations

import sys

import pytest

from opmark.api.run import plan as api_plan
from opmark.errors import UnknownName, UserError
from opmark.hardware import host as host_module
from opmark.plugin.registry import backend
from opmark.runner.selection import select_backends


def test_all_is_what_can_run_here_with_the_rest_named() -> None:
    names, absent = select_backends(["all"])
    assert {"numpy-cpu", "torch-cpu"} <= set(names)
    assert not {"null", "null-device", "torch-accelerator"} & set(names)
    left = " ".join(absent)
    assert "without torch-mps: an Apple GPU needs macOS" in left or sys.platform == "darwin"


def test_a_pattern_takes_variants_too() -> None:
    names, _ = select_backends(["openvino-cpu*"])
    assert names == ["openvino-cpu", "openvino-cpu/throughput", "openvino-cpu/default-precision"]


def test_a_pattern_that_matches_nothing_is_a_mistake() -> None:
    with pytest.raises(UnknownName, match="no backend named"):
        select_backends(["nothing*"])


def test_what_is_named_is_taken_whether_it_can_run_or_not() -> None:
    assert select_backends(["torch-cuda", "torch-cuda"]) == (["torch-cuda"], ())


def test_interpreters_multiply_backends() -> None:
    names, _ = select_backends(["numpy-cpu", "torch-cpu"], ["a", "b"])
    assert names == ["numpy-cpu@a", "numpy-cpu@b", "torch-cpu@a", "torch-cpu@b"]
    with pytest.raises(UserError, match="has its interpreter already"):
        select_backends(["numpy-cpu@a"], ["b"])


def test_where_nothing_of_a_pattern_can_run_its_reasons_are_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "opmark.runner.selection.why_no_device", lambda device: "no such thing" if device == "cuda" else None
    )
    with pytest.raises(UserError, match="torch-cuda: no such thing"):
        select_backends(["torch-cud*"])


def test_a_variant_is_part_of_the_name() -> None:
    throughput = backend("openvino-cpu/throughput")
    assert (throughput.name, throughput.way) == ("openvino-cpu/throughput", "throughput")
    assert backend("openvino-cpu").way == "latency"
    assert backend("openvino-cpu/latency").name == "openvino-cpu"  # the plain name, so that both are one column
    with pytest.raises(UnknownName, match="no variant of openvino-cpu named `fast`"):
        backend("openvino-cpu/fast")
    with pytest.raises(UnknownName):
        backend("numpy-cpu/fast")
    with pytest.raises(UserError, match="no interpreter behind the @"):
        backend("numpy-cpu@")


def test_what_a_pattern_leaves_out_is_said() -> None:
    plan = api_plan("add", backend=["numpy*", "torch-m*"][0], effort="quick")
    assert plan.notes == ()
    assert any("torch-mps" in note for note in api_plan("add", backend="all", effort="quick").notes)


def test_a_device_is_certainly_not_here_only_where_no_driver_made_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module.sys, "platform", "linux")
    files = {"cuda": ("a GPU", ("/dev/null",)), "xpu": ("another GPU", ("/dev/no-such-file",))}
    monkeypatch.setattr(host_module, "_FILES", files)
    assert host_module.why_no_device("cuda") is None
    assert host_module.why_no_device("xpu") == "no driver of another GPU is loaded here"
    assert host_module.why_no_device("npu") is None
