"""Every option of PARAM's comms.py: it works as in PARAM, says why it has no effect, or is refused."""

from __future__ import annotations

import pytest
from param_comms_runs import request_of

from opmark.errors import UnknownName, UserError
from opmark.interop.param.comms import collectives, options
from opmark.interop.param.comms.collectives import CommsEngine, place_of
from opmark.interop.param.comms.command import main
from opmark.interop.param.comms.options import parse_options, rank_list, remarks

ACTING = {
    "collective", "data_types", "root", "multi_comms", "z", "c", "init_only", "tag", "b", "e", "f", "sb", "ss", "i",
    "o", "pt2pt", "window", "src_ranks", "dst_ranks", "w", "n", "num_coll", "log", "device", "backend", "master_ip",
    "master_port", "ranks", "json", "imbalance", "no_verify", "timeout", "db",
}  # fmt: skip


def test_every_option_acts_or_has_a_remark_or_is_refused() -> None:
    assert set(vars(parse_options([]))) == ACTING | options._WITHOUT_EFFECT.keys() | options._REFUSED.keys()


@pytest.mark.parametrize(
    "given",
    [
        ["--eager-init"], ["--include-0B"], ["--use-device-time"], ["--enable-profiler"], ["--enable-local-report"],
        ["--use-ext-dist"], ["--use-perf-logger", "mine", "other"], ["--size-start-profiler", "1M"],
        ["--ibv-devices", "mlx5_0"], ["--quant-a2a-embedding-dim", "64"], ["--quant-threshold", "1"],
        ["--num-tpu-cores", "1"], ["--c", "0"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_option_without_an_effect_says_why(given: list[str]) -> None:
    (line,) = remarks(parse_options(given))
    assert line.startswith(given[0])
    assert len(line) > len(given[0]) + 15


@pytest.mark.parametrize(
    "given",
    [
        ["--bitwidth", "8"], ["--graph-launches", "2"], ["--init-method", "file:///tmp/x"], ["--mode", "compute"],
        ["--pair"], ["--collective-pair", "all_gather"], ["--overlap-pair-pgs"], ["--nw-stack", "pytorch-xla-tpu"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_option_that_cannot_be_had_is_an_error_with_a_way_out(given: list[str]) -> None:
    with pytest.raises(UserError, match=given[0]) as error:
        parse_options(given)
    assert error.value.hint


@pytest.mark.parametrize(
    "given",
    [
        ["--bitwidth", "32"], ["--graph-launches", "0"], ["--init-method", "env://"], ["--mode", "comms"],
        ["--nw-stack", "pytorch-dist"], ["--c", "1"], ["--c"], ["--c", "0", "--no-verify"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_usual_values_are_taken_without_a_word(given: list[str]) -> None:
    assert remarks(parse_options(given)) == []


@pytest.mark.parametrize("option", ["--n", "--num-coll", "--window", "--multi-comms"])
def test_counts_begin_at_1(option: str) -> None:
    with pytest.raises(UserError, match=f"{option}: expected a whole number of at least 1, got 0"):
        parse_options([option, "0"])


def test_warm_up_and_root_begin_at_0() -> None:
    assert request_of("--w", "0", "--root", "0").warmup == 0
    with pytest.raises(UserError, match="--w: expected a whole number of at least 0, got -1"):
        parse_options(["--w", "-1"])


def test_iterations_as_param_has_them() -> None:
    found = request_of()
    assert (found.warmup, found.iterations, found.per_iteration, found.window) == (5, 5, 1, 100)
    found = request_of("--num-warmup-iters", "2", "--num_iters", "7", "--num-coll-per-iteration", "3")
    assert (found.warmup, found.iterations, found.per_iteration) == (2, 7, 3)


def test_without_z_nothing_blocks_as_in_param() -> None:
    assert not request_of().blocking
    assert not request_of("--z", "0").blocking
    assert request_of("--z", "1").blocking
    assert request_of("--blocking").blocking


def test_collectives_by_comma_by_blank_and_by_letters_alone() -> None:
    assert request_of("--collective", "all_reduce,all_gather", "reduce").collectives == (
        "all_reduce",
        "all_gather",
        "reduce",
    )
    assert request_of("--collectives", "AllToAll,all-gather-base").collectives == ("all_to_all", "all_gather_base")
    assert request_of().collectives == ("all_reduce",)


def test_an_unknown_collective_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no collective named `all_redcue`") as error:
        request_of("--collective", "all_redcue")
    assert "all_reduce" in str(error.value.hint)


def test_data_types_keep_the_name_that_they_were_given() -> None:
    assert request_of("--data-types", "Float,int64,float").dtypes == ("float", "int64")
    with pytest.raises(UnknownName, match="no data type named `float3`"):
        request_of("--data-type", "float3")


def test_pt2pt_takes_the_place_of_collectives() -> None:
    found = request_of("--pt2pt", "one2one", "--collective", "all_gather")
    assert (found.collectives, found.pair) == (("pt2pt",), (0, 1))
    assert request_of("--pt2pt", "pairwise", "--src-ranks", "3", "--dst-ranks", "1", ranks=4).pair == (3, 1)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--src-ranks", "0,1", "--dst-ranks", "2,3"], "opmark does not measure 2 pairs at once"),
        (["--src-ranks", "0,1", "--dst-ranks", "2"], "as many receivers as senders"),
        (["--src-ranks", "1", "--dst-ranks", "1"], "none of them both"),
        (["--src-ranks", "4"], "ranks go from 0 to 3"),
        (["--dst-ranks", "one"], "--dst-ranks: expected ranks, got `one`"),
    ],
)
def test_pairs_that_cannot_be_are_refused(given: list[str], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        request_of("--pt2pt", "pairwise", *given, ranks=4)
    assert error.value.hint


def test_a_pair_needs_two() -> None:
    with pytest.raises(UserError, match="--pt2pt: expected at least 2 ranks, got 1"):
        request_of("--pt2pt", "one2one", ranks=1)


def test_lists_of_ranks() -> None:
    assert rank_list("2", "--src-ranks", 4) == [2]
    assert rank_list("0,2,0", "--src-ranks", 4) == [0, 2]
    assert rank_list("1:3", "--src-ranks", 4) == [1, 2, 3]
    with pytest.raises(UserError, match="expected ranks, got `1:2:3`"):
        rank_list("1:2:3", "--src-ranks", 4)


def test_all_others_take_part_in_incast_and_multicast() -> None:
    assert request_of("--collective", "incast", "--src-ranks", "1:3", ranks=4)
    assert request_of("--collective", "multicast", "--dst-ranks", "0,2,3", "--root", "1", ranks=4)
    with pytest.raises(UserError, match="--src-ranks 1: in incast all ranks but the root take part"):
        request_of("--collective", "incast", "--src-ranks", "1", ranks=4)
    with pytest.raises(UserError, match="in multicast all ranks"):
        request_of("--collective", "multicast", "--dst-ranks", "1,2", ranks=4)


def test_communicators_are_groups_of_equal_size() -> None:
    assert request_of("--multi-comms", "2", ranks=4).group_size == 2
    assert request_of(ranks=4).group_size == 4
    with pytest.raises(UserError, match="3 ranks cannot be divided into 2 equal groups"):
        request_of("--multi-comms", "2", ranks=3)


def test_the_root_is_a_rank_of_its_group() -> None:
    assert request_of("--root", "3", ranks=4).root == 3
    with pytest.raises(UserError, match="--root 2: ranks go from 0 to 1"):
        request_of("--root", "2", "--multi-comms", "2", ranks=4)


def test_an_imbalance_needs_a_collective_with_uneven_parts() -> None:
    assert request_of("--imbalance", "0.5", "--collective", "all_gather_v").imbalance == 0.5
    with pytest.raises(UserError, match="all_reduce has equal parts only"):
        request_of("--imbalance", "0.5")
    with pytest.raises(UserError, match="expected a number from 0 to 1, got 2"):
        request_of("--imbalance", "2", "--collective", "all_gather_v")


@pytest.mark.parametrize("ranks", [0, 99_999_999])
def test_ranks_can_be_too_few_and_too_many(ranks: int) -> None:
    with pytest.raises(UserError, match=f"--ranks: expected a whole number from 1 to 65536, got {ranks}"):
        request_of(ranks=ranks)


def test_a_device_and_its_engine_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collectives, "_has_gpu", lambda: True)
    assert place_of(None, None) == CommsEngine("torch-cuda", "cuda", "nccl")
    monkeypatch.setattr(collectives, "_has_gpu", lambda: False)
    assert place_of(None, None) == CommsEngine("torch-cpu", "cpu", "gloo")
    assert place_of(None, "nccl") == place_of("cuda", None) == place_of("rocm", "nccl")
    assert place_of(None, "gloo") == place_of("cpu", "gloo")


@pytest.mark.parametrize(
    ("device", "engine", "complaint"),
    [
        ("cpu", "nccl", "the engine of --device cpu is gloo"),
        ("cuda", "gloo", "the engine of --device cuda is nccl"),
        (None, "mpi", "--backend mpi"),
        ("tpu", None, "--device tpu"),
    ],
)
def test_an_engine_of_another_device_is_refused(device: str | None, engine: str | None, complaint: str) -> None:
    with pytest.raises(UserError, match=complaint) as error:
        place_of(device, engine)
    assert error.value.hint


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["-h"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert "opmark param comms" in said
    for name in ACTING | options._WITHOUT_EFFECT.keys() | options._REFUSED.keys():
        assert f"--{name.replace('_', '-')}" in said


def test_unknown_and_abbreviated_options_end_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for given in (["--colective", "all_reduce"], ["--begin", "8"], ["--z", "2"]):
        with pytest.raises(SystemExit) as ended:
            main(given)
        assert ended.value.code == 2
    assert "opmark param comms" in capsys.readouterr().err
