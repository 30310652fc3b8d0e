"""A stream that cannot write every character writes those out that it cannot, `\\u2705`: no name stops a table."""

from __future__ import annotations

import codecs
import io
import sys

_WRITTEN_OUT = "opmark-written-out"


def write_out_the_unwritable() -> None:
    """On standard output; unless who started us has said what else to do (`PYTHONIOENCODING=ascii:replace`)."""
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper) and out.errors == "strict":
        codecs.register_error(_WRITTEN_OUT, _written_out)
        out.reconfigure(errors=_WRITTEN_OUT)


def _written_out(error: UnicodeError) -> tuple[str, int]:
    """As JSON has it, so that what is JSON stays so: other characters than those of the first plane are two."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    halves = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{halves[i : i + 4]}" for i in range(0, len(halves), 4)), error.end
