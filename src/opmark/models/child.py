"""The process that loads a model for a parent that must not: `python -m opmark.models.child WHAT NAME PARAMS`.

It prints what it found as the last line of its output, as JSON: the facts or the description of the model, or the
message and the hint of an error.
"""

from __future__ import annotations

import json
import sys

import msgspec

from opmark.errors import OpmarkError, UserError
from opmark.models.offline import no_network


def main() -> int:
    from opmark.models.family import source_of

    what, name, written = sys.argv[1:]
    try:
        source = source_of(name)
        assert source is not None
        with no_network():
            found = source.count(json.loads(written)) if what == "facts" else source.describe(json.loads(written))
    except OpmarkError as error:
        print(msgspec.json.encode((error.message, error.hint, isinstance(error, UserError))).decode())
        return 1
    print(msgspec.json.encode(found).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
