"""The command line: `opmark COMMAND`. What a command does not need is not imported for it."""

from __future__ import annotations

import sys

from opmark.cli.drop_in import DROP_INS, drop_in
from opmark.errors import UserError


def main() -> None:
    """Exit code 0: all well. 1: a case failed. 2: the user's mistake. 130: interrupted."""
    try:
        if len(sys.argv) > 1 and sys.argv[1] in DROP_INS:
            sys.exit(drop_in(sys.argv[1], sys.argv[2:]))
        from opmark.cli.app import app

        app()
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
