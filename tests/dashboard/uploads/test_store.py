"""Simultaneous uploads: limits of receiving and storing, and pages that do not wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from opmark.dashboard.app import application
from opmark.dashboard.auth import AccessPolicy
from opmark.dashboard.uploads import store
from opmark.schema.upload import PushReply


class Slow:
    """Stands for storing an upload, and waits until it may end."""

    def __init__(self) -> None:
        self.lock, self.go_on, self.begun = threading.Lock(), threading.Event(), threading.Semaphore(0)
        self.now = self.most = 0

    def __call__(self, *_: object) -> PushReply:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.begun.release()
        assert self.go_on.wait(20)
        with self.lock:
            self.now -= 1
        return PushReply(run="r", begun=False, records=0, new=0, stored=0, findings=0)


def test_too_many_uploads_are_told_to_come_again(
    db: Path, connect: Callable[[Any], Any], token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, taken = Slow(), threading.Semaphore(0)
    body_of = store._read_upload_body

    async def body(*what: Any) -> bytes:
        found = await body_of(*what)
        taken.release()
        return found

    monkeypatch.setattr(store, "MOST", 4)
    monkeypatch.setattr(store, "receive", slow)
    monkeypatch.setattr(store, "_read_upload_body", body)
    headers = {"authorization": f"Bearer {token}"}
    with connect(application(db, access=AccessPolicy(token))) as client, ThreadPoolExecutor(4) as pool:
        sent = [pool.submit(client.post, "/api/runs", headers=headers, content=b"x") for _ in range(4)]
        for slots, count in ((taken, 4), (slow.begun, store.STORED)):
            assert all(slots.acquire(timeout=20) for _ in range(count))
        beyond = client.post("/api/runs", headers=headers, content=b"x")
        assert (beyond.status_code, beyond.headers["retry-after"]) == (503, "5")
        assert client.get("/api/runs", headers=headers).status_code == 200
        slow.go_on.set()
        assert [one.result().status_code for one in sent] == [200] * 4
        assert slow.most == store.STORED
        assert client.post("/api/runs", headers=headers, content=b"x").status_code == 200
