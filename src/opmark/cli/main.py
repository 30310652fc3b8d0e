"""The entry point of the command line: `opmark COMMAND`. Imports are lazy, so that each command starts quickly."""

from __future__ import annotations

import os
import signal
import sys

from opmark.cli.interop import FOREIGN_COMMANDS, run_foreign_command
from opmark.cli.output import escape_unencodable
from opmark.errors import UserError

_INTERRUPTED = 130


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 a case failed, 2 a mistake of the user, 130 interrupted by Ctrl-C,
    143 by SIGTERM."""
    escape_unencodable()
    terminated = _interrupt_on_sigterm()
    try:
        if len(sys.argv) > 1 and sys.argv[1] in FOREIGN_COMMANDS:
            sys.exit(_run_foreign_command(sys.argv[1], sys.argv[2:]))
        from opmark.cli.app import make_app

        make_app()(prog_name="opmark")
    except UserError as error:
        from opmark.report.text import harmless  # a message may quote labels with control characters

        print(f"error: {harmless(error.message)}", file=sys.stderr)
        if error.hint:
            print(f"hint: {harmless(error.hint)}", file=sys.stderr)
        sys.exit(2)
    except SystemExit as end:
        if terminated and end.code == _INTERRUPTED:
            sys.exit(128 + signal.SIGTERM)
        raise


def _interrupt_on_sigterm() -> list[int]:
    """Let SIGTERM end a command as Ctrl-C does, and return a list that then has an entry. A second one does not disturb
    the end; schedulers send SIGKILL if it takes too long."""
    received: list[int] = []

    def interrupt(number: int, _: object) -> None:
        if not received:
            received.append(number)
            raise KeyboardInterrupt

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)
    return received


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
