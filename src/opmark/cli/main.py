"""The entry point of the command line: `opmark COMMAND`. Imports are lazy, so that each command starts quickly."""

from __future__ import annotations

import os
import sys

from opmark.cli.help_text import COMPLETE_VARIABLE, FIRST_STEPS
from opmark.cli.interop import FOREIGN_COMMANDS, run_foreign_command
from opmark.cli.output import escape_unencodable
from opmark.errors import UserError


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 a case failed, 2 a mistake of the user, 130 interrupted."""
    escape_unencodable()
    try:
        if len(sys.argv) == 1 and COMPLETE_VARIABLE not in os.environ:
            print(FIRST_STEPS)
            sys.exit(0)
        if len(sys.argv) > 1 and sys.argv[1] in FOREIGN_COMMANDS:
            sys.exit(_run_foreign_command(sys.argv[1], sys.argv[2:]))
        from opmark.cli.app import make_app

        make_app()(prog_name="opmark")
    except UserError as error:
        from opmark.api.requests import talk

        talk(f"error: {error.message}")
        if error.hint:
            talk(f"hint: {error.hint}")
        sys.exit(2)


def _run_foreign_command(command: str, arguments: list[str]) -> int:
    """Run another system's command line. A reader such as `head` may close the output early; for opmark's own commands
    click takes care of that."""
    try:
        code = run_foreign_command(command, arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return 1
    return code


if __name__ == "__main__":
    main()
