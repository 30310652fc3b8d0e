"""The process that loads a model for a parent that must not: `python -m opmark.models.child WHAT NAME PARAMS OPTIONS`.

It prints what it found as the last line of its output, as JSON: facts, description, operators or exported files of
the model, or the message and the hint of an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from opmark.errors import OpmarkError, UserError
from opmark.models.offline import no_network
from opmark.models.source import ModelSource
from opmark.plugin import Params


def main() -> int:
    from opmark.models.family import source_of

    what, name, written, options = sys.argv[1:]
    try:
        source = source_of(name)
        assert source is not None
        with no_network():
            print(msgspec.json.encode(_find(what, source, json.loads(written), json.loads(options))).decode())
    except OpmarkError as error:
        print(msgspec.json.encode((error.message, error.hint, isinstance(error, UserError))).decode())
        return 1
    return 0


def _find(what: str, source: ModelSource, params: Params, options: Mapping[str, Any]) -> Any:
    if what == "operators":
        from opmark.models.tracing import extract

        return extract(source, params, **options)
    if what == "export":
        from opmark.models.writing import export_model

        return export_model(source, params, **options)
    return source.count(params) if what == "facts" else source.describe(params)


if __name__ == "__main__":
    sys.exit(main())
