"""Loads and describes the torch modules that users bring. Only a worker or a child process imports this."""

from __future__ import annotations

import inspect
import json
import random
import traceback
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils._pytree import tree_unflatten

from opmark.errors import InvalidParameter, OpmarkError, Unsupported, UserError, nearest
from opmark.models.counting import count_call
from opmark.models.execution import converted, flatten
from opmark.models.facts import DescribedInput, ModelDescription, ModelFacts
from opmark.models.user_source import FileSource, ProgramSource, PythonSource, ScriptSource, TransformersSource
from opmark.plugin import Params, draw_values
from opmark.plugin.registry import load_function
from opmark.schema import TensorSpec
from opmark.schema.arguments import tensors
from opmark.schema.tensor import is_float

_CONVENTION = 'as in def build(batch=1): return module, {"x": torch.randn(batch, 3, 32, 32)}'
_OWN_INPUTS = "write a function that makes the model and its inputs, and measure it as model:FILE.py:FUNCTION"
_TOKENS = 128
_SAMPLES = 16000
"""Values of one second of sound."""


class NamedCall(torch.nn.Module):  # type: ignore[misc]
    """Calls a module with tensors by name where it has arguments of these names, else by position, and returns its
    tensors only, however they are nested."""

    def __init__(self, model: Any, names: Iterable[str]) -> None:
        super().__init__()
        self.model = model
        self.names = tuple(names)
        self.by_name = bool(self.names) and set(self.names) <= set(_argument_names(model))

    def forward(self, *inputs: Any) -> Any:
        found = self.model(**dict(zip(self.names, inputs, strict=True))) if self.by_name else self.model(*inputs)
        return _plain(found)


class ProgramCall(torch.nn.Module):  # type: ignore[misc]
    """Calls a program of torch.export with tensors by position, however it takes them."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self.model, self.arguments = program.module(), program.call_spec.in_spec

    def forward(self, *inputs: Any) -> Any:
        args, kwargs = tree_unflatten(list(inputs), self.arguments)
        return _plain(self.model(*args, **kwargs))

    def train(self, mode: bool = True) -> Any:
        """Stay in the mode in which it was exported: a program has no other."""
        return self


def _plain(outputs: Any) -> Any:
    """Return the tensors of an output: one, or a tuple."""
    flat = tuple(flatten(outputs))
    return flat[0] if len(flat) == 1 else flat


def _argument_names(model: Any) -> list[str]:
    if isinstance(model, torch.jit.ScriptModule):
        return [argument.name for argument in model.forward.schema.arguments[1:]]
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [name for name, one in inspect.signature(model.forward).parameters.items() if one.kind in kinds]


# Descriptions, and counting.


def count_user_model(source: FileSource, params: Params) -> ModelFacts:
    """Return the facts of a case."""
    with unset_fake_temporarily():
        return _count(source.module(params), source.inputs(params), params)


def _count(module: Any, specs: Mapping[str, TensorSpec], params: Params) -> ModelFacts:
    """Count without data where the module works so, else with data: it may decide by values."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            empty = [torch.empty(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in specs.values()]
            return count_call(converted(module, getattr(torch, params["dtype"])), empty, params)
    except Exception:  # noqa: BLE001 - code of users may raise anything, and with data it may not
        with torch.no_grad():
            given = [_draw(spec, i) for i, spec in enumerate(specs.values())]
            return count_call(converted(module, getattr(torch, params["dtype"])), given, params)


def _draw(spec: TensorSpec, seed: int) -> Any:
    return torch.from_numpy(draw_values(spec, seed)).to(getattr(torch, spec.dtype))


def _describe(name: str, module: Any, inputs: Mapping[str, DescribedInput], *, any_batch: bool) -> ModelDescription:
    """Find the axis of the batch in every output, by calling the module with two and three samples.

    `any_batch`: the module has to take any batch; otherwise one that takes a single sample has no batch.
    """
    if all(one.low + (not is_float(one.dtype)) >= one.high for one in inputs.values()):
        raise UserError(
            f"`{name}`: all values of its inputs are the same, and a result that never changes cannot be checked",
            "give examples that differ, as torch.randint(0, 1000, (1, 128)), or texts, as in 1x128 int64 0..1000",
        )
    _outputs(name, module, inputs, 1)
    if not any(one.batched for one in inputs.values()):
        return ModelDescription(dict(inputs))
    try:
        two, three = (_outputs(name, module, inputs, batch) for batch in (2, 3))
    except UserError:
        if any_batch:
            raise
        whole = {key: DescribedInput(one.shape, one.dtype, one.low, one.high, False) for key, one in inputs.items()}
        return ModelDescription(whole)
    axes: dict[int, int] = {}
    for i, (some, more) in enumerate(zip(two, three, strict=True)):
        grown = [axis for axis, (n, m) in enumerate(zip(some, more, strict=True)) if (n, m) == (2, 3)]
        if len(grown) != 1:  # it mixes the samples, as a mean over the batch does
            return ModelDescription(dict(inputs))
        if grown[0]:
            axes[i] = grown[0]
    return ModelDescription(dict(inputs), rows=True, axes=axes)


def _outputs(name: str, module: Any, inputs: Mapping[str, DescribedInput], batch: int) -> list[tuple[int, ...]]:
    """Return the shapes of the outputs."""
    specs = {
        key: TensorSpec((batch, *one.shape[1:]) if one.batched else one.shape, one.dtype, one.low, one.high)
        for key, one in inputs.items()
    }
    try:
        found = [*_count(module, specs, {"dtype": "float32"}).outputs.values()]
    except OpmarkError:
        raise
    except Exception as error:  # noqa: BLE001 - code of users may raise anything
        given = ", ".join(f"{key} {'x'.join(map(str, spec.shape))} {spec.dtype}" for key, spec in specs.items())
        raise UserError(f"`{name}` cannot be called with {given}: {_first_line(error)}", _OWN_INPUTS) from None
    if not found:
        raise UserError(f"`{name}` returns no tensor", "a model returns tensors, alone or in a tuple, list or mapping")
    return found


def _described(value: Any, where: str) -> DescribedInput:
    """Describe an example: a tensor, or a text such as `8x64 float32`."""
    if isinstance(value, str):
        for _, spec in tensors(value, where):
            return DescribedInput(spec.shape, spec.dtype, spec.low, spec.high, False)
    if not isinstance(value, torch.Tensor):
        got = f"`{value}`" if isinstance(value, str) else f"a {type(value).__name__}"
        raise UserError(
            f"{where}: expected a tensor, or a text such as `8x64 float32`, got {got}", _CONVENTION
        )  # fmt: skip
    dtype = str(value.dtype).removeprefix("torch.")
    low, high = (float(end) for end in (value.min(), value.max())) if value.numel() else (0.0, 0.0)
    if not is_float(dtype):
        high += 1
    elif low == high:  # zeros or ones that only show the shape
        low, high = -1.0, 1.0
    return DescribedInput(tuple(value.shape), "float32" if is_float(dtype) else dtype, low, high, False)


def _named(examples: Any, module: Any) -> dict[str, Any]:
    """Return examples by name, in the order of the module's arguments where it has arguments of these names."""
    names = _argument_names(module)
    if isinstance(examples, Mapping):
        known = [name for name in names if name in examples]
        order = known if len(known) == len(examples) else examples
        return {str(name): examples[name] for name in order}
    several = examples if isinstance(examples, list | tuple) else (examples,)
    if len(names) < len(several):
        names = [f"x{i}" for i in range(len(several))]
    return dict(zip(names, several, strict=False))


def _with_batch(inputs: Mapping[str, DescribedInput], batched: Iterable[str]) -> dict[str, DescribedInput]:
    chosen = set(batched)
    return {
        name: DescribedInput(one.shape, one.dtype, one.low, one.high, name in chosen) for name, one in inputs.items()
    }


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().partition(". This is an internal")[0].splitlines()
    return f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__


# Functions of Python files.


class _Built(NamedTuple):
    module: Any
    inputs: dict[str, DescribedInput]
    takes_batch: bool


def _build(source: PythonSource, params: Params, batch: int = 1) -> _Built:
    """Call the function with a seed of its own, so that its weights are the same in every process."""
    name, file = source.name, source.path.absolute()
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    try:
        function = load_function(f"{file}:{source.function}")
        accepted = inspect.signature(function).parameters
        for asked in ("seq", "image"):
            if params.get(asked) and asked not in accepted:
                raise InvalidParameter(
                    f"parameter `{asked}`: {name} does not take it", f"it takes {', '.join(accepted)}"
                )
        given = {key: params[key] for key in ("seq", "image") if params.get(key)}
        takes_batch = "batch" in accepted
        made = function(**given, **({"batch": batch} if takes_batch else {}))
    except OpmarkError:
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        place = f", at {source.path}:{lines[-1]}" if lines else ""
        raise UserError(f"`{name}` raised {_first_line(error)}{place}", _CONVENTION) from error
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[0], torch.nn.Module):
        got = f"({', '.join(type(one).__name__ for one in made)})" if isinstance(made, tuple) else type(made).__name__
        raise UserError(f"`{name}` returned {got}, expected a torch.nn.Module and its inputs", _CONVENTION)
    module, examples = made
    found = {key: _described(value, f"input `{key}` of `{name}`") for key, value in _named(examples, module).items()}
    if not found:
        raise UserError(f"`{name}` returned no inputs", _CONVENTION)
    return _Built(module, found, takes_batch)


def describe_python(source: PythonSource, params: Params) -> ModelDescription:
    one = _build(source, params)
    batched = []
    if one.takes_batch:
        two = _build(source, params, 2)
        for name, found in one.inputs.items():
            other = two.inputs[name].shape if name in two.inputs else None
            if other == (2, *found.shape[1:]) and found.shape[:1] == (1,):
                batched.append(name)
            elif other != found.shape:
                raise UserError(
                    f"`{source.name}`: input `{name}` has the shape {found.shape} for batch=1 and {other} for batch=2",
                    "the batch is the first axis, or an input has none",
                )
    module = NamedCall(one.module.eval(), one.inputs)
    return _describe(source.name, module, _with_batch(one.inputs, batched), any_batch=True)


def load_python(source: PythonSource, params: Params) -> Any:
    """Return the module in eval(), in float32, with weights of a checkpoint where the case names one."""
    built = _build(source, params)
    if params.get("weights"):
        from opmark.models.checkpoint import load_weights

        load_weights(built.module, params["weights"], source.name)
    return NamedCall(built.module.float(), built.inputs).eval()


# TorchScript and torch.export.


def _read_script(source: ScriptSource) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.load(str(source.path), map_location="cpu").eval()
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"`{source.name}` is no TorchScript: {_first_line(error)}",
            "torch.jit.save(torch.jit.script(model), PATH) writes it; a state dict is given to a model as "
            "-p weights=FILE, and a pickled module is measured as model:FILE.py:FUNCTION",
        ) from None


def describe_script(source: ScriptSource, params: Params) -> ModelDescription:
    module = _read_script(source)
    written = params.get("inputs")
    if not written:
        names = ", ".join(_argument_names(module))
        raise UserError(
            f"`{source.name}` does not say the shapes of its inputs ({names})",
            "give them in this order, as in -p inputs='[1x3x32x32 float32]'",
        )
    found = {key: _described(value, f"input `{key}`") for key, value in _named(written, module).items()}
    single = all(one.shape[:1] == (1,) for one in found.values())
    call = NamedCall(module, found)
    return _describe(source.name, call, _with_batch(found, found if single else ()), any_batch=False)


def load_script(source: ScriptSource, params: Params) -> Any:
    module = _read_script(source)
    return NamedCall(module, _named(params["inputs"], module)).eval()


def _read_program(source: ProgramSource) -> Any:
    try:
        return torch.export.load(source.path)
    except Exception as error:  # noqa: BLE001 - its reader raises anything
        raise UserError(
            f"`{source.name}` is no program of torch.export: {_first_line(error)}",
            "torch.export.save(torch.export.export(model, inputs), PATH) writes it",
        ) from None


def describe_program(source: ProgramSource) -> ModelDescription:
    program = _read_program(source)
    args, kwargs = program.example_inputs or ((), {})
    examples = [*flatten(args), *flatten(kwargs)]
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    names = program.graph_signature.user_inputs
    if len(examples) != len(names):
        raise UserError(
            f"`{source.name}` has {len(names)} inputs and {len(examples)} examples of them", f"{_OWN_INPUTS}"
        )  # fmt: skip
    found = {name: _described(value, f"input `{name}`") for name, value in zip(names, examples, strict=True)}
    free = [name for name in names if (shape := nodes[name].meta["val"].shape) and not isinstance(shape[0], int)]
    inputs = _with_batch(found, free)
    single = {
        name: DescribedInput((1, *one.shape[1:]), one.dtype, one.low, one.high, True) if one.batched else one
        for name, one in inputs.items()
    }
    return _describe(source.name, ProgramCall(program), single, any_batch=False)


def load_program(source: ProgramSource) -> Any:
    return ProgramCall(_read_program(source))


# Transformers.


def _read_config(source: TransformersSource) -> tuple[Any, Any]:
    """Return the configuration and the class of the model, which is never code of the checkpoint."""
    try:
        import transformers
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES
    except ImportError as error:
        raise Unsupported(
            f"`{source.name}` is made by transformers, which cannot be imported: {error} (pip install 'opmark[models]')"
        ) from None
    content = json.loads(source.config.read_text(encoding="utf-8"))
    kind = str(content.get("model_type", ""))
    if kind not in CONFIG_MAPPING_NAMES:
        raise _unknown("model_type", kind, CONFIG_MAPPING_NAMES, source)
    try:
        config = CONFIG_MAPPING[kind].from_dict(content)
    except Exception as error:  # noqa: BLE001 - every configuration checks its own values
        raise UserError(f"`{source.config}` makes no {kind}: {_first_line(error)}", "is it complete?") from None
    config.use_cache = False
    name = next(iter(config.architectures or ()), None)
    if name is None:
        return config, transformers.AutoModel._model_mapping[type(config)]
    if not hasattr(transformers, name):
        raise _unknown("architectures", name, [one for one in dir(transformers) if one[0].isupper()], source)
    return config, getattr(transformers, name)


def _unknown(field: str, name: str, known: Iterable[str], source: TransformersSource) -> UserError:
    near = nearest(name, known)
    suggestion = f"did you mean `{near}`? " if near else ""
    return UserError(
        f"`{source.config}`: transformers has no `{name}` (field `{field}`)",
        f"{suggestion}code that comes with a checkpoint is not run: import it in a function, and measure that as "
        "model:FILE.py:FUNCTION",
    )


def _transformers_inputs(source: TransformersSource, config: Any, model: Any, params: Params) -> dict[str, Any]:
    """Return the inputs of a single sample, as the configuration says them."""
    text = config.get_text_config()
    main = model.main_input_name
    tokens = params.get("seq") or min(_TOKENS, getattr(text, "max_position_embeddings", None) or _TOKENS)
    ids = DescribedInput((1, tokens), "int64", 0, getattr(text, "vocab_size", 0), True)
    if main == "input_ids" and ids.high:
        # Some read the place of a text's end from its last token, or its length from padding: none is drawn.
        return {main: ids, "decoder_input_ids": ids} if config.is_encoder_decoder else {main: ids}
    if main == "pixel_values":
        shape = getattr(config, "image_size", None) or 224
        sides = (shape, shape) if isinstance(shape, int) else tuple(shape)
        sides = (params["image"], params["image"]) if params.get("image") else sides
        return {main: DescribedInput((1, getattr(config, "num_channels", 3), *sides), "float32", -1.0, 1.0, True)}
    if main == "input_values":
        return {main: DescribedInput((1, params.get("seq") or _SAMPLES), "float32", -1.0, 1.0, True)}
    raise UserError(f"`{source.name}` takes `{main}`, which opmark cannot make from its configuration", _OWN_INPUTS)


def describe_transformers(source: TransformersSource, params: Params) -> ModelDescription:
    config, model = _read_config(source)
    inputs = _transformers_inputs(source, config, model, params)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            made = _make(source, config, model)
    except UserError:  # some constructors read values
        made = _make(source, config, model)
    module = NamedCall(made, inputs).eval()
    return _describe(source.name, module, inputs, any_batch=True)


def load_transformers(source: TransformersSource, params: Params) -> Any:
    from opmark.models.checkpoint import load_weights
    from opmark.models.weights import calibrate, initialise

    config, model = _read_config(source)
    inputs = _transformers_inputs(source, config, model, params)
    folder = source.checkpoint()
    if folder and not params.get("weights"):
        return NamedCall(_load_checkpoint(source, config, model, folder), inputs).eval()
    module = _make(source, config, model)
    call = NamedCall(module, inputs).eval()
    if params.get("weights"):
        load_weights(module, params["weights"], source.name)
    else:
        initialise(module)
        specs = source.inputs({**params, "batch": 2, "dtype": "float32"})
        calibrate(call, {name: _draw(spec, i) for i, (name, spec) in enumerate(specs.items())})
    return call


def _make(source: TransformersSource, config: Any, model: Any) -> Any:
    try:
        return model._from_config(config, dtype=torch.float32)
    except Exception as error:  # noqa: BLE001 - every model checks its own configuration
        raise UserError(
            f"`{source.config}` makes no {model.__name__}: {_first_line(error)}", "is it complete?"
        ) from None


def _load_checkpoint(source: TransformersSource, config: Any, model: Any, folder: Path) -> Any:
    """Load a checkpoint as transformers does, which knows older names of weights."""
    import transformers

    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    try:
        module, report = model.from_pretrained(
            folder, config=config, dtype=torch.float32, local_files_only=True, use_safetensors=True,
            ignore_mismatched_sizes=True, output_loading_info=True,
        )  # fmt: skip
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(
            f"`{source.name}` cannot be loaded: {_first_line(error)}", "is the checkpoint complete?"
        ) from None
    shapes = [
        f"{name}: expected {'x'.join(map(str, due))}, got {'x'.join(map(str, got))}"
        for name, got, due in sorted(report["mismatched_keys"])
    ]
    missing = sorted(report["missing_keys"])
    if shapes or missing:
        problems = (("another shape", shapes), ("missing", missing))
        listed = "; ".join(f"{what}: {', '.join(names[:3])}" for what, names in problems if names)
        raise UserError(
            f"the weights in `{source.name}` do not fit its {source.config.name}: {listed}",
            "the configuration and the weights are from different models, or `architectures` names another head",
        )
    return module
