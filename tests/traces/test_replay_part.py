"""Which calls of a trace are replayed: steps, labels, communication, patterns."""

from __future__ import annotations

import json

import pytest

from opmark.errors import UserError
from opmark.schema.replay import ReplayedCall
from opmark.traces.replay_part import OmittedCall, ReplayPart, choose_calls
from opmark.traces.replay_report import chrome_trace, make_report
from opmark.traces.trace import ProgramTrace, TraceNode


def program() -> ProgramTrace:
    """Two whole steps and the beginning of a third one, with a label, a thread of its own, and communication."""
    nodes: list[TraceNode] = [TraceNode(1, "[pytorch|profiler|execution_trace|thread]", "label")]

    def add(name: str, kind: str, parent: int = 1, schema: str = "") -> int:
        nodes.append(TraceNode(len(nodes) + 1, name, kind, schema, parent, duration=0.5))  # type: ignore[arg-type]
        return len(nodes)

    for number in range(3):
        step = add(f"ProfilerStep#{number}", "label")
        forward = add("forward: layer1", "label", step)
        linear = add("aten::linear", "operator", forward)
        add("aten::addmm", "operator", linear)
        if number < 2:
            add("aten::relu", "operator", add("forward: layer2", "label", step))
            backward = add("autograd::engine::evaluate_function: MmBackward0", "label")  # another thread
            add("aten::mm", "operator", backward)
            add("c10d::allreduce_", "collective", backward)
            add("gloo:all_reduce", "collective", backward)
    return ProgramTrace("program.json", "by hand", nodes)


def names(**part: str) -> list[str]:
    return [node.name for node in choose_calls(program(), ReplayPart(**part))[0]]  # type: ignore[arg-type]


STEP = ["aten::linear", "aten::relu", "aten::mm", "c10d::allreduce_"]


def test_the_last_complete_step_is_replayed_with_what_other_threads_did_in_it() -> None:
    assert names() == STEP
    assert names(step="0") == STEP
    assert names(step="2") == ["aten::linear"]
    assert names(step="all") == [*STEP, *STEP, "aten::linear"]
    with pytest.raises(UserError, match=r"there is no step `9`; it has 0, 1, 2"):
        names(step="9")


def test_a_trace_without_steps_is_replayed_as_a_whole() -> None:
    trace = ProgramTrace("x.json", "by hand", [TraceNode(1, "aten::relu", "operator")])
    assert len(choose_calls(trace, ReplayPart())[0]) == 1


def test_a_label_is_exact_or_the_only_one_that_contains_the_text() -> None:
    assert names(subgraph="forward: layer1") == ["aten::linear"]
    assert names(subgraph="layer2") == ["aten::relu"]
    assert names(subgraph="MmBackward0") == ["aten::mm", "c10d::allreduce_"]
    with pytest.raises(UserError, match="several labels contain `layer`") as several:
        names(subgraph="layer")
    assert several.value.hint == "labels: forward: layer1, forward: layer2"
    with pytest.raises(UserError, match="no label is or contains `decoder`") as none:
        names(subgraph="decoder")
    assert "forward: layer1" in str(none.value.hint)


def test_computation_or_communication_alone_and_patterns() -> None:
    assert names(only="comms") == ["c10d::allreduce_"]
    assert names(only="compute") == STEP[:3]
    kept, left_out = choose_calls(program(), ReplayPart(skip="aten::m*, aten::relu"))
    assert [node.name for node in kept] == ["aten::linear", "c10d::allreduce_"]
    assert [(one.node.name, one.reason, one.chosen) for one in left_out] == [
        ("aten::relu", "--skip aten::relu", True),
        ("aten::mm", "--skip aten::m*", True),
    ]
    with pytest.raises(UserError, match="nothing is left to replay"):
        names(skip="*")


def test_a_call_whose_parent_has_ended_is_a_call_of_its_own() -> None:
    """torch's observer takes the wrong parent where an asynchronous collective ends."""
    nodes = [
        TraceNode(1, "aten::view", "operator", start=0.0, duration=1.0),
        TraceNode(2, "aten::as_strided", "operator", parent=1, start=0.5, duration=0.1),
        TraceNode(3, "aten::mm", "operator", parent=1, start=2.0, duration=1.0),
        TraceNode(4, "c10d::allreduce_", "collective", parent=3, start=2.5, duration=0.1),
    ]
    assert [node.id for node in ProgramTrace("x", "by hand", nodes).calls] == [1, 3, 4]


def test_a_report_counts_gaps_apart_from_what_was_not_asked_for() -> None:
    trace = program()
    calls = [ReplayedCall("aten::mm", 3.0, 10.0, 100.0, 2.0), ReplayedCall("aten::mm", 1.0, 13.0, 102.0, 2.0)]
    left_out = [
        OmittedCall(TraceNode(1, "aten::relu", "operator", duration=1.0), "no kernel"),
        OmittedCall(TraceNode(2, "aten::relu", "operator", duration=9.0), "--skip x", chosen=True),
    ]
    report = make_report(trace, calls, left_out, [], [], 2, 64, timed=True)
    assert report.headline == "2 of 3 calls, 80.0% of recorded time; 1 left out"
    assert [(gap.reason, gap.operators) for gap in report.gaps] == [("no kernel", {"aten::relu": 1})]
    assert [gap.reason for gap in report.chosen] == ["--skip x"]
    assert [(one.calls, one.recorded, one.replayed, one.ratio) for one in report.operators] == [(2, 4.0, 4.0, 1.0)]
    events = json.loads(chrome_trace([report]))["traceEvents"]
    assert [one["args"]["name"] for one in events if one["name"] == "process_name"] == ["recorded", "replayed"]
    spans = [(one["pid"], one["ts"], one["dur"]) for one in events if one["ph"] == "X"]
    assert spans == [(1, 0, 3e6), (2, 0, 2e6), (1, 3e6, 1e6), (2, 2e6, 2e6)]
