"""The worker of `opmark run`, which starts before the modules that plan a run are imported."""

from __future__ import annotations

import os
from contextlib import suppress

from opmark.api.requests import RunRequest
from opmark.errors import UserError
from opmark.runner.plan import default_threads
from opmark.runner.ranks.job import detect_job
from opmark.runner.supervisor import WorkerPool
from opmark.schema.options import as_list, split_names


def start_early_worker(request: RunRequest) -> WorkerPool:
    """Start the worker that the options most likely ask for: it imports its framework while this process plans the run.
    None is started where torchrun or another launcher started several of this process: ranks have workers of their
    own."""
    pool = WorkerPool()
    backends, threads = split_names(request.backend), as_list(request.threads) or [default_threads()]
    alone = request.executor == "local" and not (request.python or request.ranks or detect_job(os.environ))
    if len(backends) == 1 and alone:
        with suppress(UserError):  # a wrong name is reported with all else that is wrong
            pool.prestart(backends[0], threads[0])
    return pool
