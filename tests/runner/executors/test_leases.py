from __future__ import annotations

import pytest

from opmark.runner.executors.leases import TERM, LeaseBook
from opmark.schema.fleet import Lease, Owner, conflict

ANN, BOB = Owner("ann", "desk", "opmark run"), Owner("bob", "shelf", "opmark ab")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(clock: Clock) -> LeaseBook:
    return LeaseBook(clock)


def leased(book: LeaseBook, *devices: str, owner: Owner = ANN) -> Lease:
    lease = book.acquire(devices, owner).lease
    assert lease is not None
    return lease


def test_a_device_has_one_holder(book: LeaseBook) -> None:
    lease = leased(book, "a/cpu")
    answer = book.acquire(["a/cpu"], BOB)
    assert answer.lease is None
    assert answer.held_by == lease
    leased(book, "b/cpu", owner=BOB)
    book.release(lease.token)
    leased(book, "a/cpu", owner=BOB)


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ("a/cpu", "a/gpu:0", True),
        ("a/gpu:0", "a/gpu:0", True),
        ("a/gpu:0", "a/gpu:1", False),
        ("a/cpu", "b/cpu", False),
        ("a/gpu:1", "a/cpu", True),
    ],
)
def test_the_processors_of_a_node_stand_for_all_of_it(one: str, other: str, apart: bool) -> None:
    assert conflict(one, other) is apart


def test_several_devices_are_leased_together_or_not_at_all(book: LeaseBook) -> None:
    leased(book, "a/gpu:1")
    assert book.acquire(["a/gpu:0", "a/gpu:1"], BOB).lease is None
    assert len(book.state().leases) == 1
    leased(book, "a/gpu:0", "a/gpu:2", owner=BOB)


def test_a_lease_ends_unless_it_is_renewed(book: LeaseBook, clock: Clock) -> None:
    lease = leased(book, "a/cpu")
    for _ in range(5):
        clock.now += 0.9 * TERM
        renewed = book.renew(lease.token).lease
        assert renewed is not None
        assert renewed.expires == clock.now + TERM
        assert renewed.since == 1000.0
    clock.now += 1.1 * TERM
    assert book.state().leases == []
    assert book.renew(lease.token).lease is None
    leased(book, "a/cpu", owner=BOB)
    book.release(lease.token)  # of a lease that is another's by now: nothing happens
    assert [one.owner for one in book.state().leases] == [BOB]


def test_a_drained_node_takes_no_work_and_its_holder_hears_of_it(book: LeaseBook) -> None:
    lease = leased(book, "a/cpu")
    book.drain("a", "drained by ann")
    assert book.renew(lease.token).drained == "drained by ann"
    assert book.acquire(["a/gpu:0"], BOB).drained == "drained by ann"
    assert book.state().drained == {"a": "drained by ann"}
    book.drain("a", "")
    assert book.renew(lease.token).drained == ""


def test_the_book_knows_for_how_long_a_node_was_idle(book: LeaseBook, clock: Clock) -> None:
    clock.now += 500
    first = book.acquire(["a/gpu:0"], ANN)
    assert first.idle == 500
    assert book.acquire(["a/gpu:1"], BOB).idle == 0
    assert first.lease is not None
    book.release(first.lease.token)
    clock.now += TERM + 1  # the other one ends too, unnoticed until somebody asks
    assert book.acquire(["a/gpu:0"], ANN).idle < TERM + 1
