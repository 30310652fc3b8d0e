"""The family `model:`: every model of the zoo, and models that users bring."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache

from opmark.errors import UnknownName
from opmark.models.operator import model_operator
from opmark.models.source import ModelSource
from opmark.models.user_source import PackagedGraph, source_of_file
from opmark.models.zoo import find, zoo
from opmark.models.zoo_source import MLIR_SUFFIX, MlirZooSource, ZooSource
from opmark.plugin import Operator
from opmark.schema.case import MODEL_PREFIX


@cache
def source_of(name: str) -> ModelSource | None:
    """Return the source of a model by its name in the zoo, or by the file or folder that it is in; NAME-mhlo is a model
    of the zoo as a module of StableHLO."""
    if entry := find(name):
        return ZooSource(entry) if entry.build else PackagedGraph(entry)
    if name.endswith(MLIR_SUFFIX) and (entry := find(name.removesuffix(MLIR_SUFFIX))):
        return MlirZooSource(entry)
    return source_of_file(name)


class _Models:
    last = False

    def operator(self, name: str) -> Operator | None:
        if not name.startswith(MODEL_PREFIX):
            return None
        source = source_of(name.removeprefix(MODEL_PREFIX))
        if source is None:
            raise UnknownName("model", name.removeprefix(MODEL_PREFIX), zoo(), "opmark list models")
        return model_operator(source)

    def names(self, pattern: str) -> Sequence[str] | None:
        if not pattern.startswith(MODEL_PREFIX):
            return None
        wanted = pattern.removeprefix(MODEL_PREFIX)
        return [MODEL_PREFIX + name for name in zoo() if fnmatchcase(name, wanted)]


MODELS = _Models()
