"""PARAM's operators by their names here: methods that work in place, TorchScript schemas, its two networks."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from opmark.importers.param.arguments import Misfit, shown

MODELS = {
    "pytorch:alex_net": "opmark.compat.param.models:AlexNet",
    "pytorch.model.alex_net": "opmark.compat.param.models:AlexNet",
    "pytorch.model.resnet": "opmark.compat.param.models:ResNet",
}
_IN_PLACE = re.compile(r"torch\.([a-z]\w*[a-z0-9]_)")
# Of these, torch has a function and a tensor no method.
_FUNCTIONS = frozenset(
    {"alpha_dropout_", "celu_", "dropout_", "embedding_renorm_", "feature_alpha_dropout_", "feature_dropout_",
     "rrelu_", "selu_", "threshold_"}
)  # fmt: skip
_FUNCTION = re.compile(r"torch\.(\w+\.)*[a-z_]\w*")


class Call(NamedTuple):
    """Arguments in opmark's notation."""

    args: list[Any]
    kwargs: dict[str, Any]


class Called(NamedTuple):
    """What an entry says of a call."""

    op: str
    args: list[Any]
    kwargs: dict[str, Any]
    build: dict[str, Any] | None = None


def name_here(name: str) -> str:
    """The operator that PARAM calls by this name."""
    in_place = _IN_PLACE.fullmatch(name)
    if in_place and in_place[1] not in _FUNCTIONS:
        return f"torch.Tensor.{in_place[1]}"
    return MODELS.get(name, name)


def called(name: str, here: str, build: Call | None, call: Call) -> Called:
    """The call that an operator of PARAM makes, `here` its name here; Misfit where a build cannot be meant."""
    if name.startswith("aten::"):
        return _of_a_schema(name, build, call)
    return Called(here, call.args, call.kwargs, build and _built(build))


def _built(build: Call) -> dict[str, Any]:
    return {"args": build.args, **({"kwargs": build.kwargs} if build.kwargs else {})}


def is_function(name: str) -> bool:
    """Whether there is nothing to build: a class of torch is written with a capital letter."""
    return bool(_FUNCTION.fullmatch(name)) or name.startswith("aten::")


def works_in_place(name: str) -> bool:
    """As torch marks it: torch.add_, aten::mul_, torch.nn.functional.relu_."""
    return is_function(name) and name.endswith("_") and not name.endswith("__")


_SCHEMA = re.compile(r"\s*(aten::\w+)(?:\.(\w+))?\s*\((.*)\)\s*->.*", re.DOTALL)
_SCHEMA_HINT = "as in aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
_LONGEST = 10_000
# What older files, which give types in place of a schema, pass by position and torch takes by name only.
_BY_NAME = {"aten::add": (2, "alpha"), "aten::sub": (2, "alpha"), "aten::rsub": (2, "alpha")}


def _of_a_schema(name: str, build: Call | None, call: Call) -> Called:
    """The overload that the schema names. PARAM passes all by position, also what torch takes by name only."""
    args, kwargs = call
    if build is None or _only_types(build):
        place, keyword = _BY_NAME.get(name, (len(args), ""))
        return Called(name, args[:place], {**dict(zip([keyword], args[place : place + 1], strict=False)), **kwargs})
    text = _schema_text(build)
    found = _SCHEMA.fullmatch(text)
    if found is None:
        raise Misfit(".args[0]", f"expected the schema of an operator, got {shown(text)}", _SCHEMA_HINT, build=True)
    if found[1] != name:
        raise Misfit(".args[0]", f"expected the schema of `{name}`, got that of `{found[1]}`", _SCHEMA_HINT, build=True)
    names = [_argument_name(part) for part in _split(found[3])]
    positional = names.index("*") if "*" in names else len(names)
    by_name = names[positional + 1 :]
    if len(args) > positional + len(by_name):
        raise Misfit(".args", f"`{name}` takes {positional + len(by_name)} arguments, got {len(args)}")
    return Called(
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
            ".args", f"expected the schema of an operator alone, got {shown(build.args)}", _SCHEMA_HINT, build=True
        )
    return text


def _split(text: str) -> list[str]:
    """The arguments of a schema; a comma in brackets or quotes separates nothing."""
    parts = re.findall(r"""(?:[^,(\["']|\([^)]*\)|\[[^\]]*\]|"[^"]*"|'[^']*')+""", text)
    return [part.strip() for part in parts if part.strip()]


def _argument_name(text: str) -> str:
    return text.partition("=")[0].split()[-1] if text.partition("=")[0].split() else text
