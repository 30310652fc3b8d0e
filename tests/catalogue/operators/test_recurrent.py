"""rnn, lstm, gru over sequences, and their single steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from opmark.catalogue.operators.recurrent import (
    GRU_CELL,
    GRU_LAYERS,
    LSTM_CELL,
    LSTM_LAYERS,
    RECURRENT_OPERATORS,
    RNN_CELL,
    RNN_LAYERS,
)
from opmark.catalogue.operators.recurrent import RECURRENT_CELL_OPERATORS as CELLS
from opmark.plugin import Operator
from opmark.plugin.registry import operator
from opmark.schema import Cost

TINY: dict[str, Any] = {"seq_len": 3, "batch": 2, "input_size": 5, "hidden_size": 4, "dtype": "float64"}
STEP = {name: TINY[name] for name in ("batch", "input_size", "hidden_size", "dtype")}
DEEP = {**TINY, "layers": 2, "bidirectional": True}
# Gates, states, flops per unit forwards and backwards.
KINDS = {"rnn": (1, 1, 4, 5), "lstm": (4, 2, 27, 27), "gru": (3, 1, 20, 22)}
every_kind = pytest.mark.parametrize("op", RECURRENT_OPERATORS, ids=lambda op: op.name)


def make(op: Operator, params: dict[str, Any]) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {
        name: spec.make(generator) if spec.make else generator.uniform(spec.low, spec.high, spec.shape)
        for name, spec in op.inputs(params).items()
    }


@pytest.mark.parametrize("op", CELLS, ids=lambda op: op.name)
def test_the_cost_of_a_step_by_hand(op: Operator) -> None:
    """2 sequences of 5 elements, 8 units in all; a gate of 4 units has a matrix of 4 x 5, one of 4 x 4, two biases."""
    gates, states, unit, back = KINDS[op.name.removesuffix("_cell")]
    weights, state = gates * (20 + 16 + 8), states * 8
    products, read = 2 * 2 * gates * (20 + 16), 10 + state + weights
    params = op.complete(STEP)
    assert op.phase_cost(params, "forward") == Cost(products + 8 * unit, 8 * read, 8 * state)
    assert op.phase_cost(params, "backward") == Cost(2 * products + 8 * back, 8 * (read + state), 8 * read)


@every_kind
def test_the_cost_of_a_layer_by_hand(op: Operator) -> None:
    gates, states, unit, back = KINDS[op.name]
    weights, state, put_out = gates * (20 + 16 + 8), states * 8, 3 * 8
    products, read = 2 * 2 * gates * (20 + 16), 30 + state + weights
    params, written = op.complete(TINY), put_out + state
    assert op.phase_cost(params, "forward") == Cost(3 * (products + 8 * unit), 8 * read, 8 * written)
    backward = Cost(3 * (2 * products + 8 * back), 8 * (read + 2 * written), 8 * read)
    assert op.phase_cost(params, "backward") == backward


@every_kind
def test_two_layers_in_both_directions_cost_what_their_matrices_say(op: Operator) -> None:
    """The first layer reads 5 elements, the second one 8: the states of both directions."""
    gates, states, unit, _ = KINDS[op.name]
    cost = op.phase_cost(op.complete(DEEP), "forward")
    first, second = 2 * 2 * gates * (20 + 16), 2 * 2 * gates * (32 + 16)
    assert cost
    assert cost.flops == 3 * 2 * (first + second + 2 * 8 * unit)
    assert cost.bytes_written == 8 * (3 * 16 + 4 * 8 * states)
    assert cost.bytes_read == 8 * (30 + 4 * 8 * states + 2 * gates * (20 + 16 + 8) + 2 * gates * (32 + 16 + 8))


@pytest.mark.parametrize("given", [TINY, DEEP], ids=["one", "deep"])
@pytest.mark.parametrize("op", [RNN_LAYERS, GRU_LAYERS], ids=lambda op: op.name)
def test_products_are_counted_as_torch_counts_them(op: Operator, given: dict[str, Any]) -> None:
    """On some processors lstm is one kernel, for which torch counts nothing."""
    params = op.complete(given)
    inputs = {name: torch.from_numpy(array) for name, array in make(op, params).items()}
    launch = op.implementations_for("torch")[0].build(params, **inputs)
    with FlopCounterMode(display=False) as counter:
        launch()
    units = 8 * 3 * (4 if given is DEEP else 1) * KINDS[op.name][2]
    assert op.cost(params).flops == counter.get_total_flops() + units


@pytest.mark.parametrize("given", [TINY, DEEP], ids=["one", "deep"])
@pytest.mark.parametrize(
    ("op", "module"), [(RNN_LAYERS, torch.nn.RNN), (LSTM_LAYERS, torch.nn.LSTM), (GRU_LAYERS, torch.nn.GRU)]
)
def test_the_vector_of_weights_holds_matrices_first_and_then_biases(op: Operator, module: Any, given: Any) -> None:
    """The order is that of a torch module's parameters."""
    params = op.complete(given)
    layers, both = params["layers"], params["bidirectional"]
    network = module(5, 4, layers, bidirectional=both, dtype=torch.float64)
    names = [f"l{layer}{way}" for layer in range(layers) for way in ("", "_reverse")[: 2 if both else 1]]
    order = [f"{part}_{side}_{name}" for part in ("weight", "bias") for name in names for side in ("ih", "hh")]
    weights = torch.cat([getattr(network, name).detach().reshape(-1) for name in order])
    inputs = make(op, params) | {"weights": weights.numpy()}
    start = [torch.from_numpy(inputs[name]) for name in inputs if name in ("h0", "c0")]
    output, last = network(torch.from_numpy(inputs["x"]), tuple(start) if len(start) > 1 else start[0])
    expected = [output, *(last if isinstance(last, tuple) else [last])]
    for found, due in zip(op.reference(params, **inputs), expected, strict=True):
        np.testing.assert_allclose(found, due.detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("cell", "layers"), [(RNN_CELL, RNN_LAYERS), (LSTM_CELL, LSTM_LAYERS), (GRU_CELL, GRU_LAYERS)])
def test_a_layer_is_a_cell_step_by_step(cell: Operator, layers: Operator) -> None:
    params, step = layers.complete(TINY), cell.complete(STEP)
    inputs, one = make(layers, params), make(cell, step)
    weights = {name: one[name] for name in ("w_ih", "w_hh", "b_ih", "b_hh")}
    state = {name.removesuffix("0"): inputs[name][0] for name in inputs if name in ("h0", "c0")}
    for x in inputs["x"]:
        found = cell.reference(step, x=x, **weights, **state)
        state = dict(zip(state, found if isinstance(found, tuple) else (found,), strict=True))
    inputs["weights"] = np.concatenate([array.reshape(-1) for array in weights.values()])
    output, *last = layers.reference(params, **inputs)
    np.testing.assert_allclose(output[-1], state["h"], rtol=1e-12)
    np.testing.assert_allclose([end[0] for end in last], list(state.values()), rtol=1e-12)


def test_units_with_relu_are_on_or_off_whatever_comes_in() -> None:
    """A finite difference of the reference gives the gradient only if no argument is near zero."""
    params = RNN_LAYERS.complete({**DEEP, "seq_len": 50, "input_size": 500, "nonlinearity": "relu"})
    output, _ = RNN_LAYERS.reference(params, **make(RNN_LAYERS, params))
    on = output > 0
    assert (on == on[:1, :1]).all()
    assert 0 < on.mean() < 1
    assert output[on].min() > 0.5
    tanh = RNN_LAYERS.complete({**DEEP, "seq_len": 50})
    assert np.abs(RNN_LAYERS.reference(tanh, **make(RNN_LAYERS, tanh))[0]).min() < 0.01


@pytest.mark.parametrize(
    ("alias", "name"),
    [("RNN", "rnn"), ("LSTM", "lstm"), ("GRU", "gru"), ("rnn_relu", "rnn"), ("LSTMCell", "lstm_cell")],
)
def test_names_of_other_systems_are_found(alias: str, name: str) -> None:
    assert operator(alias).name == name
