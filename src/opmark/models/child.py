"""The process that loads a model for one that must not or cannot: `python -m opmark.models.child QUESTION`.

It answers a question as the last line of its output, as JSON: facts, description, operators or exported files of the
model, or the message and the hint of an error. With `serve` it answers the questions that it reads, line by line; a
guest without torch asks it for weights, reference and effects of rounding too.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from opmark.errors import OpmarkError
from opmark.models.calls import CALLS, OVERLOADS
from opmark.models.host import SERVE, ChildAnswer, ChildQuestion, describe_error, pack, unpack_all
from opmark.models.offline import no_network
from opmark.models.source import ModelSource
from opmark.plugin import Params


def main() -> int:
    asked = sys.argv[1]
    if asked != SERVE:
        print(_answer(asked).decode())
        return 0
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a model prints is no answer
    for line in sys.stdin.buffer:
        answers.write(_answer(line) + b"\n")
        answers.flush()
    return 0


def _answer(asked: str | bytes) -> bytes:
    from opmark.models.family import source_of

    question = msgspec.json.decode(asked, type=ChildQuestion)
    try:
        if question.what == CALLS:
            from opmark.models.tracing import know_calls

            return _encode(know_calls(**question.options))
        if question.what == OVERLOADS:
            from opmark.models.overloads import know_overloads

            return _encode(know_overloads(**question.options))
        source = source_of(question.name)
        assert source is not None
        with no_network():
            return _encode(_find(question.what, source, question.params, question.options))
    except OpmarkError as error:
        return msgspec.json.encode(describe_error(error))


def _encode(found: Any) -> bytes:
    return msgspec.json.encode(ChildAnswer(msgspec.Raw(msgspec.json.encode(found))))


def _find(what: str, source: ModelSource, params: Params, options: dict[str, Any]) -> Any:
    from opmark.models.facts import description, facts

    if what == "operators":
        from opmark.models.tracing import extract

        return extract(source, params, **options)
    if what == "weights":
        from opmark.models.checkpoint import weights_file

        return str(weights_file(source, params))
    if what in ("reference", "effects"):
        from opmark.models import execution

        if what == "effects":
            return execution.effects(source, params)
        return [pack(output) for output in execution.reference(source, params, **unpack_all(options["arrays"]))]
    if what == "export":
        from opmark.models.writing import export_model

        return export_model(source, params, **options)
    return facts(source, params) if what == "facts" else description(source, params)


if __name__ == "__main__":
    sys.exit(main())
