"""The entry point of the command line: `opmark COMMAND`. Imports are lazy, so that each command starts quickly."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

from opmark.cli.help_text import COMPLETE_VARIABLE, FIRST_STEPS
from opmark.cli.interop import FOREIGN_COMMANDS, run_foreign_command
from opmark.cli.output import escape_unencodable, open_standard_streams, why_stdout_fails
from opmark.errors import UserError

_INTERRUPTED = 130
_STORING = frozenset({"run", "ab", "check", "bisect", *FOREIGN_COMMANDS})
"""Commands that store what they measure."""


def main() -> None:
    """Run the command line. Exit codes: 0 success, 1 a case failed, 2 a mistake of the user, 130 interrupted by Ctrl-C,
    143 by SIGTERM."""
    open_standard_streams()
    escape_unencodable()
    terminated = _interrupt_on_sigterm()
    try:
        try:
            _run_command()
        finally:
            sys.stdout.flush()  # here, where it can still be said that this is not possible
    except UserError as error:
        _refuse(error)
    except (KeyboardInterrupt, RuntimeError) as error:  # commands that have more to say catch it themselves
        # Until 3.11, Python makes a RuntimeError of what interrupts the making of a class.
        if not isinstance(error.__cause__ or error, KeyboardInterrupt):
            raise
        print("interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGTERM if terminated else _INTERRUPTED)
    except SystemExit as end:
        if terminated and end.code == _INTERRUPTED:
            sys.exit(128 + signal.SIGTERM)
        raise
    except BrokenPipeError:  # a reader such as `head` has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        sys.exit(1)
    except OSError as error:
        if error.filename is None:
            if not (why := why_stdout_fails()):
                raise
            hint = "write to a disk with space left, or to a pipe or terminal that is open"
            if sys.argv[1:2] and sys.argv[1] in _STORING:
                hint = "what was measured before is stored: `opmark runs` lists it, and `opmark show RUN` prints it"
            _refuse(UserError(f"standard output cannot be written: {why}", hint))
        hint = "name a path that can be reached, or change its permissions"
        _refuse(UserError(f"{error.filename}: {error.strerror}", hint))


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


def _run_command() -> None:
    if len(sys.argv) == 1 and COMPLETE_VARIABLE not in os.environ:
        print(FIRST_STEPS)
        sys.exit(0)
    if len(sys.argv) > 1 and sys.argv[1] in FOREIGN_COMMANDS:
        sys.exit(run_foreign_command(sys.argv[1], sys.argv[2:]))
    from opmark.cli.app import make_app

    make_app()(prog_name="opmark")


def _refuse(error: UserError) -> NoReturn:
    from opmark.report.text import harmless  # a message may quote labels with control characters

    print(f"error: {harmless(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"hint: {harmless(error.hint)}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
