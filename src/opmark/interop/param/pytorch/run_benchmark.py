"""PARAM's run_benchmark as a module: the same as `opmark param`."""

from __future__ import annotations

import sys

from opmark.errors import OpmarkError
from opmark.interop.param.command import main

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except OpmarkError as error:
        sys.exit(f"error: {error}")
