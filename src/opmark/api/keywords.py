"""Arguments of the functions of the library: a request's fields as keywords, and types that are checked."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

from opmark.errors import nearest
from opmark.schema.options import check_type

P = ParamSpec("P")
RequestT = TypeVar("RequestT")
ReturnT = TypeVar("ReturnT")


def keywords_of(
    request: Callable[P, RequestT],
) -> Callable[[Callable[[RequestT], ReturnT]], Callable[P, ReturnT]]:
    """Decorate a function of one request, so that it takes the fields of the request as keyword arguments.

    Type checkers, editors and `inspect.signature` see the full signature. The function that takes the request is still
    available as `__wrapped__`.
    """

    def decorate(function: Callable[[RequestT], ReturnT]) -> Callable[P, ReturnT]:
        signature = inspect.signature(request)
        known = {
            name: parameter.replace(annotation=_plain(parameter)) for name, parameter in signature.parameters.items()
        }

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ReturnT:
            for name in kwargs:
                if name not in known:
                    near = nearest(name, known)
                    meant = f"; did you mean '{near}'?" if near else ""
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument '{name}'{meant}")
            return function(request(*args, **kwargs))

        returned = inspect.signature(function).return_annotation
        call.__signature__ = inspect.Signature(list(known.values()), return_annotation=returned)  # type: ignore[attr-defined]
        return call

    return decorate


def typed(function: Callable[P, ReturnT]) -> Callable[P, ReturnT]:
    """Decorate a public function that takes no request, so that an argument of a wrong type is refused with a message.

    The annotations are evaluated at the first call.
    """
    signature = inspect.signature(function)
    hints: dict[str, Any] = {}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> ReturnT:
        if not hints:
            # What a function returns may be a name that its module imports for type checkers alone.
            given = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
            holder = type("Parameters", (), {"__annotations__": given})
            hints.update(get_type_hints(holder, vars(sys.modules[function.__module__])))
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = signature.parameters[name].kind
            several = value if kind is inspect.Parameter.VAR_POSITIONAL else [value]
            for one in several:
                check_type(name, one, hints.get(name, Any))
        return function(*args, **kwargs)

    return call


def _plain(parameter: inspect.Parameter) -> object:
    """Return the type of a parameter without its Option."""
    annotation = parameter.annotation
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
