"""`opmark`, and `python -m opmark`."""

import os
import signal
from contextlib import suppress
from typing import NoReturn


def main() -> None:
    """Run the command line. Ctrl-C ends it while its modules are imported too, where a KeyboardInterrupt would be a
    traceback."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # and not ignored, as by nohup
        signal.signal(signal.SIGINT, _end)
    from opmark.cli.main import main as run_command_line

    signal.signal(signal.SIGINT, usual)
    run_command_line()


def _end(number: int, _: object) -> NoReturn:
    with suppress(OSError):  # standard error may be closed
        os.write(2, b"interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
