"""What a person asks for, in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmark.errors import InvalidFile, InvalidParameter, UnknownName, UserError
from opmark.plugin.registry import operator
from opmark.runner import selection
from opmark.runner.selection import default_backends, parse_params, select_cases
from opmark.schema import Case
from opmark.schema.options import Selection


def cases(
    *ops: str,
    params: dict[str, object] | None = None,
    sizes: tuple[str, ...] = (),
    phases: tuple[str, ...] = (),
    workload: Path | None = None,
    suite: str | None = None,
    wrt: tuple[str, ...] = (),
    call: dict[str, object] | None = None,
) -> list[Case]:
    chosen = Selection(
        ops, params=params, phase=phases, workload=workload, suite=suite, wrt=wrt, size=sizes, **call or {}
    )  # type: ignore[arg-type]
    return select_cases(chosen).cases


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "schema: 1\nname: mine\ncases:\n"
        "  - {op: exp, params: {shape: [4]}, phases: [forward, backward]}\n"
        "  - {op: add, params: {shape: [4]}}\n"
    )
    return path


# Cases.


def test_an_operator_alone_is_its_typical_size_forward() -> None:
    (case,) = cases("matmul")
    assert case == Case.of("matmul", operator("matmul").complete({"M": 1024, "N": 1024, "K": 1024}), "forward")


def test_lists_multiply() -> None:
    found = cases("matmul", params={"M": 256, "N": 256, "K": [64, 128], "dtype": ["float32", "bfloat16"]})
    assert [(case.params["K"], case.params["dtype"]) for case in found] == [
        (64, "float32"), (64, "bfloat16"), (128, "float32"), (128, "bfloat16"),
    ]  # fmt: skip


def test_several_operators_sizes_and_phases_multiply() -> None:
    found = cases("exp", "softmax", sizes=("small", "typical", "large"), phases=("forward", "backward"))
    assert len(found) == 12
    assert [case.op for case in found] == ["exp"] * 6 + ["softmax"] * 6


def test_parameters_go_on_top_of_a_size() -> None:
    (case,) = cases("matmul", params={"K": 7}, sizes=("small",))
    assert (case.params["M"], case.params["K"]) == (128, 7)


def test_a_parameter_that_has_a_default_leaves_the_size_typical() -> None:
    (case,) = cases("matmul", params={"dtype": "float64"})
    assert (case.params["M"], case.params["dtype"]) == (1024, "float64")


def test_a_size_that_is_given_in_part_is_not_filled_in_silently() -> None:
    with pytest.raises(UserError, match="needs `N`, `K`") as caught:
        cases("matmul", params={"M": 4})
    assert "-p N=" in (caught.value.hint or "")


def test_an_alias_is_the_operator() -> None:
    assert cases("mm") == cases("matmul")


def test_the_cases_of_a_workload_keep_their_phases(workload: Path) -> None:
    assert [(case.op, case.phase) for case in cases(workload=workload)] == [
        ("exp", "forward"), ("exp", "backward"), ("add", "forward"),
    ]  # fmt: skip


def test_a_phase_chooses_among_the_cases_of_a_workload(workload: Path) -> None:
    assert [(case.op, case.phase) for case in cases(workload=workload, phases=("backward",))] == [("exp", "backward")]


def test_a_phase_that_no_case_has_is_a_mistake(workload: Path) -> None:
    workload.write_text("schema: 1\nname: mine\ncases: [{op: exp, params: {shape: [4]}}]\n")
    with pytest.raises(UserError, match="no case has the phase backward"):
        cases(workload=workload, phases=("backward",))


def test_a_suite_is_found_by_its_name() -> None:
    assert {"add", "matmul", "conv2d"} <= {case.op for case in cases(suite="quick")}
    with pytest.raises(UnknownName, match="no suite named `quik`") as caught:
        cases(suite="quik")
    assert "`quick`" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("ops", "with_workload", "suite", "got"),
    [
        ((), False, None, "nothing"),
        (("exp",), True, None, "operators and a workload"),
        (("exp",), False, "quick", "operators and a suite"),
        ((), True, "quick", "a workload and a suite"),
    ],
)
def test_it_is_either_operators_or_a_workload_or_a_suite(
    workload: Path, ops: tuple[str, ...], with_workload: bool, suite: str | None, got: str
) -> None:
    with pytest.raises(UserError) as caught:
        cases(*ops, workload=workload if with_workload else None, suite=suite)
    assert caught.value.message.endswith(f"got {got}")
    assert "--suite quick" in (caught.value.hint or "")


@pytest.mark.parametrize("given", [{"params": {"M": 1}}, {"call": {"args": [1]}}, {"wrt": ("x",)}])
def test_a_workload_takes_no_parameters_no_arguments_and_no_gradients(workload: Path, given: dict[str, object]) -> None:
    with pytest.raises(UserError, match="a workload brings its own"):
        cases(workload=workload, **given)  # type: ignore[arg-type]


# Gradients of some inputs.


def test_who_names_gradients_wants_the_backward_phase() -> None:
    assert [(case.phase, case.wrt) for case in cases("matmul", wrt=("b",))] == [("backward", ("b",))]


def test_a_forward_phase_has_no_gradients_to_choose_from() -> None:
    found = cases("matmul", phases=("forward", "backward", "both"), wrt=("a",))
    assert [(case.phase, case.wrt) for case in found] == [("forward", ()), ("backward", ("a",)), ("both", ("a",))]


def test_all_gradients_by_name_are_the_same_case_as_all_without_a_name() -> None:
    assert cases("matmul", phases=("backward",), wrt=("b", "a")) == cases("matmul", phases=("backward",))


def test_the_order_in_which_gradients_are_named_does_not_matter() -> None:
    one, other = (cases("layer_norm", wrt=wrt) for wrt in (("x", "weight"), ("weight", "x")))
    assert [case.id for case in one] == [case.id for case in other]


def test_an_input_without_a_gradient_is_a_mistake() -> None:
    with pytest.raises(UserError) as caught:
        cases("embedding", wrt=("indices",))
    assert "indices" in caught.value.message
    assert caught.value.hint


def test_an_unknown_phase_is_named_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="no phase named `foward`") as caught:
        cases("exp", phases=("foward",))
    assert "`forward`" in (caught.value.hint or "")


def test_an_unknown_size_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match="`smal`") as caught:
        cases("exp", sizes=("smal",))
    assert "`small`" in (caught.value.hint or "")


def test_a_mistake_in_a_workload_names_the_file(workload: Path) -> None:
    workload.write_text("schema: 1\nname: mine\ncases: [{op: exq}]\n")
    with pytest.raises(InvalidFile, match=r"mine\.yaml: \$\.cases\[0\]\.op: no operator named `exq`"):
        cases(workload=workload)


def test_the_default_is_torch_where_there_is_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, expected in ((object(), ["torch-cpu"]), (None, ["numpy-cpu"])):
        monkeypatch.setattr(selection, "find_spec", lambda name, found=found: found)
        assert default_backends() == expected


def _called(name: str) -> Case:
    return Case.of(name, {"args": ["4 float32"], "kwargs": {}, "build": None}, "forward")


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        (["exp"], ["torch-cpu"]),
        (["exp", "matmul"], ["torch-cpu"]),
        (["torch.exp"], ["torch-cpu"]),
        (["numpy.exp"], ["numpy-cpu"]),
        (["scipy.special.erf"], ["numpy-cpu"]),
        (["jax.numpy.exp"], ["jax-cpu"]),
        (["jax.numpy.exp", "jax.numpy.log"], ["jax-cpu"]),
        (["jax.numpy.exp", "numpy.exp"], ["jax-cpu", "numpy-cpu"]),
        (["numpy.exp", "torch.exp"], ["torch-cpu", "numpy-cpu"]),
        (["exp", "numpy.exp"], ["torch-cpu", "numpy-cpu"]),
        (["mine.module:function"], ["torch-cpu"]),
        (["opinfo:add"], ["torch-cpu"]),
    ],
)
def test_a_callable_of_another_framework_runs_on_that_one(
    ops: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "find_spec", lambda name: object())
    asked = [_called(op) if set(op) & set(".:") else cases(op)[0] for op in ops]
    assert default_backends(asked) == expected


def test_without_torch_a_callable_of_torch_still_asks_for_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the record says that it is missing."""
    monkeypatch.setattr(selection, "find_spec", lambda name: None)
    assert default_backends([_called("torch.exp")]) == ["torch-cpu"]
    assert default_backends([_called("numpy.exp")]) == ["numpy-cpu"]
    assert default_backends(cases("exp")) == ["numpy-cpu"]


def test_a_device_is_never_taken_unasked() -> None:
    asked = [*cases("exp"), *map(_called, ("torch.exp", "jax.numpy.exp", "numpy.exp", "mine:f"))]
    assert all(name.endswith("-cpu") for name in default_backends(asked))


# Parameters as written on a command line.


def test_values_are_typed_by_the_operator() -> None:
    assert parse_params(["matmul"], ["M=256", "K=64,128", "dtype=float32,bfloat16"]) == {
        "M": [256],
        "K": [64, 128],
        "dtype": ["float32", "bfloat16"],
    }


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("32x64", [[32, 64]]),
        ("32x64,8", [[32, 64], [8]]),
        ("[32,64],[8,8]", [[32, 64], [8, 8]]),
        ("[32, 64]", [[32, 64]]),
        ("(2,3)", [[2, 3]]),
    ],
)
def test_commas_inside_brackets_do_not_split(text: str, shapes: list[list[int]]) -> None:
    assert parse_params(["exp"], [f"shape={text}"]) == {"shape": shapes}


@pytest.mark.parametrize("text", ["M", "M=", "=4", ""])
def test_a_parameter_needs_a_name_and_a_value(text: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        parse_params(["matmul"], [text])
    assert caught.value.hint


def test_a_parameter_is_given_once() -> None:
    with pytest.raises(InvalidParameter, match="`M` is given twice") as caught:
        parse_params(["matmul"], ["M=1", "M=2"])
    assert "-p M=A,B" in (caught.value.hint or "")


def test_every_operator_must_know_the_parameter() -> None:
    with pytest.raises(InvalidParameter, match="operator `exp` has no parameter `M`"):
        parse_params(["matmul", "exp"], ["M=4"])


def test_an_unknown_parameter_is_named_with_the_nearest() -> None:
    with pytest.raises(InvalidParameter, match="operator `exp` has no parameter `shap`") as caught:
        parse_params(["exp"], ["shap=4"])
    assert "`shape`" in (caught.value.hint or "")


def test_parameters_go_with_operators() -> None:
    with pytest.raises(UserError, match="-p goes with operators"):
        parse_params([], ["M=4"])


# Callables and patterns.


def test_a_callable_is_called_with_arguments_and_parameters_of_its_own() -> None:
    found = cases(
        "torch.add", params={"n": [8, 16]}, call={"args": ["{n}x4 float32", "{n}x4 float32"], "kwargs": {"alpha": 2}}
    )
    assert [case.op for case in found] == ["torch.add"] * 2
    assert [case.params["args"] for case in found] == [["8x4 float32"] * 2, ["16x4 float32"] * 2]


def test_a_callable_without_arguments_is_a_mistake() -> None:
    with pytest.raises(InvalidParameter, match="needs arguments"):
        cases("torch.add")


def test_an_operator_of_the_catalogue_with_arguments_is_a_mistake() -> None:
    with pytest.raises(InvalidFile, match="takes parameters, not args"):
        cases("exp", call={"args": ["4 float32"]})


def test_parameters_of_a_callable_are_read_as_they_would_be_in_a_file() -> None:
    found = parse_params(["torch.add"], ["n=8,16", "dt=float32", "shape=[2, 3],[4]", "on=true", "eps=1e-5", "no=null"])
    assert found == {
        "n": [8, 16], "dt": ["float32"], "shape": [[2, 3], [4]], "on": [True], "eps": [1e-5], "no": [None],
    }  # fmt: skip


def test_a_pattern_is_every_operator_that_it_matches() -> None:
    found = {case.op for case in cases("layer_n*", "rms_nor?")}
    assert {"layer_norm", "rms_norm"} <= found
    assert cases("layer_nor?", sizes=("small",)) == cases("layer_norm", sizes=("small",))


def test_a_pattern_that_matches_nothing_is_a_mistake() -> None:
    with pytest.raises(InvalidParameter, match="zzz"):
        cases("zzz*")


# A sample of many cases


@pytest.mark.parametrize("count", [1, 5, 30, 145, 1000])
def test_a_sample_is_of_every_operator_and_the_same_for_the_same_seed(count: int) -> None:
    whole = select_cases(Selection(suite="recsys"))
    found, again, other = (select_cases(Selection(suite="recsys", sample=count), seed).cases for seed in (0, 0, 1))
    ids = [case.id for case in whole.cases]
    places = [ids.index(case.id) for case in found]
    assert len(found) == min(count, len(ids))
    assert places == sorted(set(places)), "in the order of the suite, and none twice"
    assert len({case.op for case in found}) == min(len(found), len({case.op for case in whole.cases}))
    assert found == again
    assert (found == other) == (count >= len(ids))


def test_a_sample_is_said_and_one_that_takes_all_is_not() -> None:
    assert select_cases(Selection(suite="quick", sample=5), 3).left_out == (
        "a sample of 5 of 26 cases, drawn with seed 3",
    )
    assert select_cases(Selection(suite="quick", sample=26)).left_out == ()


def test_parts_are_disjoint_complete_and_the_same_whatever_else_is_selected() -> None:
    every = select_cases(Selection(suite="llm")).cases
    parts = [select_cases(Selection(suite="llm", part=f"{number}/7")).cases for number in range(1, 8)]
    assert sorted(case.id for part in parts for case in part) == sorted(case.id for case in every)
    assert max(map(len, parts)) < 2 * min(map(len, parts))
    some = {case.id for case in select_cases(Selection(suite="llm", phase="forward", part="3/7")).cases}
    assert some <= {case.id for case in parts[2]}
    assert select_cases(Selection(suite="quick", part="3/7")).left_out[0].startswith("part 3/7: ")


@pytest.mark.parametrize(
    ("part", "message"),
    [("0/7", "expected a part K/N"), ("8/7", "there are only 7 parts"), ("2", "expected a part K/N"),
     ("1/99999", "part 1/99999 of 26 cases is empty")],
)  # fmt: skip
def test_a_part_that_does_not_exist_is_refused(part: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        select_cases(Selection(suite="quick", part=part))
