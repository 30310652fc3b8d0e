"""`opmark predict`: answers with interval, baselines and basis, and messages for what it cannot know."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from opmark.api.predict import (
    _calls,
    _figures_of,
    find_predictor,
    measure_for_training,
    predict,
    probe,
    probe_workload,
    run_entries,
    save_predictor,
    train_from_files,
)
from opmark.api.requests import RunRequest
from opmark.api.result import facts_of, open_store, store_all
from opmark.errors import UserError
from opmark.prediction.measured import random_calls, samples_of_figures
from opmark.prediction.samples import ChipFigures, samples_of
from opmark.runner.plan import Plan, settings_for
from opmark.runner.session import new_run
from opmark.schema import Case, Entry, Record, Resources, Task
from opmark.schema.machine import Level, Peaks, findings_key
from opmark.schema.options import MeasureOptions

Command = Callable[..., Any]
SIZES = {"M": 2048, "N": 1024, "K": 512}
MATMUL = ("predict", "matmul", "-p", "M=2048", "-p", "N=1024", "-p", "K=512")


def test_an_operator_is_predicted_with_interval_baselines_and_basis(main: Command) -> None:
    done = main(*MATMUL, "--on", "V100-PCIE-32GB")
    assert done.code == 0
    for text in ("90 % interval", "roofline alone", "nearest, scaled"):
        assert text in done.out
    for text in ("predicted and not measured", "records of this chip", "inside of what was learnt"):
        assert text in done.err


def test_json_says_that_the_number_is_predicted(main: Command) -> None:
    (found,) = main(*MATMUL, "--on", "H100", "--json").objects
    assert (found["source"], found["basis"], found["chip"]) == ("predicted", "datasheet", "NVIDIA H100 80GB HBM3")
    assert found["bound"] <= found["low"] <= found["seconds"] <= found["high"]


@pytest.mark.parametrize("chip", ["A100", "H100 PCIe", "L4", "A10", "RTX A6000", "A100 80GB PCIe", "H200", "P4"])
def test_chips_outside_of_the_training_data_are_answered_with_wider_intervals(chip: str) -> None:
    (one,) = predict("matmul", SIZES, on=chip).cases
    assert one.prediction.seconds >= one.prediction.bound
    (known,) = predict("matmul", SIZES, on="V100-PCIE-32GB").cases
    if one.prediction.basis == "datasheet":
        ratio = one.prediction.high / one.prediction.low
        assert ratio > known.prediction.high / known.prediction.low


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        ({"what": "matmul", "params": {"M": 2**22, "N": 64, "K": 64}, "on": "T4"}, "far outside", "--far"),
        ({"what": "matmul", "params": SIZES, "on": "Fast 9000"}, "no datasheet for `Fast 9000`", "opmark list chips"),
        ({"what": "matmul", "params": {**SIZES, "dtype": "bfloat16"}, "on": "A100"}, "learnt float32 alone", "train"),
        ({"what": "matmul", "params": SIZES, "on": "T4", "backend": "jax-cpu"}, "no model was trained", "train"),
        ({"what": "reshape", "on": "T4"}, "nothing of `reshape` can be predicted", "opmark run"),
        ({"what": "matmul", "params": SIZES, "on": "NVIDIA H100 NVL"}, "lacks flops.float32", "calibrate"),
    ],
)
def test_what_cannot_be_predicted_is_refused_with_a_way_on(arguments: dict, message: str, hint: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(UserError, match=message) as caught:
        predict(**arguments)
    assert hint in str(caught.value.hint)


def test_of_several_chips_that_match_one_that_was_learnt_is_taken_and_named() -> None:
    found = predict("matmul", SIZES, on="A100")
    assert found.chip == "NVIDIA A100-PCIE-40GB"
    assert found.cases[0].prediction.basis == "measured"
    assert any(note.startswith("`A100` was taken for NVIDIA A100-PCIE-40GB") for note in found.notes)
    assert not any("was taken for" in note for note in predict("matmul", SIZES, on="Tesla T4").notes)


def test_far_answers_all_the_same_and_says_how_far() -> None:
    (one,) = predict("matmul", {"M": 2**22, "N": 64, "K": 64}, on="T4", far=True).cases
    assert one.prediction.distance > 2


def test_a_workload_is_summed_between_hidden_and_waited_for_launches(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(
        "schema: 1\nname: two\ncases:\n"
        "- {op: matmul, params: {M: 512, N: 512, K: 512}, count: 3}\n- {op: relu, params: {shape: [512, 512]}}\n"
    )
    found = predict(str(path), on="T4")
    times = {one.case.op: one.prediction.seconds for one in found.cases}
    assert found.alone == pytest.approx(3 * times["matmul"] + times["relu"])
    assert found.hidden < found.alone
    assert found.interval[0] < found.alone < found.interval[1]


def test_parameters_do_not_go_with_a_file(main: Command, tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("schema: 1\nname: one\ncases:\n- {op: relu, params: {shape: [512, 512]}}\n")
    with pytest.raises(UserError, match="a workload brings its own"):
        predict(str(path), {"shape": [[64]]}, on="T4")
    assert "a workload brings its own parameters" in main("predict", str(path), "--on", "T4", "-p", "shape=64").err


@pytest.mark.parametrize("options", [{"size": "large"}, {"phase": "backward"}])
def test_neither_sizes_nor_phases_go_with_a_file(options: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "one.yaml"
    path.write_text("schema: 1\nname: one\ncases:\n- {op: relu, params: {shape: [512, 512]}}\n")
    with pytest.raises(UserError, match="--size and --phase are for operators"):
        predict(str(path), on="T4", **options)


def test_the_operators_of_a_model_are_those_of_its_forward_call() -> None:
    with pytest.raises(UserError, match="--phase backward"):
        predict("model:two-towers", {"size": "small"}, on="T4", phase="backward")


def test_rows_say_which_phase_they_are_of(main: Command) -> None:
    assert "softmax 64x64 float32 backward" in main(
        "predict", "softmax", "-p", "shape=64x64", "--phase", "backward", "--on", "T4"
    ).out  # fmt: skip


def test_what_lies_far_outside_in_a_workload_is_listed_and_the_rest_predicted(main: Command, tmp_path: Path) -> None:
    path = tmp_path / "far.yaml"
    path.write_text(
        "schema: 1\nname: far\ncases:\n- {op: matmul, params: {M: 512, N: 512, K: 512}}\n"
        "- {op: matmul, params: {M: 4194304, N: 64, K: 64}, count: 3}\n"
        "- {op: matmul, params: {M: 64, N: 64, K: 64, dtype: bfloat16}}\n"
    )
    found = predict(str(path), on="T4")
    assert [one.case.params["M"] for one in found.cases] == [512]
    assert len(found.skipped) == 2
    done = main("predict", str(path), "--on", "T4", "--json")
    assert len(done.objects) == 1
    assert "(3 calls): it lies far outside" in done.err
    assert len(predict(str(path), on="T4", far=True).cases) == 2


def test_probes_are_listed_and_a_file_of_probes_adapts_the_model(tmp_path: Path) -> None:
    assert probe_workload("L4", count=2).count('"op":') == 2 * len(find_predictor().models)
    table = tmp_path / "probes.csv"
    guess = predict("linear", SIZES, on="L4").cases[0].prediction.seconds
    rows = "".join(f"L4,1,{m},1024,512,{2e3 * guess * m / 2048}\n" for m in (1024, 1536, 2048, 3072, 4096))
    table.write_text("device,B,M,N,K,ms\n" + rows)
    predictor, count = probe("L4", tables=[table])
    assert count == 5
    path = save_predictor(predictor, tmp_path / "adapted.npz")
    (after,) = predict("linear", SIZES, on="L4", model=path).cases
    assert after.prediction.basis == "probes"
    assert after.prediction.seconds > 1.3 * guess
    with pytest.raises(UserError, match="no probe is of NVIDIA A10"):
        probe("A10", tables=[table])


def test_probes_of_a_chip_are_used_by_whatever_name_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opmark.api.predict.model_folder", lambda: tmp_path)
    table = tmp_path / "probes.csv"
    table.write_text("device,op,rows,columns,ms\nH100 PCIe,softmax,4096,4096,0.25\nH100 PCIe,softmax,2048,4096,0.13\n")
    predictor, _ = probe("H100 PCIe", tables=[table])
    save_predictor(predictor, tmp_path / "torch-cuda.npz")
    for name in ("NVIDIA H100 PCIe", "h100-pcie", "H100"):  # of several that match, the one with probes
        assert "NVIDIA H100 PCIe" in find_predictor(on=name).probes
    assert not find_predictor(on="H200").probes
    (one,) = predict("softmax", {"shape": [[4096, 4096]]}, on="H100").cases
    assert one.prediction.basis == "probes"


def test_a_backend_is_learnt_from_what_was_measured_here(
    main: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm")
    db = tmp_path / "store.db"
    calibrated, measured = list[int | None](), list[list[Entry]]()

    def calibrate_quickly(*, threads: int | None, **_: object) -> None:
        calibrated.append(threads)
        with closing(open_store(db)) as store:
            environments = {one.environment for one in store.figures() if threads in (None, one.threads)}
            (facts,) = facts_of(store, environments).values()
            peaks = Peaks("a processor", "made up", {"float32": 1e11}, [Level("memory", 1e10)])
            store.keep("peaks", findings_key(facts), "now", peaks)

    def run_and_note(entries: list[Entry], *args: Any, **options: Any) -> None:
        measured.append(entries)
        run_entries(entries[:3], *args, **options)

    monkeypatch.setattr("opmark.api.predict.calibrate", calibrate_quickly)
    monkeypatch.setattr("opmark.api.predict.run_entries", run_and_note)
    said: list[str] = []
    for threads in (1, 1, 2):  # a batch each
        assert measure_for_training("numpy-cpu", 0.01, db=db, threads=threads, say=said.append) == len(measured[0])
    assert any(f"{len(measured[0])} cases measured, the store has 3 shapes" in one for one in said)
    assert calibrated == [1, 2]
    assert not [one for one in measured[1] if one in measured[0][:3]]
    done = main("predict", "train", "--backend", "numpy-cpu", "--db", str(db))
    assert done.code == 2
    assert "too few records" in done.err
    assert "hint: " in done.err


def test_probes_do_not_adapt_a_model_of_one_chip(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    table = tmp_path / "linear.csv"
    rows = "".join(f"T4,1,{32 + 8 * size},64,{16 * size},{0.02 + size / 1e4}\n" for size in range(1, 41))
    table.write_text(f"device,B,M,N,K,ms\n{rows}")
    save_predictor(train_from_files([table], say=lambda line: None), tmp_path / "own.npz")
    with pytest.raises(UserError, match="cannot adapt a model of Tesla T4: how chips differ is learnt from three"):
        probe("T4", tables=[table], model=tmp_path / "own.npz")
    with pytest.raises(UserError, match="cannot adapt"):
        probe_workload("T4", model=tmp_path / "own.npz")


def test_what_a_study_of_knobs_measured_is_not_learnt(tmp_path: Path) -> None:
    settings = settings_for(MeasureOptions(effort="quick", threads=2, processes=1))[0]
    case = Case.of("exp", {"shape": [8], "dtype": "float32"}, "forward")
    record = Record(Task(case, "null-device", "null", settings), "ok", started="2030-01-01T00:00:00.000+00:00")
    settings = msgspec.structs.replace(settings, process=1)
    changed = [msgspec.structs.replace(settings, configuration=(("tile", 1),)),
               msgspec.structs.replace(settings, resources=Resources(sms=8)), settings]  # fmt: skip
    tasks = [msgspec.structs.replace(record.task, settings=one) for one in changed]
    db, empty = tmp_path / "store.db", Plan((), ())
    with closing(open_store(db, create=True)) as store:
        store_all(store, new_run(empty, "run"), [], [record])
        studied = [msgspec.structs.replace(record, task=task) for task in tasks]
        store_all(store, msgspec.structs.replace(new_run(empty, "study"), session="factors-1"), [], studied)
        assert len(_figures_of(store, "null-device", None)) == 2
        assert len(_figures_of(store, "null-device", 1)) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "--op", "softmax"), "--op says what to measure"),
        (("train", "--from", ".", "--budget", "3m"), "--from learns from tables"),
        (("train", "--budget", "soon"), "expected a duration, got `soon`"),
        ((*MATMUL[1:], "--on", "T4", "--quantity", "watts"), "--quantity: expected one of"),
        (("train", "--quantity", "watts"), "--quantity: expected one of"),
        (("train", "--budget", "3m", "--quantity", "watts"), "--quantity: expected one of"),
        (("train", "--backend", "nosuch"), "no backend named `nosuch`"),
        ((*MATMUL[1:], "--on", "T4", "--quantity", "energy"), "no model has learnt the energy of T4"),
    ],
)
def test_options_that_do_not_go_together_are_said(main: Command, arguments: tuple[str, ...], message: str) -> None:
    done = main("predict", *arguments)
    assert done.code == 2
    assert message in done.err


def test_the_energy_of_several_calls_is_added_up_and_no_launch_hides_it(
    main: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = find_predictor()
    predictor.quantity = "energy"
    monkeypatch.setattr("opmark.api.predict.find_predictor", lambda *_: predictor)
    path = tmp_path / "two.yaml"
    path.write_text("schema: 1\nname: two\ncases:\n- {op: relu, params: {shape: [[512, 512]]}, count: 3}\n")
    (line,) = [one for one in main("predict", str(path), "--on", "T4").err.splitlines() if one.startswith("together")]
    assert line.endswith("J)")


def test_energy_is_measured_where_energy_is_to_be_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[RunRequest] = []
    monkeypatch.setattr("opmark.api.predict.run_request", asked.append)
    for quantity in (None, "host_time", "energy"):
        run_entries([Entry("relu", {"shape": [[64, 64]]})], "numpy-cpu", quantity=quantity)
    assert [tuple(one.quantity) for one in asked] == [(), ("host_time",), ("latency", "energy")]
    with pytest.raises(UserError, match="the store has no energy of numpy-cpu") as refused:
        samples_of_figures([], {}, {}, "numpy-cpu", "energy")
    assert "--quantity energy --budget 10m" in str(refused.value.hint)


def test_tables_and_probes_are_of_the_backend_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opmark.prediction.library.model_folder", lambda: tmp_path)
    monkeypatch.setattr("opmark.api.predict.train", lambda *_, backend, **__: backend)
    table = tmp_path / "linear.csv"
    table.write_text("device,B,M,N,K,ms\nL4,1,1024,1024,512,0.1\n")
    assert str(train_from_files([table], say=lambda _: None)) == "torch-cuda"
    assert str(train_from_files([table], backend="triton-cuda", say=lambda _: None)) == "triton-cuda"
    with pytest.raises(UserError, match="no model was trained for the times of triton-cuda"):
        probe("L4", backend="triton-cuda", tables=[table])


def test_here_is_the_machine_that_was_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = find_predictor()
    predictor.data_hash = "of my own"
    for model in predictor.models.values():
        model.own = {"Tesla T4": model.own["Tesla T4"]}
    monkeypatch.setattr("opmark.api.predict.find_predictor", lambda *_: predictor)
    found = predict("linear", SIZES, on="here")
    assert (found.chip, found.cases[0].prediction.basis) == ("Tesla T4", "measured")


def test_a_model_is_predicted_as_a_whole_with_launches_views_and_fusion(main: Command) -> None:
    pytest.importorskip("torch")
    eager = predict("model:two-towers", {"size": "small"}, on="T4")
    assert eager.whole is not None
    assert eager.whole.views > 0
    assert eager.whole.low < eager.whole.seconds < eager.whole.high
    assert eager.whole.seconds <= eager.alone + eager.whole.views * eager.whole.launch
    fused = predict("model:two-towers", {"size": "small"}, on="T4", backend="torch-compile-cuda").whole
    assert fused is not None
    assert fused.calls < fused.made == eager.whole.calls
    assert fused.seconds < eager.whole.seconds
    done = main("predict", "model:two-towers", "-p", "size=small", "--on", "T4")
    assert "as a whole" in done.err
    assert "views in their order" in done.err
    *_, last = main("predict", "model:two-towers", "-p", "size=small", "--on", "T4", "--json").objects
    assert last["whole"]["calls"] == eager.whole.calls


def test_calls_that_cannot_be_predicted_are_not_taken_for_fused_ones() -> None:
    pytest.importorskip("torch")
    whole = predict("model:bert-base", size="small", on="T4", far=True).whole
    assert whole is not None
    assert "embedding" in whole.unknown
    assert whole.calls == whole.made


def test_candidates_for_probes_are_the_calls_that_were_learnt() -> None:
    calls = [sizes for _, sizes in random_calls(20, np.random.default_rng(8), ["conv2d"])]
    chips = {"a": ChipFigures("a", 1e13, 1e12, 80, 4e6, 250.0, 1.4e9, 12.0)}
    again = _calls(samples_of(calls, ["a"] * 20, [1.0] * 20, chips))
    assert {one.stride for one in calls} == {1, 2}
    assert [one.stride for one in again] == [one.stride for one in calls]
