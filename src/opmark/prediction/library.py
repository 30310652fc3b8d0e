"""Library: where the models that a user has trained are kept."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from opmark.prediction.predictor import ENERGY, Predictor, load, shipped


def model_folder() -> Path:
    import platformdirs

    return platformdirs.user_data_path("opmark") / "predictors"


def own_model(backend: str, quantity: str | None = None) -> Path:
    """Return the file of the user's model of a backend, whether it exists or not."""
    return model_folder() / f"{backend}{'.energy' if quantity == ENERGY else ''}.npz"


def model_of_backend(backend: str) -> Predictor | None:
    """Return the user's model of the times of a backend, else the one that ships if it is of that backend."""
    path = own_model(backend)
    if path.is_file():
        return _loaded(path, path.stat().st_mtime_ns)
    return _shipped() if backend == _SHIPPED_BACKEND else None


_SHIPPED_BACKEND = "torch-cuda"


@lru_cache(maxsize=4)
def _loaded(path: Path, _changed: int) -> Predictor:
    return load(path)


@lru_cache(maxsize=1)
def _shipped() -> Predictor:
    return shipped()
