"""Run drills of faults with a seed, for a bounded time, and print what was tried, survived and lost.

python -m tests.faults --seconds 270 --seed 7
python -m tests.faults --only kill --seed 7 --first 12 --count 1     repeats one drill
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

from tests.faults.drills import DRILLS, drill_site
from tests.helpers.postgres_server import programs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=270.0, help="time for all drills together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", choices=list(DRILLS), help="this drill alone")
    parser.add_argument("--first", type=int, default=0, help="number of the first drill")
    parser.add_argument("--count", type=int, help="drills of each kind at most")
    options = parser.parse_args()
    kinds = options.only or list(DRILLS)
    if programs() is None and "stopped server" in kinds:
        print("PostgreSQL is not installed: its drill is left out", file=sys.stderr)
        kinds.remove("stopped server")
    end = time.monotonic() + options.seconds
    failed = 0
    print(f"seed {options.seed}\n{'drill':16}{'tried':>8}{'survived':>10}{'records':>10}{'lost':>8}")
    for left, kind in zip(range(len(kinds), 0, -1), kinds, strict=True):
        until = time.monotonic() + (end - time.monotonic()) / left
        tried = survived = confirmed = lost = 0
        for number in count(options.first):
            if tried and (time.monotonic() > until or tried == options.count):
                break
            folder = Path(tempfile.mkdtemp(prefix="opmark-faults-"))
            try:
                with drill_site(folder / "site", f"{options.seed}/{kind}/{number}") as site:
                    DRILLS[kind](site)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            outcome = site.outcome
            tried, survived = tried + 1, survived + outcome.survived
            confirmed, lost = confirmed + outcome.confirmed, lost + len(outcome.lost)
            for text in (*outcome.lost, *outcome.problems):
                print(f"{kind} {number}: {text}", file=sys.stderr)
        failed += tried - survived
        print(f"{kind:16}{tried:>8}{survived:>10}{confirmed:>10}{lost:>8}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
