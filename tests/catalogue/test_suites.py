"""The shipped suites: every case can be built, flops agree with torch's, and no operator of opperf is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any, NamedTuple

import pytest

from opmark.catalogue.expansion import expand
from opmark.catalogue.workload_file import suite, suites
from opmark.errors import Unsupported, UserError
from opmark.plugin import Operator
from opmark.plugin.param import Params
from opmark.plugin.registry import operator, operators_like
from opmark.schema import Case
from opmark.schema.tensor import sizeof

FILES = sorted(f.name for f in (files("opmark.catalogue") / "suites").iterdir() if f.name.endswith((".yaml", ".json")))
SUITES = {workload.name: workload for workload in suites()}
BUILT = [w.name for w in SUITES.values() if not any(":" in entry.op for entry in w.cases)]
"""Suites of catalogue operators; the others hold a framework's own operators, whose cost only the framework knows."""

PUBLISHED = ("bytemicroperf", "llm", "opperf", "param", "vision")
"""Suites whose shapes come from other systems: each entry names its source."""

LARGEST = 64 * 2**30
LARGER = {("bytemicroperf", "hash_table"): "up to 134 million rows of 1024, as published; no device holds them"}
SAMPLE = 400


@cache
def cases(name: str) -> tuple[Case, ...]:
    """Return the cases of a suite, one for each operator and its parameters."""
    found = expand(SUITES[name], operator, f"suite {name}", operators_like)
    return tuple({(case.op, repr(case.params)): case for case in reversed(found)}.values())


# Descriptions


@pytest.mark.parametrize("file", FILES)
def test_has_the_name_of_its_file_and_a_description(file: str) -> None:
    name = file.rpartition(".")[0]
    workload = suite(name)
    assert workload.name == name
    assert len(workload.description) > 20


@pytest.mark.parametrize("name", sorted({*PUBLISHED} & {*SUITES}))
def test_published_shapes_say_where_they_come_from(name: str) -> None:
    assert [entry.op for entry in SUITES[name].cases if not entry.source] == []


def test_no_suite_is_missing() -> None:
    others = {"fused", "quick", "recsys", "sweep", "torch-all"}
    assert {*PUBLISHED, *others} <= set(SUITES)


# Every case can be built


@pytest.mark.parametrize("name", BUILT)
def test_every_case_can_be_built(name: str) -> None:
    wrong = [f"{case.op} {case.params}: {why}" for case in cases(name) for why in _faults(case, of=name)]
    assert wrong == []


@pytest.mark.parametrize("name", BUILT)
def test_every_phase_exists(name: str) -> None:
    found = expand(SUITES[name], operator, f"suite {name}", operators_like)
    whys = (
        (case, operator(case.op).why_no_phase(case.params, case.phase)) for case in found if case.phase != "forward"
    )
    assert [f"{case.op} {case.params}: {why}" for case, why in whys if why] == []


def _faults(case: Case, *, of: str) -> Iterator[str]:
    op = operator(case.op)
    op.check_rules(case.params)
    if op.complete(case.params) != dict(case.params):
        yield "parameters are not complete"
    total = 0
    for name, spec in op.inputs(case.params).items():
        total += spec.nbytes
        if not all(isinstance(n, int) and n > 0 for n in spec.shape):
            yield f"{name} has shape {spec.shape}"
        if not (isfinite(spec.low) and isfinite(spec.high) and spec.low <= spec.high):
            yield f"{name} has values from {spec.low} to {spec.high}"
    yield from _faulty_costs(op, case)
    cost = op.phase_cost(case.params, "forward")
    total += cost.bytes_written if cost else 0
    if total > LARGEST and (of, case.op) not in LARGER:
        yield f"takes {total / 2**30:.0f} GiB"


def _faulty_costs(op: Operator, case: Case) -> Iterator[str]:
    if op.foreign:
        return
    cost = op.phase_cost(case.params, "forward")
    if op.view:
        if cost is not None:
            yield f"is a view and costs {cost}"
        return
    if cost is None:
        yield "costs nobody knows what"
    backward = op.phase_cost(case.params, "backward") if op.gradients else None
    for one in filter(None, (cost, backward)):
        numbers = one.flops or 0, one.bytes_read, one.bytes_written
        nothing = one.bytes_moved == 0 and case.op != "barrier"
        if not all(isfinite(n) and n >= 0 for n in numbers) or nothing:
            yield f"costs {one}"


# Flops, compared with torch's counter, which knows matrix products, convolutions and attention

NO_PRODUCTS = {"random", "creation", "optimizer", "diagnostics", "communication", "callable"}
"""Categories without products, or whose cost only the framework knows. Some draw their data on the CPU on every
device, and diagnostics fail on purpose."""

NEEDS_DATA = {
    "bincount": "the size of its result depends on the values",
    "ctc_loss": "torch has no kernel of it for tensors without data",
    "embedding_bag_rowwise_adagrad_update": "finds the rows that were touched among the values",
    "gaussian_nll_loss": "torch looks whether the variances are positive",
    "lstsq": "torch has no kernel of it for tensors without data",
    "masked_select": "the size of its result depends on the values",
    "nonzero": "the size of its result depends on the values",
    "unique": "the size of its result depends on the values",
}


class Compared(NamedTuple):
    case: Case
    implementation: str
    ours: int
    expected: int
    """Compare with torch's count, allowing for DIFFERENCES."""


Added = Callable[[Params, int], int]
"""added(params, elements of the output) returns the flops that only we count; negative if only torch does."""


def _each(flops: int) -> Added:
    """Return a fixed number for each element of the output."""
    return lambda p, out: flops * out


def _gates(flops: Callable[[Params], int]) -> Added:
    """Return a fixed number for each hidden unit in each step: sums, biases and gates beside the products."""

    def added(p: Params, out: int) -> int:
        layers = p.get("layers", 1) * (2 if p.get("bidirectional") else 1)
        return int(flops(p) * p.get("seq_len", 1) * layers * p["batch"] * p["hidden_size"])

    return added


def _unseen(p: Params) -> int:
    """Return the pairs of a query and a later key, which torch multiplies too, before masking."""
    lengths = p["q_lens"] or [p["q_len"]] * p["batch"]
    return sum(q * (q - 1) // 2 for q in lengths)


def _causal(p: Params, out: int) -> int:
    unseen = p["q_len"] * p["kv_len"] - p["q_len"] * (p["q_len"] + 1) // 2 if p["causal"] else 0
    return int(-4 * p["batch"] * p["heads"] * p["head_dim"] * unseen)


def _flash(p: Params, out: int) -> int:
    return int(-4 * p["q_heads"] * p["head_dim"] * _unseen(p))


def _mla(p: Params, out: int) -> int:
    """Keys and values have different lengths; decoding works on their common compressed vector."""
    values = p["v_dim"] if "v_dim" in p else p["kv_lora_rank"]
    keys = p["rope_dim"] + (p["nope_dim"] if "v_dim" in p else p["kv_lora_rank"])
    return int(-2 * p["heads"] * (keys + values) * _unseen(p))


DIFFERENCES: dict[str, Added] = {
    # A sum with a bias or a matrix, and an activation: one for each element or more. relu costs nothing.
    **dict.fromkeys(("linear", "linear_relu", "linear_add", "addmm", "baddbmm"), _each(1)),
    **dict.fromkeys(("conv_relu", "conv_bn", "conv_bn_relu"), _each(1)),
    "linear_gelu": _each(6),
    **dict.fromkeys(("rnn", "rnn_cell"), _gates(lambda p: 4 if p["nonlinearity"] == "tanh" else 3)),
    **dict.fromkeys(("lstm", "lstm_cell"), _gates(lambda p: 27)),
    **dict.fromkeys(("gru", "gru_cell"), _gates(lambda p: 20)),
    # silu and a product between two layers: `out` is d x hidden, and there are d x intermediate of them.
    "moe_mlp": lambda p, out: 4 * out // p["hidden_size"] * p["intermediate_size"],
    # We count only what is needed: visible pairs, half of a triangular or symmetric matrix.
    "scaled_dot_product_attention": _causal,
    **dict.fromkeys(("flash_attention", "flash_decoding"), _flash),
    **dict.fromkeys(("mla_prefill", "mla_decode"), _mla),
    "trmm": lambda p, out: -p["batch"] * p["k"] * p["n"] ** 2,
    "syrk": lambda p, out: -p["batch"] * p["k"] * p["n"] * (p["n"] - 1),
}


@pytest.fixture(scope="module")
def compared() -> dict[str, list[Compared]]:
    """Return, by operator, the cases of a suite for which torch counts flops, or some of many."""
    torch = pytest.importorskip("torch")
    found: dict[str, list[Compared]] = defaultdict(list)
    for name in BUILT:
        for case in _sample(cases(name)):
            found[case.op] += _counts(torch, case)
    return {op: counts for op, counts in found.items() if counts}


def _sample(all_of_them: tuple[Case, ...]) -> list[Case]:
    """Return the first case of each operator, and an even sample of the rest."""
    counted = [case for case in all_of_them if operator(case.op).category not in NO_PRODUCTS]
    counted = [case for case in counted if case.op not in NEEDS_DATA]
    firsts = {case.op: case for case in reversed(counted)}
    spread = counted[:: max(1, -(-len(counted) // max(1, SAMPLE - len(firsts))))]
    return list({case.id: case for case in [*firsts.values(), *spread]}.values())


def _counts(torch: Any, case: Case) -> Iterator[Compared]:
    op = operator(case.op)
    cost = op.phase_cost(case.params, "forward")
    for implementation in op.implementations_for("torch"):
        counted = 0 if implementation.label == "compiled" else _counted(torch, op, implementation.build, case.params)
        if counted and cost and cost.flops is not None:
            out = cost.bytes_written // sizeof(op.result_dtype(case.params))
            added = DIFFERENCES.get(op.name, _each(0))(case.params, out)
            yield Compared(case, implementation.label, cost.flops, counted + added)


def _counted(torch: Any, op: Operator, build: Any, params: Any) -> int:
    """Return the flops of one call on tensors without data."""
    from torch.utils.flop_counter import FlopCounterMode

    tensors = {
        name: torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device="meta")
        for name, spec in op.inputs(params).items()
    }
    try:
        launch = build(params, **tensors)
    except Unsupported:  # a fused kernel that this device lacks
        return 0
    with FlopCounterMode(display=False) as counter:
        launch()
    return int(counter.get_total_flops())


def test_flops_are_those_that_torch_counts(compared: dict[str, list[Compared]]) -> None:
    wrong = [
        f"{c.case.op} ({c.implementation}) {dict(c.case.params)}: {c.ours} and not {c.expected}"
        for counts in compared.values()
        for c in counts
        if abs(c.ours - c.expected) > 0.02 * c.expected
    ]
    assert wrong == []


def test_enough_operators_are_compared(compared: dict[str, list[Compared]]) -> None:
    assert len(compared) >= 40, sorted(compared)
    assert sum(map(len, compared.values())) >= 500
    assert set(DIFFERENCES) <= set(compared)


def test_operators_that_are_left_out_exist() -> None:
    assert [name for name in NEEDS_DATA if operator(name).name != name] == []


# Every operator of opperf and of DL Operator Benchmarks

OPPERF = """
abs arccos arccosh arcsin arcsinh arctan arctanh argmax_channel BlockGrad cbrt ceil cos cosh degrees erf erfinv exp
expm1 fix flatten floor gamma gammaln identity log log10 log1p log2 logical_not make_loss negative ones_like radians
rcbrt reciprocal relu rint round rsqrt shape_array shuffle sigmoid sign sin sinh size_array softsign sqrt square
stop_gradient tan tanh trunc zeros_like amp_cast cast amp_multicast
broadcast_add broadcast_div broadcast_equal broadcast_greater broadcast_greater_equal broadcast_hypot broadcast_lesser
broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor broadcast_maximum
broadcast_minimum broadcast_minus broadcast_mod broadcast_mul broadcast_not_equal broadcast_plus broadcast_power
broadcast_sub ElementWiseSum elemwise_add elemwise_div elemwise_mul elemwise_sub choose_element_0index reshape_like
dot batch_dot khatri_rao
BilinearSampler GridGenerator random_exponential random_gamma random_generalized_negative_binomial random_normal
random_poisson random_negative_binomial random_pdf_dirichlet random_pdf_exponential random_pdf_poisson
random_pdf_gamma random_pdf_generalized_negative_binomial random_pdf_negative_binomial random_pdf_normal
random_pdf_uniform random_randint random_uniform sample_exponential sample_poisson sample_gamma
sample_generalized_negative_binomial sample_multinomial sample_negative_binomial sample_normal sample_uniform
max max_axis mean min min_axis nanprod nansum norm prod sum sum_axis argmax argmin sort argsort topk
gather_nd one_hot pick ravel_multi_index slice slice_axis slice_like take where
depth_to_space space_to_depth flip reverse swapaxes SwapAxis transpose diag reshape concat stack split
broadcast_axes broadcast_axis broadcast_like broadcast_to expand_dims pad repeat tile
BatchNorm col2im Correlation Dropout Embedding FullyConnected GroupNorm im2col InstanceNorm L2Normalization LayerNorm
LRN SpatialTransformer RNN rnn_relu rnn_tanh lstm gru SoftmaxOutput LinearRegressionOutput LogisticRegressionOutput
MAERegressionOutput SVMOutput
Activation hard_sigmoid SoftmaxActivation LeakyReLU log_softmax softmax softmin Softmax
Pooling ROIPooling Convolution Deconvolution
adam_update ftml_update ftrl_update lamb_update_phase1 lamb_update_phase2 mp_nag_mom_update mp_sgd_mom_update
mp_sgd_update nag_mom_update signum_update rmsprop_update rmspropalex_update sgd_mom_update sgd_update signsgd_update
multi_sgd_update multi_sgd_mom_update multi_mp_sgd_update multi_mp_sgd_mom_update preloaded_multi_sgd_update
preloaded_multi_sgd_mom_update preloaded_multi_mp_sgd_update preloaded_multi_mp_sgd_mom_update
ctc_loss CTCLoss MakeLoss smooth_l1 softmax_cross_entropy
all_finite cast_storage clip cumsum fill_element_0index multi_lars SequenceLast SequenceMask SequenceReverse squeeze
reset_arrays multi_all_finite multi_sum_sq add_n UpSampling Custom
linalg_det linalg_extractdiag linalg_extracttrian linalg_gelqf linalg_inverse linalg_makediag linalg_potri
linalg_slogdet linalg_sumlogdiag linalg_syrk linalg_gemm linalg_gemm2 linalg_maketrian linalg_trmm linalg_trsm
linalg_potrf moments
IdentityAttachKLSparseReg unravel_index mp_lamb_update_phase1 mp_lamb_update_phase2 scatter_nd
"""
"""The last line holds operators that opperf lists as not covered."""

DL_OPERATOR_BENCHMARKS = """
Zeros Ones ZerosLike OnesLike Full Arange Add Subtract Multiply Divide Modulo Power Negative IAdd ISub IMul IDiv IMod
Lesser LesserEqual Greater GreaterEqual Equal NotEqual LogicalAnd LogicalOr LogicalXor LogicalNot Exp Log Sqrt Square
Dot BatchDot Sort ArgSort TopK ArgMax ArgMin Dense Flatten Lambda LeakyRelu PRelu Sigmoid Softmax LogSoftmax Tanh Elu
Selu Swish Conv2D Conv2DTranspose Conv1D Conv1DTranspose Dropout BatchNorm MaxPool1D AvgPool1D MaxPool2D AvgPool2D
GlobalMaxPool1D GlobalAvgPool1D GlobalMaxPool2D GlobalAvgPool2D RNN LSTM GRU L1Loss L2Loss
SigmoidBinaryCrossEntropyLoss SoftmaxCrossEntropyLoss CustomOpElementwiseAdd
copy copyto as_in_context asnumpy asscalar astype getitem setitem slice slice_axis take batch_take pick concat split
stack where clip abs normal poisson uniform random randn randint shuffle sum nansum prod nanprod mean max min norm
transpose shape_array size_array reshape reshape_like flatten expand_dims diag tile pad
"""
"""The last three lines hold operators that it describes but does not measure."""

MISSING = {
    "cast_storage": "to sparse storage; no sparse tensors here",
    "Custom": "an operator that the user wrote; as here, package.module:function",
    "CustomOpElementwiseAdd": "an operator that the user wrote; as here, package.module:function",
    "Lambda": "a Python function; as here, package.module:function",
    "IdentityAttachKLSparseReg": "a regulariser of MXNet that opperf does not measure either",
    "copyto": "between devices, which is communication",
    "as_in_context": "between devices, which is communication",
    "asnumpy": "from a device to NumPy, which is communication",
    "asscalar": "from a device to a Python number, which is communication",
    "scatter_nd": "into zeros, by coordinates; index_put writes rows into a copy of a tensor",
    "setitem": "many operators, by what the index is; index_put, scatter_inplace and fill are here",
}
NAMES = sorted({*OPPERF.split(), *DL_OPERATOR_BENCHMARKS.split()})


def test_every_operator_of_opperf_is_in_its_suite() -> None:
    measured = {case.op for case in cases("opperf")}
    found = {name: operator(name).name for name in NAMES if name not in MISSING}
    assert len(found) > 300
    assert {name: ours for name, ours in found.items() if ours not in measured} == {}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_missing(name: str) -> None:
    assert name in NAMES
    with pytest.raises(UserError):
        operator(name)


def test_opperf_measures_gradients_wherever_there_are_any() -> None:
    backward = {entry.op for entry in suite("opperf").cases if "backward" in entry.phases}
    assert [e.op for e in suite("opperf").cases if operator(e.op).gradients and e.op not in backward] == []
    assert all(entry.tags[0] == "opperf" and len(entry.tags) > 1 for entry in suite("opperf").cases)


def test_vision_names_the_model_of_every_case() -> None:
    entries = suite("vision").cases
    assert all(len(entry.tags) == 2 and entry.tags[0] == "vision" for entry in entries)
    assert len({entry.tags[1] for entry in entries}) >= 6
