"""Refuses connections to other hosts while a model is constructed or loaded, unless the user permits them."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any
from unittest import mock

from opmark.errors import UserError

VARIABLE = "OPMARK_ALLOW_NETWORK"
_HUB = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
_HUB_ERRORS = frozenset({"OfflineModeIsEnabled", "LocalEntryNotFoundError"})
"""What the hub of Hugging Face raises where it finds nothing on this machine: it then opens no socket."""
_HUB_HOST = "huggingface.co"


@contextmanager
def no_network() -> Iterator[None]:
    """Refuse connections to other hosts, with a UserError that names the host. Sockets within this machine work.

    The error is raised again where code of the model turned it into one of its own, which may not say the reason.
    """
    if os.environ.get(VARIABLE) == "1":
        yield
        return
    refused: list[UserError] = []

    def check(host: Any) -> None:
        if not _is_local(host):
            refused.append(_refusal(host))
            raise refused[-1]

    def look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        check(host)
        return found(host, *args, **kwargs)

    class LocalSocket(socket.socket):
        def connect(self, address: Any, /) -> None:
            self._check(address)
            super().connect(address)

        def connect_ex(self, address: Any, /) -> int:
            self._check(address)
            return super().connect_ex(address)

        def _check(self, address: Any) -> None:
            if self.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
                check(address[0])

    found = socket.getaddrinfo
    with (
        mock.patch.dict(os.environ, _HUB),
        mock.patch.object(socket, "socket", LocalSocket),
        mock.patch.object(socket, "getaddrinfo", look_up),
    ):
        try:
            yield
        except Exception as error:
            if refused:
                raise refused[0] from error
            if _asked_hub(error):
                raise _refusal(_HUB_HOST) from error
            raise


def _is_local(host: Any) -> bool:
    name = host.decode() if isinstance(host, bytes) else host
    if name in (None, "", "localhost", socket.gethostname()):
        return True
    try:
        address = ip_address(str(name).partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refusal(host: Any) -> UserError:
    name = host.decode() if isinstance(host, bytes) else host
    return UserError(
        f"the model tries to reach {name} while it is loaded",
        f"opmark downloads nothing by itself: give it files of this machine, or permit it with {VARIABLE}=1",
    )


def _asked_hub(error: BaseException | None) -> bool:
    """Return whether an error, or one that it was raised from, is the hub's about a file that is not here."""
    seen = 0
    while error is not None and seen < 10:
        if type(error).__name__ in _HUB_ERRORS:
            return True
        error, seen = error.__cause__ or error.__context__, seen + 1
    return False
