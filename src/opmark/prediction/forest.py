"""Forest: boosted trees as plain arrays. LightGBM grows them; NumPy alone evaluates them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from opmark.errors import UserError

_CHUNK = 4096
"""Number of samples that are evaluated at once: memory is this times the number of trees."""


@dataclass(frozen=True)
class Forest:
    feature: np.ndarray
    """For each node, the feature it asks for; -1 for a leaf."""
    threshold: np.ndarray
    """For each node, the value up to which the left child is taken; for a leaf, its value."""
    left: np.ndarray
    right: np.ndarray
    roots: np.ndarray
    depth: int

    def predict(self, matrix: np.ndarray) -> np.ndarray:
        parts = [self._predict(matrix[start : start + _CHUNK]) for start in range(0, len(matrix), _CHUNK)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _predict(self, matrix: np.ndarray) -> np.ndarray:
        nodes = np.repeat(self.roots[None], len(matrix), 0)
        rows = np.arange(len(matrix))[:, None]
        for _ in range(self.depth):
            asked = self.feature[nodes]
            goes_left = matrix[rows, np.maximum(asked, 0)] <= self.threshold[nodes]
            nodes = np.where(asked < 0, nodes, np.where(goes_left, self.left[nodes], self.right[nodes]))
        return np.asarray(self.threshold[nodes].sum(1, dtype=float))

    def arrays(self) -> dict[str, np.ndarray]:
        return {
            "feature": self.feature, "threshold": self.threshold, "left": self.left, "right": self.right,
            "roots": self.roots,
        }  # fmt: skip

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Forest:
        feature, left, right = (np.asarray(arrays[name], dtype=np.int32) for name in ("feature", "left", "right"))
        roots = np.asarray(arrays["roots"], dtype=np.int32)
        count = len(feature)
        inside = feature >= 0
        for child in (left, right):
            if ((child[inside] <= np.flatnonzero(inside)) | (child[inside] >= count)).any():
                raise ValueError("a tree does not lead downwards")
        level, depth = roots, 0
        while len(level):  # children come after their parents, so that this ends
            level = level[feature[level] >= 0]
            level = np.unique(np.concatenate([left[level], right[level]]))
            depth += 1
        return cls(feature, np.asarray(arrays["threshold"], dtype=np.float32), left, right, roots, depth)


_NOTHING = np.zeros(0, dtype=np.int32)
EMPTY = Forest(_NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING, depth=0)


def grow_forest(
    matrix: np.ndarray, target: np.ndarray, *, rounds: int, leaves: int, seed: int, weight: np.ndarray | None = None
) -> Forest:
    """Train boosted trees. One thread: on a shared machine several threads wait for each other."""
    try:
        import lightgbm
    except ImportError:
        raise UserError(
            "training needs LightGBM, which is not installed",
            "pip install 'opmark[predict]'; predicting needs no extra",
        ) from None
    settings: dict[str, Any] = {
        "objective": "huber", "alpha": 0.3, "learning_rate": 20 / rounds, "num_leaves": leaves,
        "min_child_samples": max(3, min(20, len(target) // 40)), "feature_fraction": 0.6, "bagging_fraction": 0.7,
        "bagging_freq": 1, "verbose": -1, "num_threads": 1, "seed": seed, "deterministic": True, "force_row_wise": True,
        "max_bin": 127, "boost_from_average": True,
    }  # fmt: skip
    booster = lightgbm.train(settings, lightgbm.Dataset(matrix, target, weight=weight), rounds)
    return _forest_of(booster.dump_model())


def _forest_of(dump: dict[str, Any]) -> Forest:
    feature: list[int] = []
    threshold: list[float] = []
    left: list[int] = []
    right: list[int] = []
    roots = []

    def add(node: dict[str, Any]) -> int:
        here = len(feature)
        leaf = "split_feature" not in node
        feature.append(-1 if leaf else node["split_feature"])
        threshold.append(node["leaf_value"] if leaf else node["threshold"])
        left.append(here)
        right.append(here)
        if not leaf:
            left[here], right[here] = add(node["left_child"]), add(node["right_child"])
        return here

    for tree in dump["tree_info"]:
        roots.append(add(tree["tree_structure"]))
    columns = {"feature": feature, "threshold": threshold, "left": left, "right": right, "roots": roots}
    return Forest.of_arrays({name: np.asarray(values) for name, values in columns.items()})
