"""Every option of ByteMicroPerf's launch.py: it does what it says, or says what there is instead."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from micro_perf_runs import quickly

from opmark.errors import UserError
from opmark.interop.bytemicroperf import command, machine, options
from opmark.interop.bytemicroperf.machine import make_chip_lookup
from opmark.interop.bytemicroperf.selection import choose_tasks, count_cases, group_items, read_offer
from opmark.plugin.registry import backends

CHIP = "- {chip: %s, source: me, flops: {}, levels: [{name: memory, bandwidth: %s}]}"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    quickly(monkeypatch)


def lines(*arguments: str) -> list[str]:
    return options.remarks(options.parse_options(arguments))


@pytest.mark.parametrize(
    "given",
    [
        ["--disable_parallel"], ["--parallel"], ["--parallel", "4"], ["--numa_balance"], ["--node_rank", "0"],
        ["--master_addr", "localhost"], ["--gloo_port", "1"], ["--backend_port", "1"], ["--server_port", "1"],
        ["--host_port", "1"], ["--device_port", "1"], ["--install_requirements"], ["--activate_venv"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_option_without_an_effect_says_why(given: list[str]) -> None:
    (line,) = lines(*given)
    assert line.startswith(f"{given[0]}: ")
    assert len(line) > len(given[0]) + 20


@pytest.mark.parametrize(
    "given",
    [["--op_defs", "x"], ["--vendor_ops", "x"], ["--server_ip", "x"], ["--node_world_size", "2"]],
    ids=" ".join,
)
def test_an_option_that_cannot_be_had_is_an_error_with_a_way_out(given: list[str]) -> None:
    with pytest.raises(UserError, match=given[0]) as error:
        options.parse_options(given)
    assert error.value.hint


def test_every_option_of_every_generation_is_known() -> None:
    """Each either does something, has a remark, or is refused."""
    acting = {
        "task", "task_dir", "workload", "report_dir", "vendor_path", "show_task_list", "show_hardware_list", "device",
        "compile_only", "disable_profiling", "log_level", "hardware_type", "backend", "numa_node", "env",
        "threads", "allow",
    }  # fmt: skip
    known = set(vars(options.parse_options([])))
    assert known == acting | options._WITHOUT_EFFECT.keys() | options._REFUSED.keys() | {"node_world_size"}


def test_two_names_of_the_hardware_are_one_too_many() -> None:
    with pytest.raises(UserError, match="same thing"):
        options.parse_options(["--hardware_type", "GPU", "--backend", "GPU"])


def test_what_the_parser_does_not_know_ends_with_code_2(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["--tsak", "exp"])
    assert ended.value.code == 2
    assert "opmark micro-perf" in capfd.readouterr().err


def test_help_names_every_option(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(["-h"])
    assert ended.value.code == 0
    text = capfd.readouterr().out
    assert [name for name in vars(options.parse_options([])) if f"--{name}" not in text] == []


@pytest.mark.parametrize(
    ("name", "backend"), [("GPU", "torch-cuda"), ("gpu", "torch-cuda"), ("XPU", "torch-xpu"), ("null", "null"),
                          ("numpy-cpu", "numpy-cpu"), ("Torch-CPU", "torch-cpu")]
)  # fmt: skip
def test_hardware_goes_by_their_names_and_by_ours(name: str, backend: str) -> None:
    assert options.backend_for(name) == backend


def test_the_cpu_is_that_of_the_framework_that_is_there() -> None:
    assert options.backend_for("CPU") in ("torch-cpu", "numpy-cpu")
    assert all(named() in backends() for named in options.HARDWARE.values())


def test_unknown_hardware_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="no hardware named `GPUU`") as error:
        options.backend_for("GPUU")
    assert "`GPU`" in str(error.value.hint)


def test_the_hardware_list(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from opmark.schema import Availability

    found = [Availability(name, "what it is", "no driver" if "cuda" in name else None) for name in backends()]
    monkeypatch.setattr(command, "survey", lambda: found)
    assert command.main(["--show_hardware_list"]) == 0
    said = capfd.readouterr().out.splitlines()
    assert said[0] == "GPU\twhat it is\tnot here: no driver"
    assert {line.split("\t")[0] for line in said} == {*options.HARDWARE, *backends()}


def test_the_task_list_of_what_ships(capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--show_task_list", "--hardware_type", "GPU"]) == 0
    first = dict(line.split("\t") for line in capfd.readouterr().out.splitlines())
    assert first["exp"] == "48 cases"
    assert {"gemm", "gemv", "layernorm", "hash_table"} <= first.keys()
    assert command.main(["--show_task_list"]) == 0
    third = dict(line.split("\t") for line in capfd.readouterr().out.splitlines())
    assert third["exp"] == "54 cases"
    assert {"layer_norm", "flash_attention"} <= third.keys()


def test_the_task_list_has_the_names_of_the_reports_in_both_generations(capfd: pytest.CaptureFixture[str]) -> None:
    point = {"arg_type": "default", "dtype": ["float16", "int8"], "M": 2, "K": 4, "N": 8}
    Path("gemm.json").write_text(json.dumps({"cases": [point]}))
    for hardware in (["--hardware_type", "null"], ["--backend", "null"]):
        assert command.main(["--show_task_list", "--workload", "gemm.json", *hardware]) == 0
        assert capfd.readouterr().out == "gemm\t2 cases\n"
    assert titles("--workload", "gemm.json", "--task", "gemm", v1=False) == ["gemm"]


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", ""])
def test_threads_are_at_least_one(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options.parse_options([f"--threads={text}"])
    assert ended.value.code == 2
    assert "--threads: expected a whole number of at least 1" in capfd.readouterr().err


def test_nothing_is_compiled(capfd: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--task", "exp", "--hardware_type", "GPU", "--compile_only"]) == 0
    assert "nothing to compile" in capfd.readouterr().err
    assert not Path("reports").exists()


WORKLOAD = {"exp": [{"arg_type": "default", "dtype": "float32", "batch_size": 1, "dim_size": 64}]}


@pytest.mark.parametrize(("level", "cases", "remarks"), [("INFO", 1, True), ("warning", 0, True), ("ERROR", 0, False)])
def test_the_level_of_the_log(level: str, cases: int, remarks: bool, capfd: pytest.CaptureFixture[str]) -> None:
    Path("mine.json").write_text(json.dumps(WORKLOAD))
    given = ["--workload", "mine.json", "--hardware_type", "null", "--disable_parallel", "--log_level", level]
    assert command.main(given) == 0
    said = capfd.readouterr()
    assert len(said.out.splitlines()) == cases
    assert ("--disable_parallel" in said.err) == remarks


def titles(*arguments: str, v1: bool = True) -> list[str]:
    given = options.parse_options(arguments)
    items = choose_tasks(read_offer(given.workload, given.task_dir, v1=v1), given.task).items
    return list(dict.fromkeys(item.title(v1=v1) for item in items))


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("exp", ["exp"]),
        ("exp,gemm", ["gemm", "exp"]),
        ("binary_ops", ["add", "sub", "mul", "div"]),
        ("gemm_ops", ["gemm", "gemv", "batch_gemm", "group_gemm"]),
        ("layernorm", ["layernorm"]),
        ("layer_norm", ["layernorm"]),
        ("scatter", ["scatter"]),
        ("index_add", ["index_add"]),
        ("hash_table", ["hash_table"]),
        ("moe_gather,reduce_sum", ["moe_gather", "reduce_sum"]),
        ("h2d_ops", ["host2device", "device2host", "device2device"]),
        ("ccl_ops", ["allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "p2p"]),
        ("all_reduce", ["allreduce"]),
        ("alltoall", ["alltoall"]),
        ("moe_dispatch_tokens", ["moe_dispatch_tokens"]),
    ],
)
def test_tasks_by_name_and_by_group_of_all_generations(task: str, expected: list[str]) -> None:
    found = titles("--task", task)
    assert set(found) == set(expected)


@pytest.mark.parametrize("source", ["--workload", "--task_dir"])
def test_the_user_allows_functions_that_a_workload_may_not_call(
    source: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The hint of the refusal names an option that the command has."""
    path = tmp_path / "w.json"
    call = {"op": "torch.hub.load", "args": ["4 float32"]}
    path.write_text(json.dumps({"schema": 1, "name": "w", "cases": [call]}))
    given = [source, str(path if source == "--workload" else tmp_path), "--show_task_list"]
    if source == "--workload":
        with pytest.raises(UserError, match="is not a function that a workload file may call"):
            command.main(given)
    else:
        command.main(given)
        assert "torch.hub.load" not in capfd.readouterr().out
    assert command.main([*given, "--allow", "torch.hub"]) == 0
    assert "torch.hub.load" in capfd.readouterr().out


def test_all_is_everything() -> None:
    offer = read_offer(None, None, v1=False)
    counted = sum(count for _, count in count_cases(offer, v1=False))
    assert sum(item.cases for item in choose_tasks(offer, "all").items) == counted


def test_where_the_workload_comes_from() -> None:
    one, two = json.dumps(WORKLOAD), json.dumps({"log": WORKLOAD["exp"]})
    assert read_offer(None, None, v1=True).where == "suite bytemicroperf"
    Path("workloads/basic").mkdir(parents=True)
    Path("workloads/one.json").write_text(one)
    Path("workloads/basic/two.json").write_text(two)
    assert titles() == ["log"]
    assert titles("--task_dir", "workloads") == ["log", "exp"]
    assert titles("--workload", "workloads/one.json", "--task_dir", "workloads/basic") == ["exp"]
    Path("workloads/basic/two.json").unlink()
    Path("workloads/basic").rmdir()
    assert titles() == ["exp"]


def test_a_table_is_a_workload_too() -> None:
    Path("mine.csv").write_text("task_name,arg_type,dtype,batch_size,dim_size\nexp,default,float32,4,64\n")
    assert titles("--workload", "mine.csv") == ["exp"]


def test_a_workload_of_our_own_format_will_do() -> None:
    Path("mine.yaml").write_text("schema: 1\nname: mine\ncases:\n- {op: 'exp*', params: {shape: [4, 8]}}\n")
    assert {"exp", "expm1"} <= set(titles("--workload", "mine.yaml"))


def test_a_task_is_measured_in_one_go() -> None:
    items = choose_tasks(read_offer(None, None, v1=True), "all").items
    parts = group_items(items, v1=True)
    assert {part.kind: part.requests for part in parts} == {"compute": {}, "transfer": {}, "ranks": {}}
    assert sum(len(part.entries) for part in parts) == len(items)
    (turns,) = [[entry.op for entry in part.entries] for part in parts if part.kind == "compute"]
    assert [op for i, op in enumerate(turns) if i == 0 or turns[i - 1] != op].count("add") == 1


def placed(*arguments: str, backend: str) -> tuple[dict[str, str | None], list[str]]:
    with machine.apply_placement(options.parse_options(arguments), backend) as said:
        return {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")}, said


@pytest.mark.parametrize(
    ("device", "already", "sees"),
    [
        ("1", None, "1"),
        ("0,1", None, "0,1"),
        ("1", "4,6", "6"),
        ("1,0", "4,6", "6,4"),
        ("0", "GPU-a", "GPU-a"),
        ("all", None, None),
    ],
)
def test_a_device_is_chosen_by_what_a_process_may_see(
    device: str, already: str | None, sees: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if already:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", already)
    found, said = placed("--device", device, backend="torch-cuda")
    assert found["CUDA_VISIBLE_DEVICES"] == sees
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == already
    assert bool(said) == ("," in device or device == "all")


@pytest.mark.parametrize(
    ("device", "backend"), [("1", "numpy-cpu"), ("x", "torch-cuda"), ("-1", "torch-cuda"), ("", "torch-cuda")]
)
def test_a_device_that_is_not_there_is_an_error(device: str, backend: str) -> None:
    with pytest.raises(UserError, match="--device"):
        placed(f"--device={device}", backend=backend)


def test_a_device_beyond_those_that_may_be_seen_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    with pytest.raises(UserError, match="only 2 can be seen"):
        placed("--device", "2", backend="torch-cuda")


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine of two nodes and one without processors. The processor that this process may use is of node 0."""
    mine = min(os.sched_getaffinity(0))
    for node, listed in enumerate((f"{mine}-{mine}", f"{mine + 4096},{mine + 4098}", "")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{listed}\n")
    monkeypatch.setattr(machine, "NODES", tmp_path)
    return mine


@pytest.mark.parametrize("option", ["--numa_node", "--numa"])
def test_a_node_is_its_processors(nodes: int, option: str) -> None:
    before = os.sched_getaffinity(0)
    for asked, expected in (("0", {nodes}), ("0,1", {nodes}), ("-1", before)):
        with machine.apply_placement(options.parse_options([f"{option}={asked}"]), "null"):
            assert os.sched_getaffinity(0) == expected
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("asked", "says"), [("7", "its nodes are 0, 1, 2"), ("x", "its nodes are"), ("2", "name another"), ("1", "leave")]
)
def test_a_node_that_will_not_do_is_an_error(nodes: int, asked: str, says: str) -> None:
    with pytest.raises(UserError, match="--numa_node") as error:
        placed("--numa_node", asked, backend="null")
    assert says in str(error.value.hint)


def test_variables_of_a_file_are_set_unless_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    from opmark.schema import Availability

    facts = {"gpu": "Some GPU"}
    monkeypatch.setattr(machine, "probe", lambda infos: [Availability("null", "", None, facts)])
    monkeypatch.setenv("OPMARK_TEST_B", "mine")
    common = {"OPMARK_TEST_A": "1", "OPMARK_TEST_B": "2", "OPMARK_TEST_C": 3}
    Path("env.json").write_text(json.dumps({"common": common, "Some GPU": {"OPMARK_TEST_A": "4"}, "Other": {"X": "5"}}))
    names = ("OPMARK_TEST_A", "OPMARK_TEST_B", "OPMARK_TEST_C")
    with machine.apply_placement(options.parse_options(["--env", "env.json"]), "null"):
        assert [os.environ.get(name) for name in names] == ["4", "mine", "3"]
    assert [os.environ.get(name) for name in names] == [None, "mine", None]


def test_a_file_of_variables_that_is_none_is_an_error() -> None:
    Path("env.json").write_text('{"OMP_NUM_THREADS": "8"}')
    with pytest.raises(UserError, match=r"env\.json"):
        placed("--env", "env.json", backend="null")


def bandwidth(path: str, facts: dict[str, str], said: list[str] | None = None) -> float | None:
    found = make_chip_lookup(Path(path), [].append if said is None else said.append)(facts)
    return found.levels[-1].bandwidth if found else None


def test_a_chip_of_our_own_format() -> None:
    Path("one.yaml").write_text("schema: 1\nchips:\n" + CHIP % ("A", 2.0e12))
    said: list[str] = []
    assert bandwidth("one.yaml", {"gpu": "A"}, said) == 2e12
    assert said == []


def test_the_only_chip_of_a_file_is_taken_for_what_ran_but_not_without_a_word() -> None:
    Path("one.yaml").write_text("schema: 1\nchips:\n" + CHIP % ("A", 2.0e12))
    said: list[str] = []
    look = make_chip_lookup(Path("one.yaml"), said.append)
    assert [peaks.chip for peaks in (look({"gpu": "B"}), look({"gpu": "B", "driver": 2})) if peaks] == ["A", "A"]
    assert said == ["--vendor_path one.yaml: the utilisation is against `A`, but `B` was measured"]


def test_of_several_chips_it_is_the_one_that_ran() -> None:
    Path("two.yaml").write_text("schema: 1\nchips:\n" + CHIP % ("A", 2.0e12) + "\n" + CHIP % ("B", 3.0e12))
    said: list[str] = []
    assert bandwidth("two.yaml", {"gpu": "B"}, said) == 3e12
    assert bandwidth("two.yaml", {"gpu": "C"}, said) is None
    assert "none of its 2 chips is `C`: it has A, B;" in said[0]


def test_a_file_of_vendor_zoo_decides_the_utilization(capfd: pytest.CaptureFixture[str]) -> None:
    Path("A800.json").write_text(
        json.dumps(
            {
                "SKU参数": {"厂商": "NVIDIA", "型号": "A800"},
                "内存参数": {"内存": {"内存类型": "HBM2e", "内存容量(GB)": 80, "内存带宽(GB/s)": 2039}},
            }
        )
    )
    Path("mine.json").write_text(json.dumps(WORKLOAD))
    given = ["--workload", "mine.json", "--hardware_type", "null", "--vendor_path", "A800.json"]
    assert command.main(given) == 0
    report = json.loads(Path("reports/null/exp/result-float32.json").read_text())
    (found,) = report["Performance"]
    against = f"the utilisation is against `NVIDIA A800`, but `{report['Device Info']}` was measured"
    assert against in report["Notes"]
    assert capfd.readouterr().err.count(against) == 1
    share = 100 * found["Kernel bandwidth(GB/s)"] / 2039
    assert found["Bandwidth Utilization(%)"] == pytest.approx(share, rel=1e-2)


def test_a_file_without_a_chip_is_an_error() -> None:
    Path("mine.json").write_text(json.dumps(WORKLOAD))
    with pytest.raises(UserError, match="describes no chip"):
        make_chip_lookup(Path("mine.json"), print)
