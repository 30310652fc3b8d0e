"""The command line: `opmark COMMAND`. What a command does not need is not imported for it."""

from __future__ import annotations

import os
import sys

from opmark.cli.interop import DROP_INS, drop_in
from opmark.cli.output import write_out_the_unwritable
from opmark.errors import UserError


def main() -> None:
    """Exit code 0: all well. 1: a case failed. 2: the user's mistake. 130: interrupted."""
    write_out_the_unwritable()
    try:
        if len(sys.argv) > 1 and sys.argv[1] in DROP_INS:
            sys.exit(_drop_in(sys.argv[1], sys.argv[2:]))
        from opmark.cli.app import make_app

        make_app(sys.argv[1] if len(sys.argv) > 1 else "")()
    except UserError as error:
        from opmark.report.text import harmless  # a message may quote a label that anybody wrote

        print(f"error: {harmless(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {harmless(error.hint)}", file=sys.stderr)
        sys.exit(2)


def _drop_in(command: str, arguments: list[str]) -> int:
    """Who reads the output may stop reading, as `head` does; click sees to that for the other commands."""
    try:
        code = drop_in(command, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing is written at the end either
        return 1
    return code


if __name__ == "__main__":
    main()
