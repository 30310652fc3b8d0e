"""PARAM's operators as callables of opmark: in-place methods, TorchScript schemas, and two networks."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from opmark.importers.param.arguments import Misfit, quote

MODELS = {
    "pytorch:alex_net": "opmark.compat.param.models:AlexNet",
    "pytorch.model.alex_net": "opmark.compat.param.models:AlexNet",
    "pytorch.model.resnet": "opmark.compat.param.models:ResNet",
}
_IN_PLACE = re.compile(r"torch\.([a-z]\w*[a-z0-9]_)")
# For these, torch has a function, but a tensor has no method.
_FUNCTIONS = frozenset(
    {"alpha_dropout_", "celu_", "dropout_", "embedding_renorm_", "feature_alpha_dropout_", "feature_dropout_",
     "rrelu_", "selu_", "threshold_"}
)  # fmt: skip
_FUNCTION = re.compile(r"torch\.(\w+\.)*[a-z_]\w*")


class Call(NamedTuple):
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


def make_call(name: str, op: str, build: Call | None, call: Call) -> OperatorCall:
    """Return the call of an operator of PARAM, whose name in opmark is `op`; raise Misfit for a wrong build."""
    if name.startswith("aten::"):
        return _call_by_schema(name, build, call)
    if build is None:
        return OperatorCall(op, call.args, call.kwargs)
    return OperatorCall(
        op, call.args, call.kwargs, {"args": build.args, **({"kwargs": build.kwargs} if build.kwargs else {})}
    )


def is_function(name: str) -> bool:
    """Whether an operator is a function, and not a class, whose name in torch begins with a capital letter."""
    return bool(_FUNCTION.fullmatch(name)) or name.startswith("aten::")


def works_in_place(name: str) -> bool:
    """Whether the name ends in an underscore, as in torch.add_, aten::mul_, torch.nn.functional.relu_."""
    return is_function(name) and name.endswith("_") and not name.endswith("__")


_SCHEMA = re.compile(r"\s*(aten::\w+)(?:\.(\w+))?\s*\((.*)\)\s*->.*", re.DOTALL)
_SCHEMA_HINT = "as in aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
_LONGEST = 10_000
# Older files have types in place of a schema, and pass these arguments by position, which torch takes by name only.
_BY_NAME = {"aten::add": (2, "alpha"), "aten::sub": (2, "alpha"), "aten::rsub": (2, "alpha")}


def _call_by_schema(name: str, build: Call | None, call: Call) -> OperatorCall:
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


def _only_types(build: Call) -> bool:
    return len(build.args) == 1 and isinstance(build.args[0], list)


def _schema_text(build: Call) -> str:
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
