"""Messages on standard error while a config runs, filtered by `--log-level`."""

from __future__ import annotations

import logging
import sys

from opmark.compat.param.result import CaseResult
from opmark.errors import UserError
from opmark.units import seconds

LEVELS = ("debug", "info", "warning", "error", "critical")


class Talk:
    def __init__(self, level: str) -> None:
        if level.lower() not in LEVELS:
            raise UserError(f"--log-level: expected one of {', '.join(LEVELS)}, got `{level}`", "as in -l INFO")
        self._least = getattr(logging, level.upper())

    @property
    def shows_results(self) -> bool:
        return bool(self._least <= logging.INFO)

    def debug(self, message: str) -> None:
        self._say(logging.DEBUG, message)

    def info(self, message: str) -> None:
        self._say(logging.INFO, message)

    def warning(self, message: str) -> None:
        self._say(logging.WARNING, message)

    def result(self, found: CaseResult) -> None:
        """Print one line for a finished case."""
        times = (("forward", found.forward_ms), ("backward", found.backward_ms))
        medians = [f"{name} {seconds(ms / 1e3)}" for name, ms in times if ms is not None]
        if found.error:
            error = f"{found.error['phase']} {found.error['status']}: {found.error['reason']}"
            self._say(logging.ERROR, f"{' '.join([found.op_run_id, *medians])}: {error}")
        else:
            self.info(" ".join([found.op_run_id, *medians]))

    def _say(self, level: int, message: str) -> None:
        if level >= self._least:
            print(message, file=sys.stderr, flush=True)
