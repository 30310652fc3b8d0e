"""What every model of the zoo has to pass, at its small size unless a name says otherwise."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch

from opmark.models.weights import calibrate, initialise, no_initialisation
from opmark.models.zoo.entry import ZooModel
from opmark.plugin import Params
from opmark.schema.tensor import is_float


def small_params(model: ZooModel, **more: Any) -> dict[str, Any]:
    """Parameters of a small case of two rows in float32, at the first stage of a model that has stages."""
    stage = {"stage": model.stages[0]} if model.stages else {}
    return {"size": "small", "batch": 2, "dtype": "float32", **model.sizes["small"], **stage, **more}


def make_inputs(model: ZooModel, params: Params, seed: int) -> dict[str, torch.Tensor]:
    generator = np.random.default_rng(seed)
    inputs = {}
    for name, spec in model.inputs(params, model.config(params)).items():
        if spec.make is not None:
            values = spec.make(generator)
        elif is_float(spec.dtype):
            values = generator.uniform(spec.low, spec.high, spec.shape)
        else:
            values = generator.integers(int(spec.low), int(spec.high), spec.shape)
        inputs[name] = torch.from_numpy(np.asarray(values)).to(getattr(torch, spec.dtype))
    return inputs


def construct(model: ZooModel, config: Any) -> torch.nn.Module:
    """Return the network without weights."""
    module, function = model.build.split(":")
    with no_initialisation():
        return getattr(import_module(f"opmark.models.networks.{module}"), function)(**config)


def built(model: ZooModel, params: Params, *, through_meta: bool = False) -> torch.nn.Module:
    """Return the network with weights, in params["dtype"], in its stage."""
    with torch.device("meta" if through_meta else "cpu"):
        network = construct(model, model.config(params))
    if through_meta:
        torch.use_deterministic_algorithms(True)  # fills new memory with NaN and the largest whole number
        network.to_empty(device="cpu")
        torch.use_deterministic_algorithms(False)
    initialise(network)
    start = {**params, "dtype": "float32"}
    calibrate(network, make_inputs(model, start, 0))
    network.to(getattr(torch, params["dtype"]))
    if params.get("stage") == "decode":
        network.fill_cache(params["batch"], params["seq"])
    return network


def outputs_of(network: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    with torch.no_grad():
        result = network(*inputs.values())
    return result if isinstance(result, tuple) else (result,)


def rms(values: torch.Tensor) -> float:
    return float(values.double().square().mean().sqrt())


def count_parameters(model: ZooModel) -> int:
    """Count the parameters at full size."""
    with torch.device("meta"):
        network = construct(model, model.full)
    return sum(one.numel() for one in network.parameters())


def check_outputs_follow_inputs(model: ZooModel, params: Params) -> None:
    """The outputs are finite, have the batch where the table says, and move clearly with the inputs."""
    network = built(model, params)
    first, second = (outputs_of(network, make_inputs(model, params, seed)) for seed in (1, 2))
    assert len(first) == len(model.outputs)
    for name, one, other in zip(model.outputs, first, second, strict=True):
        assert torch.isfinite(one).all(), name
        assert one.shape[model.batch_axes.get(name, 0)] == params["batch"], name
        change = float((one - other).abs().max())
        assert change >= 0.05 * rms(one), f"{model.name}: {name} moves by {change:.3g} of {rms(one):.3g}"


def check_every_input_matters(model: ZooModel, params: Params, *constant: str) -> None:
    """Each input alone moves some output; `constant` names inputs that can only have one value."""
    network = built(model, params)
    inputs, others = (make_inputs(model, params, seed) for seed in (1, 2))
    before = outputs_of(network, inputs)
    for name in inputs:
        if name in constant:
            continue
        after = outputs_of(network, {**inputs, name: others[name]})
        moves = [float((one - other).abs().max()) / rms(one) for one, other in zip(before, after, strict=True)]
        assert max(moves) >= 1e-3, f"{model.name}: {name} moves the outputs by {moves}"


def check_precisions_differ(model: ZooModel, params: Params) -> None:
    """Half precision stays near float64 but not too near: a comparison of the two can see an error."""
    results = {}
    for dtype in ("float64", "bfloat16", "float16"):
        typed = {**params, "dtype": dtype}
        results[dtype] = outputs_of(built(model, typed), make_inputs(model, typed, 1))
    for name, exact, brain, half in zip(model.outputs, *results.values(), strict=True):
        assert exact.dtype == torch.float64, name
        for dtype, values in (("bfloat16", brain), ("float16", half)):
            assert values.dtype == getattr(torch, dtype), name
            assert torch.isfinite(values).all(), f"{model.name}: {name} in {dtype}"
            error = rms(values.double() - exact) / rms(exact)
            assert error < 0.5, f"{model.name}: {name} in {dtype} is off by {error:.3g} of its size"
        error = float((brain.double() - exact).abs().max()) / rms(exact)
        assert error > 1e-4, f"{model.name}: {name} in bfloat16 is off by only {error:.3g} of its size"


def check_exports(model: ZooModel, params: Params) -> None:
    """torch.export gives a program that computes the same."""
    network = built(model, params)
    inputs, others = (make_inputs(model, params, seed) for seed in (1, 2))
    with torch.no_grad():
        program = torch.export.export(network, tuple(inputs.values()))
    expected, got = outputs_of(network, others), outputs_of(program.module(), others)
    for name, one, other in zip(model.outputs, expected, got, strict=True):
        assert float((one - other).abs().max()) <= 1e-4 * rms(one), name


def check_compiles(model: ZooModel, params: Params) -> None:
    """torch.compile captures one graph without breaks; no code is generated, which would take much longer."""
    network = built(model, params)
    inputs = make_inputs(model, params, 1)
    torch.compiler.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        got = outputs_of(torch.compile(network, fullgraph=True, backend="eager"), inputs)
    for name, one, other in zip(model.outputs, outputs_of(network, inputs), got, strict=True):
        assert float((one - other).abs().max()) <= 1e-4 * rms(one), name


def check_rows_are_independent(model: ZooModel, params: Params) -> None:
    """Swapping the rows of the batch swaps those of the outputs."""
    network = built(model, params)
    inputs = make_inputs(model, params, 1)
    swapped = {name: one if name in model.unbatched else one.flip(0) for name, one in inputs.items()}
    for name, one, other in zip(model.outputs, outputs_of(network, inputs), outputs_of(network, swapped), strict=True):
        flipped = other.flip(model.batch_axes.get(name, 0))
        assert float((one - flipped).abs().max()) <= 1e-4 * rms(one), name


def check_survives_meta(model: ZooModel, params: Params) -> None:
    """A network made on the meta device and moved by to_empty() computes the same: no table is lost."""
    inputs = make_inputs(model, params, 1)
    expected = outputs_of(built(model, params), inputs)
    got = outputs_of(built(model, params, through_meta=True), inputs)
    for name, one, other in zip(model.outputs, expected, got, strict=True):
        assert torch.equal(one, other), f"{model.name}: {name}"
