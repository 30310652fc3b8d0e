"""Turns the specs of one operator of PARAM into entries: the callable that it means, its build, its arguments, and its
gradients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from opmark.errors import UserError
from opmark.interop.param.arguments import (
    ELEMENT_TYPES,
    Draw,
    Misfit,
    find_odd,
    is_whole,
    parts,
    quote,
    tensors_of,
    without_tuples,
)
from opmark.interop.param.expansion import table_build
from opmark.interop.param.lib.data import data_generator_map
from opmark.interop.param.lib.operator import user_operator
from opmark.interop.param.lib.pytorch.data_impl import DefaultDataGenerator
from opmark.interop.param.plugin import plugin_entry
from opmark.plugin import Operator
from opmark.schema import Entry
from opmark.schema.arguments import WEIGHTS, placeholders, tensors
from opmark.schema.tensor import DTYPES, is_float

MODELS = {
    "pytorch:alex_net": "opmark.interop.param.library:AlexNet",
    "pytorch.model.alex_net": "opmark.interop.param.library:AlexNet",
    "pytorch.model.resnet": "opmark.interop.param.library:ResNet",
}
_IN_PLACE = re.compile(r"torch\.([a-z]\w*[a-z0-9]_)")
# For these, torch has a function, but a tensor has no method.
_FUNCTIONS = frozenset(
    {"alpha_dropout_", "celu_", "dropout_", "embedding_renorm_", "feature_alpha_dropout_", "feature_dropout_",
     "rrelu_", "selu_", "threshold_"}
)  # fmt: skip
_FUNCTION = re.compile(r"torch\.(\w+\.)*[a-z_]\w*")


class ParamCall(NamedTuple):
    """Arguments in opmark's notation."""

    args: list[Any]
    kwargs: dict[str, Any]


class OperatorCall(NamedTuple):
    """A call as an entry holds it."""

    op: str
    args: list[Any]
    kwargs: dict[str, Any]
    build: dict[str, Any] | None = None


def operator_name(name: str) -> str:
    """Return opmark's name of an operator of PARAM."""
    in_place = _IN_PLACE.fullmatch(name)
    if in_place and in_place[1] not in _FUNCTIONS:
        return f"torch.Tensor.{in_place[1]}"
    return MODELS.get(name, name)


def make_call(name: str, op: str, build: ParamCall | None, call: ParamCall) -> OperatorCall:
    """Return the call of an operator of PARAM, whose name in opmark is `op`; raise Misfit for a wrong build."""
    if name.startswith("aten::"):
        return _call_by_schema(name, build, call)
    if not is_class(op):
        return OperatorCall(op, call.args, call.kwargs, None if build is None else build._asdict())
    given = {} if build is None else {name: part for name, part in build._asdict().items() if part}
    return OperatorCall(op, call.args, call.kwargs, {**given, "train": True})


def is_function(name: str) -> bool:
    """Whether an operator is a function, and not a class, whose name in torch begins with a capital letter."""
    return bool(_FUNCTION.fullmatch(name)) or name.startswith("aten::")


def is_class(op: str) -> bool:
    """Whether an operator of opmark is named after a class, as torch.nn.Linear is."""
    return re.split(r"[.:]", op)[-1][:1].isupper()


def works_in_place(name: str) -> bool:
    """Whether the name ends in an underscore, as in torch.add_, aten::mul_, torch.nn.functional.relu_."""
    return is_function(name) and name.endswith("_") and not name.endswith("__")


_SCHEMA = re.compile(r"\s*(aten::\w+)(?:\.(\w+))?\s*\((.*)\)\s*->.*", re.DOTALL)
_SCHEMA_HINT = "as in aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
_LONGEST = 10_000
# Older files have types in place of a schema, and pass these arguments by position, which torch takes by name only.
_BY_NAME = {"aten::add": (2, "alpha"), "aten::sub": (2, "alpha"), "aten::rsub": (2, "alpha")}


def _call_by_schema(name: str, build: ParamCall | None, call: ParamCall) -> OperatorCall:
    """Call the overload that the schema names; PARAM passes all arguments by position, also keyword-only ones."""
    args, kwargs = call
    if build is None or _only_types(build):
        place, keyword = _BY_NAME.get(name, (len(args), ""))
        return OperatorCall(
            name, args[:place], {**dict(zip([keyword], args[place : place + 1], strict=False)), **kwargs}
        )
    text = _schema_text(build)
    found = _SCHEMA.fullmatch(text)
    if found is None:
        raise Misfit(".args[0]", f"expected the schema of an operator, got {quote(text)}", _SCHEMA_HINT, build=True)
    if found[1] != name:
        raise Misfit(".args[0]", f"expected the schema of `{name}`, got `{found[1]}`", _SCHEMA_HINT, build=True)
    names = [_argument_name(part) for part in _split_arguments(found[3])]
    positional = names.index("*") if "*" in names else len(names)
    by_name = names[positional + 1 :]
    if len(args) > positional + len(by_name):
        raise Misfit(".args", f"`{name}` takes {positional + len(by_name)} arguments, got {len(args)}")
    return OperatorCall(
        f"{name}.{found[2] or 'default'}",
        args[:positional],
        {**dict(zip(by_name, args[positional:], strict=False)), **kwargs},
    )


def _only_types(build: ParamCall) -> bool:
    return len(build.args) == 1 and isinstance(build.args[0], list)


def _schema_text(build: ParamCall) -> str:
    first = build.args[0] if build.args else None
    text = first.get("value") if isinstance(first, dict) else first
    if not isinstance(text, str) or len(text) > _LONGEST or len(build.args) > 1 or build.kwargs:
        raise Misfit(
            ".args", f"expected only the schema of an operator, got {quote(build.args)}", _SCHEMA_HINT, build=True
        )
    return text


def _split_arguments(text: str) -> list[str]:
    """Split the arguments of a schema at commas outside of brackets and quotes."""
    parts = re.findall(r"""(?:[^,(\["']|\([^)]*\)|\[[^\]]*\]|"[^"]*"|'[^']*')+""", text)
    return [part.strip() for part in parts if part.strip()]


def _argument_name(text: str) -> str:
    return text.partition("=")[0].split()[-1] if text.partition("=")[0].split() else text


# fbgemm's SplitTableBatchedEmbeddingBagsCodegen of PARAM as an operator of the catalogue.

BAGS = "SplitTableBatchedEmbeddingBagsCodegen"
TABLE_NAMES = (BAGS, "split_table_batched_embedding_bags", "split_table_batched_embeddings_ops")
NOTE = (
    "SplitTableBatchedEmbeddingBagsCodegen: torch's embedding_bag runs over the tables, and fbgemm beside it where "
    "fbgemm_gpu is installed; a backward pass computes the gradient, and the optimizer step is a separate operator "
    "(embedding_bag_sgd_update, embedding_bag_rowwise_adagrad_update)"
)
PRECISIONS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
MODES = {0: "sum", 1: "mean"}
_BUILD = ("num_tables", "rows", "dims", "pooling", "weighted", "weights_precision", "optimizer", "lr", "eps",
          "weight_decay", "weight_decay_mode", "mode")  # fmt: skip


def operator_and_params(build: ParamCall | None, given: ParamCall) -> tuple[str, dict[str, Any]]:
    """Translate a build and the arguments from the data generator; raise Misfit if no operator has them."""
    if build is None:
        raise Misfit("", "expected a build with the sizes of the tables", f"it has {', '.join(_BUILD[:6])}", build=True)
    if given.args or not given.kwargs:
        raise Misfit("", "expected lookups in tables, got other arguments", f"they come from {BAGS}InputDataGenerator")
    options = {**dict(zip(_BUILD, build.args, strict=False)), **build.kwargs}
    surplus = [*build.args[len(_BUILD) :], *(name for name in build.kwargs if name not in _BUILD)]
    if surplus:
        raise Misfit("", f"a build has no option {quote(surplus[0])}", f"it has {', '.join(_BUILD)}", build=True)
    mode = MODES.get(options.get("pooling", 0)) if isinstance(options.get("pooling", 0), int) else None
    if mode is None:
        got = quote(options.get("pooling"))
        raise Misfit(".args[3]", f"pooling: expected 0 (sum) or 1 (mean), got {got}", build=True)
    precision = options.get("weights_precision", "fp32")
    dtype = PRECISIONS.get(precision) if isinstance(precision, str) else None
    if dtype is None:
        raise Misfit(
            ".args[5]", f"weights_precision: expected {', '.join(PRECISIONS)}, got {quote(precision)}", build=True
        )
    weighted, common = bool(options.get("weighted")), {"mode": mode, "dtype": dtype}
    sizes = {name: given.kwargs[name] for name in ("rows", "dims", "pooling")}
    one_size = all(len(set(each)) == 1 for each in sizes.values())
    tables = len(sizes["rows"])
    if not one_size or "indices_file" in given.kwargs or (weighted and tables > 1):
        return "split_embedding_bag", {**given.kwargs, **common, **({"weighted": True} if weighted else {})}
    alike = {"rows": sizes["rows"][0], "dim": sizes["dims"][0], "bags": given.kwargs["bags"],
             "pooling": sizes["pooling"][0], **common}  # fmt: skip
    if weighted:
        return "embedding_bag", {**alike, "weighted": True}
    return "batched_embedding_bag", {"tables": tables, **alike}


DRAWN = "values were drawn with seed {seed}; each entry holds the drawn values"
INTEGERS = "tensors of whole numbers hold 0 to 9, because negative ones fail as indices; `low` and `high` change that"
LOOKUPS = (
    '`{op}`: whole numbers from 0 to 9 are no offsets, and seldom the right indices; write `"low": 0, "high": {rows}` '
    'into the tensor of indices, and `"low": 0, "high": {indices}, "values": "offsets"` into that of offsets'
)
UNBUILT = "`{op}` is a function, so that its `build` is ignored"
TRAINING = "modules run in training mode, as in PARAM"
ALL_FIXED = (
    "`{op}`: in some cases no tensor has `requires_grad`: `opmark param -b` runs them forward only, `--phase backward` "
    "computes all gradients"
)
NO_GRADIENT = "no tensor has `requires_grad`, so there is no backward pass"
IN_PLACE = "`{op}` works in place, and has no backward pass in PARAM"
_PLAIN = "expected (args, kwargs) of plain data: numbers, texts, lists, tensors written as 8x64 float32"
_PLAIN_HINT = "an element type is written as {dtype: float16}, a number that is not finite as {float: inf}"


class OperatorBuild(NamedTuple):
    """A build of an operator."""

    id: str
    spec: Any
    call: ParamCall | None


class CallPoint(NamedTuple):
    entry: Entry
    forward_only: str = ""
    """Why it has no backward pass; empty if it may have one."""


class Calls:
    """Makes the entries of one operator."""

    def __init__(self, file: str, name: str, operator: Operator, generators: tuple[Any, Any], seed: int) -> None:
        self._file, self._name, self._operator, self._seed = file, name, operator, seed
        self._build_generator, self._input_generator = generators
        own = user_operator(name)
        self._op = name if own else operator_name(name)
        # An operator or a generator of a user runs in the worker alone.
        self._items: list[Any] = [own] if own else []
        in_place = works_in_place(name) if own is None else getattr(own, "works_in_place", False)
        self._why_forward_only = IN_PLACE.format(op=name) if in_place else ""
        self._items += [generator for generator in generators if _makes_tensors(generator)]
        self._tables = name in TABLE_NAMES
        self._explains_lookups = False
        self.notes: dict[str, None] = {NOTE: None} if self._tables else {}

    def build(self, build_id: str, spec: Any, ids: str) -> OperatorBuild:
        if _makes_tensors(self._build_generator):
            return OperatorBuild(build_id, spec, None)
        draw = self._draw(f"{ids}|build")
        call = _generate(self._build_generator, table_build(spec) if self._tables else spec, draw)
        self._note_draws(draw)
        if any(True for node in (call.args, call.kwargs) for _ in tensors(node, "")):
            raise Misfit("", "opmark takes no tensors in a build", "give sizes in the build, and tensors in the input")
        if is_function(self._name) and not self._name.startswith("aten::") and not user_operator(self._name):
            self.notes[UNBUILT.format(op=self._name)] = None
            return OperatorBuild(build_id, spec, None)
        return OperatorBuild(build_id, spec, call)

    def point(self, built: OperatorBuild, spec: Any, ids: str) -> CallPoint:
        """Make an entry; `ids` are those of config, build and input, as PARAM joins them."""
        draw, source = self._draw(ids), f"{self._file}#{self._name}|{ids}"
        if _makes_tensors(self._input_generator):
            given = _generator_and_spec(self._input_generator, spec)
            entry = plugin_entry(self._op, self._items, source, build=self._build_of(built), given=given)
            return CallPoint(entry, self._why_forward_only)
        call = _generate(self._input_generator, spec, draw)
        self._note_draws(draw)
        if draw.integers and "embedding" in self._name.lower():
            self._note_lookups(built, call)
        if self._items:
            entry = plugin_entry(self._op, self._items, source, build=self._build_of(built), **call._asdict())
            return CallPoint(entry, self._why_forward_only)
        if self._tables:
            op, params = operator_and_params(built.call, call)
            return CallPoint(Entry(op, params, source=source))
        if "args" not in self._operator.by_name:
            return CallPoint(self._catalogue_entry(built, call, source))
        made = make_call(self._name, self._op, built.call, call)
        if is_class(made.op):
            self.notes[TRAINING] = None
        wrt, forward_only = self._gradients(spec, made) if draw.has_fixed else ([], "")
        entry = Entry(
            made.op,
            _escape_braces(made),
            wrt=wrt,
            args=made.args,
            kwargs=made.kwargs or None,
            build=made.build,
            source=source,
        )
        return CallPoint(entry, self._why_forward_only or forward_only)

    def _build_of(self, built: OperatorBuild) -> Any:
        """Return the build of an operator that a user wrote, or that has a generator of a user."""
        if built.call is None and built.spec in (None, [], {}):
            return {"args": [], "kwargs": {}} if built.spec == [] else None
        if built.call is None:
            return _generator_and_spec(self._build_generator, built.spec)
        return built.call._asdict()

    def _catalogue_entry(self, built: OperatorBuild, call: ParamCall, source: str) -> Entry:
        if call.args or built.call is not None:
            raise Misfit("", f"`{self._operator.name}` is an operator of the catalogue and takes parameters",
                         f"give them as kwargs; `opmark describe {self._operator.name}` lists them")  # fmt: skip
        for name, value in call.kwargs.items():
            if isinstance(value, list) and not self._is_one_shape(name, value):
                raise Misfit(
                    f".kwargs.{name}", f"expected one value, got {quote(value)}", "write one input for each value"
                )
        return Entry(self._operator.name, call.kwargs, source=source)

    def _is_one_shape(self, name: str, value: list[Any]) -> bool:
        """Whether a list is one shape; any other list would be several cases."""
        param = self._operator.by_name.get(name)
        return param is not None and param.is_shape and not any(isinstance(item, list) for item in value)

    def _gradients(self, spec: Any, made: OperatorCall) -> tuple[list[str], str]:
        """Return the tensors with a gradient if not all have one, and why there is no backward pass."""
        found = {_place_in_call(place, made): needed for place, needed in _float_tensors(spec)}
        wrt = [place for place, needed in found.items() if needed]
        if len(wrt) == len(found):
            return [], ""
        if is_class(made.op):
            return [*wrt, WEIGHTS], ""
        if not wrt:
            self.notes[ALL_FIXED.format(op=self._name)] = None
            return [], NO_GRADIENT
        return wrt, ""

    def _note_lookups(self, built: OperatorBuild, call: ParamCall) -> None:
        """Say how indices and offsets are written, with the sizes of the first such call of the operator."""
        if self._explains_lookups:
            return
        self._explains_lookups = True
        specs = [spec for node in (call.args, call.kwargs) for _, spec in tensors(node, "")]
        whole = [spec.elements for spec in specs if DTYPES[spec.dtype].kind == "int"]
        tables = [spec.shape[0] for spec in specs if is_float(spec.dtype) and len(spec.shape) == 2]
        made = built.call or ParamCall([], {})
        sizes = [made.kwargs.get("num_embeddings"), *made.args[:1], *tables]
        rows = next((size for size in sizes if is_whole(size)), "ROWS")
        self.notes[LOOKUPS.format(op=self._name, rows=rows, indices=max(whole))] = None

    def _draw(self, ids: str) -> Draw:
        return Draw(f"{self._seed}|{self._name}|{ids}")

    def _note_draws(self, draw: Draw) -> None:
        if draw.used:
            self.notes[DRAWN.format(seed=self._seed)] = None
        if draw.integers:
            self.notes[INTEGERS] = None


def _makes_tensors(generator: Any) -> bool:
    """Whether a generator is a class of a user, as PARAM's own generators are."""
    return hasattr(generator, "get_data") and generator is not DefaultDataGenerator


def _generator_and_spec(generator: Any, spec: Any) -> dict[str, Any]:
    name = next(name for name, known in data_generator_map.items() if known is generator)
    odd = find_odd(spec, "")
    if odd:
        raise Misfit(odd[0], f"expected data that JSON can hold, got {odd[1]}")
    return {"generator": name, "spec": without_tuples(spec)}


def _generate(generator: Any, spec: Any, draw: Draw) -> ParamCall:
    """Return the arguments from a data generator, which must be plain data: a tensor is a shape and an element type."""
    try:
        given = generator(spec, draw)
        odd = None if _is_call(given) else ("", _describe(given))
        odd = odd or find_odd(given[0], "args") or find_odd(given[1], "kwargs")
    except UserError:
        raise
    except RecursionError:
        raise Misfit("", "the spec is nested too deeply") from None
    except Exception as error:  # noqa: BLE001 - a stranger's generator may raise anything
        raise Misfit("", f"the data generator failed: {type(error).__name__}: {error}") from None
    if odd:
        where = f" for `{odd[0]}`" if odd[0] else ""
        raise Misfit("", f"the data generator: {_PLAIN}; got {odd[1]}{where}", _PLAIN_HINT)
    return ParamCall(without_tuples(given[0]), without_tuples(given[1]))


def _is_call(given: Any) -> bool:
    two = isinstance(given, list | tuple) and len(given) == 2
    return two and isinstance(given[0], list | tuple) and isinstance(given[1], dict)


def _describe(given: Any) -> str:
    if isinstance(given, list | tuple) and len(given) == 2:
        return f"({', '.join(type(part).__name__ for part in given)})"
    return "nothing" if given is None else f"a {type(given).__name__}"


def _escape_braces(made: OperatorCall) -> dict[str, str]:
    """Return parameters that keep braces in texts as they are: PARAM has no placeholders."""
    return {name: f"{{{name}}}" for name in placeholders([made.args, made.kwargs, made.build])}


def _place_in_call(place: str, made: OperatorCall) -> str:
    """Return the place of a tensor in the call; PARAM numbers arguments that a schema takes by name only."""
    kind, number, *rest = place.split(".")
    beyond = int(number) - len(made.args) if kind == "args" else -1
    return place if beyond < 0 else ".".join(["kwargs", list(made.kwargs)[beyond], *rest])


def _float_tensors(spec: Any) -> Iterator[tuple[str, bool]]:
    """Yield the place of each tensor that can have a gradient, and whether it is to have one."""
    args, kwargs = parts(spec)
    places = [(f"args.{i}", arg) for i, arg in enumerate(args)]
    for path, arg in [*places, *((f"kwargs.{name}", arg) for name, arg in kwargs.items())]:
        for place, tensor in tensors_of(arg, path):
            if is_float(ELEMENT_TYPES[tensor["dtype"].removeprefix("torch.")]):
                yield place, tensor.get("requires_grad", True)
