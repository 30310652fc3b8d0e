"""Answers that take long to find and are asked for again: the last few of a store, forgotten with it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from opmark.store.sql import SqlStore

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


@dataclass
class _Answer(Generic[_Value]):
    lock: Lock = field(default_factory=Lock)
    found: list[_Value] = field(default_factory=list)
    """The one, as soon as it is made."""


class Remembered(Generic[_Key, _Value]):
    """A key has to say all that an answer depends on. Who comes second for the same waits for who came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._known: OrderedDict[_Key, _Answer[_Value]] = OrderedDict()

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        with self._lock:
            answer = self._known.setdefault(key, _Answer())
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        with answer.lock:
            if not answer.found:
                answer.found.append(make())
            return answer.found[0]


class OfStore(Generic[_Value]):
    """One of a kind for each store that is open."""

    def __init__(self, make: Callable[[], _Value]) -> None:
        self._make = make
        self._lock = Lock()
        self._known: WeakKeyDictionary[SqlStore, _Value] = WeakKeyDictionary()

    def of(self, store: SqlStore) -> _Value:
        with self._lock:
            if store not in self._known:
                self._known[store] = self._make()
            return self._known[store]
