"""Closes connections of slow clients, whose request is not complete in time.

uvicorn closes connections that are idle between two requests, but not those that never finish their headers, nor those
that keep sending a body after the answer. The readers of bodies have time limits of their own.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_WITHIN = 15.0
"""Seconds from the first byte, or from the connection, to the last header; and from an answer to the end of its
request."""


class Bounded(H11Protocol):
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._goes_on_after_its_answer():
            return
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._deadline is None and self.timeout_keep_alive_task is None:
            self._wait()  # the next request of a connection that is kept

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._deadline is None and self._goes_on_after_its_answer():
            self._wait()

    def _goes_on_after_its_answer(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY and self.cycle is not None and self.cycle.response_complete

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(HEADERS_WITHIN, self.transport.close)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
