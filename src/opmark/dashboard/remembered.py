"""Answers that take long to find and are asked for again: the last few of a store, forgotten with it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from opmark.store.sql import SqlStore

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class Remembered(Generic[_Key, _Value]):
    """A key has to say all that an answer depends on. Who comes second waits for who came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._known: OrderedDict[_Key, _Value] = OrderedDict()

    def get(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        with self._lock:
            if key not in self._known:
                self._known[key] = make()
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
            return self._known[key]


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
