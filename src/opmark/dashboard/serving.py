"""`opmark serve`: a dashboard over a store, until it is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from opmark.api.requests import talk
from opmark.errors import UserError
from opmark.schema.options import PathLike


def serve(
    *,
    db: PathLike | None = None,
    host: str = "127.0.0.1",
    port: int = 8431,
    token: str | None = None,
    allow_hosts: Sequence[str] = (),
    max_upload: int = 32 << 20,
    log: bool = False,
    say: Callable[[str], None] = talk,
) -> None:
    """Pages and a JSON API over a store. Port 0 picks a free one; `say` is told the address.

    Who is not on this machine needs a `token`, and so does who sends runs."""
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise UserError(f"the dashboard needs {' and '.join(missing)}", "`pip install opmark[serve]` installs it")
    from opmark.dashboard.starting import How, run_server

    run_server(How(db, host, port, token, tuple(allow_hosts), max_upload, log), say)
