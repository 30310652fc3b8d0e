"""Predictor: the models of all classes, probes of chips, and the file that holds them."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from opmark.errors import InvalidFile, UserError
from opmark.files import whole_file
from opmark.prediction.class_model import FEWEST, ClassModel, TrainingEffort, train_class
from opmark.prediction.features import CHIP_FEATURES, features
from opmark.prediction.forest import Forest
from opmark.prediction.kernel import NOISE, update
from opmark.prediction.readers import hash_of
from opmark.prediction.samples import NEAR_ROWS, ROWS, ChipFigures, Samples, class_of, join_samples
from opmark.prediction.smooth import Smooth

VERSION = 4
FAR = 2.0
"""Octaves outside of the training data, of a size or of a chip's figure, from which a prediction is refused."""
LEAST_WIDTH = 2.0
"""Least half-width for an unseen chip without probes, in prior standard deviations: four chips whose hosts happen to be
alike do not show how slow the host of a fifth may be."""
SHIPPED = "neusight.npz"
ENERGY = "energy"
"""The quantity that is no time: joules."""
_COLUMNS = [one.name for one in fields(Samples) if one.name not in ("chips", "operator", "device")]


class Prediction(Struct, frozen=True):
    """The time of one call, predicted; of a model that has learnt energy, joules in place of seconds."""

    seconds: float
    low: float
    high: float
    """Ends of the 90 % interval."""
    roofline: float
    """Baseline: the least time by the datasheet."""
    neighbour: float
    """Baseline: the nearest measured shape, scaled by the rooflines."""
    bound: float
    """Seconds that no implementation can beat; neither the time nor its interval goes below."""
    distance: float
    """Octaves by which the call lies outside of the training data; 0 if inside."""
    basis: str
    """`measured` on this chip, `probes` of this chip, or its `datasheet` alone."""
    seen: bool = True
    """Whether this operator, and not only its class, is in the training data."""


@dataclass
class Predictor:
    models: dict[str, ClassModel]
    source: str
    """Where the training data comes from."""
    data_hash: str
    seed: int
    backend: str
    quantity: str
    probes: dict[str, Samples] = field(default_factory=dict)
    """By chip: measured probes."""

    @property
    def chips(self) -> dict[str, ChipFigures]:
        return {name: figures for model in self.models.values() for name, figures in model.reference.chips.items()
                if name in model.own}  # fmt: skip

    def predict(self, samples: Samples) -> list[Prediction]:
        """Return a prediction of each call; UserError for a class that was not learnt."""
        found: list[Prediction | None] = [None] * len(samples)
        kinds = np.asarray([class_of(str(op)) for op in samples.operator], dtype=object)
        for kind in sorted(set(kinds)):
            model = self.model_of(kind)
            for chip in sorted(set(samples.device)):
                rows = np.flatnonzero((kinds == kind) & (samples.device == chip))
                if not len(rows):
                    continue
                here = samples.take(rows)
                probes = self.probes_of(kind, chip)
                seconds, low, high = predict_class(model, here, probes)
                distance = np.maximum(model.distance(here), 0 if chip in model.own else chip_distance(model, here))
                basis = "probes" if probes is not None else "measured" if chip in model.own else "datasheet"
                unit = here.chips[chip].power if self.quantity == ENERGY else 1.0
                roofline, neighbour, bound = here.roofline, model.neighbour(here), here.bound
                for place, row in enumerate(rows):
                    found[row] = Prediction(
                        seconds=unit * float(seconds[place]), low=unit * float(low[place]),
                        high=unit * float(high[place]), roofline=unit * float(roofline[place]),
                        neighbour=unit * float(neighbour[place]), bound=unit * float(bound[place]),
                        distance=float(distance[place]), basis=basis,
                        seen=str(here.operator[place]) in model.codes,
                    )  # fmt: skip
        return [one for one in found if one is not None]

    def knows(self, kind: str) -> bool:
        return kind in self.models or (kind in NEAR_ROWS and ROWS in self.models)

    def model_of(self, kind: str) -> ClassModel:
        """Return the model of a class; for operators that moving data limits, if need be that of row-wise ones."""
        if not self.knows(kind):
            raise UserError(
                f"nothing was learnt about operators of class {kind}; learnt were {', '.join(self.models)}",
                "`opmark predict train` learns from the store what was measured with `opmark run`",
            )
        return self.models.get(kind) or self.models[ROWS]

    def probes_of(self, kind: str, chip: str) -> Samples | None:
        probes = self.probes.get(chip)
        if probes is None:
            return None
        rows = np.flatnonzero([class_of(str(op)) == kind for op in probes.operator])
        return probes.take(rows) if len(rows) else None

    def add_probes(self, probes: Samples) -> None:
        for chip in sorted(set(probes.device)):
            own = probes.take(np.flatnonzero(probes.device == chip))
            earlier = self.probes.get(chip)
            self.probes[chip] = own if earlier is None else join_samples([earlier, own])


def predict_class(
    model: ClassModel, samples: Samples, probes: Samples | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return time and 90 % interval of calls of one class on one chip; nothing goes below what no call can beat."""
    chip = str(samples.device[0])
    if chip in model.own and probes is None:
        expected = model.expect_known(samples)
        half = model.half_width(samples)
    else:
        if np.isnan(model.unseen):
            raise UserError(
                f"{chip} is not in the training data, which has {', '.join(model.own)}: unseen chips need three others",
                "measure there with `opmark run`, then `opmark predict train`",
            )
        expected, found = model.expect_unseen(samples)
        half = max(model.unseen, LEAST_WIDTH) * np.sqrt(found.variance() + NOISE**2)
        if probes is not None:
            at_probes, regimes_of_probes = model.expect_unseen(probes)
            shift, deviation = update(found, regimes_of_probes, np.log(probes.seconds) - at_probes)
            expected, half = expected + shift, model.probed * deviation
    ends = (np.exp(expected), np.exp(expected - half), np.exp(expected + half))
    seconds, low, high = (np.maximum(end, samples.bound) for end in ends)
    return seconds, low, high


def chip_distance(model: ClassModel, samples: Samples) -> float:
    """Return how many octaves the figures of an unseen chip lie outside of those of the training data."""
    count = -len(CHIP_FEATURES)
    here = features(model.kind, samples.take([0]), np.zeros(1))[0][0, count:]
    rows = [np.flatnonzero(model.reference.device == chip)[:1] for chip in model.own]
    known = model.reference.take(np.concatenate(rows))
    there = features(model.kind, known, np.zeros(len(known)))[0][:, count:]
    return float(np.maximum(np.maximum(there.min(0) - here, here - there.max(0)), 0).max())


def train(
    samples: Samples, source: str, *, backend: str, quantity: str, seed: int = 0, effort: TrainingEffort | None = None,
    say: Callable[[str], None] = print,
) -> Predictor:  # fmt: skip
    """Train a model of each class that has enough shapes; chips with too few are left out, and said."""
    kinds = np.asarray([class_of(str(op)) for op in samples.operator], dtype=object)
    parts: dict[str, Samples] = {}
    for kind in sorted(set(kinds)):
        here = samples.take(np.flatnonzero(kinds == kind))
        counts = {chip: int((here.device == chip).sum()) for chip in sorted(set(here.device))}
        enough = [chip for chip, count in counts.items() if count >= FEWEST]
        if few := [f"{count} on {chip}" for chip, count in counts.items() if count < FEWEST]:
            say(f"{kind}: {', '.join(few)}: left out, because {FEWEST} shapes are needed")
        if enough:
            parts[kind] = here.take(np.flatnonzero(np.isin(here.device.astype(str), enough)))
            say(f"{kind}: {len(parts[kind]):,} shapes on {', '.join(enough)}")
    if len(parts) > 1:
        with ProcessPoolExecutor(min(len(parts), os.cpu_count() or 1)) as pool:
            waiting = {
                kind: pool.submit(train_class, kind, part, seed=seed, effort=effort) for kind, part in parts.items()
            }
            models = {kind: one.result() for kind, one in waiting.items()}
    else:
        models = {kind: train_class(kind, part, seed=seed, effort=effort) for kind, part in parts.items()}
    if not models:
        raise UserError(
            f"too few records to learn from: no class of operators has {FEWEST} shapes on one chip",
            "`opmark predict train --measure --budget 10m` measures those that teach most",
        )
    return Predictor(models, source, hash_of(samples), seed, backend, quantity)


# The file: a zip of arrays, and one JSON with everything else. Nothing in it is code.


def save(predictor: Predictor, path: Path) -> None:
    arrays: dict[str, np.ndarray] = {}
    about: dict[str, Any] = {
        "version": VERSION, "source": predictor.source, "data_hash": predictor.data_hash, "seed": predictor.seed,
        "backend": predictor.backend, "quantity": predictor.quantity, "models": {}, "probes": {},
    }  # fmt: skip
    for kind, model in predictor.models.items():
        for name, forest in {"pooled": model.pooled, **{f"own.{chip}": one for chip, one in model.own.items()}}.items():
            arrays |= {f"{kind}/{name}/{part}": values for part, values in _compact(forest).items()}
        for chip, functions in model.smooth.items():
            for operator, function in functions.items():
                prefix = f"{kind}/smooth.{chip}/{operator}"
                arrays |= {f"{prefix}/{part.name}": np.asarray(getattr(function, part.name)) for part in fields(Smooth)}
        arrays |= {f"{kind}/{name}": getattr(model, name) for name in ("centre", "spread", "lowest", "highest")}
        about["models"][kind] = {
            "codes": model.codes, "floors": model.floors, "own": list(model.own), "blend": model.blend,
            "unseen": model.unseen, "probed": model.probed, "known": model.known, "counts": model.counts,
            "share": model.share, "smooth": {chip: list(functions) for chip, functions in model.smooth.items()},
            "reference": _put_samples(arrays, f"{kind}/reference", model.reference),
        }  # fmt: skip
    for chip, probes in predictor.probes.items():
        about["probes"][chip] = _put_samples(arrays, f"probes/{chip}", probes)
    text = json.dumps(about, allow_nan=True, sort_keys=True).encode()
    with whole_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in (("about.json", text), *((f"{key}.npy", _npy(values)) for key, values in arrays.items())):
            # A fixed date: the same data and seed give the same file.
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)


def load(path: Path) -> Predictor:
    try:
        return _load(path.read_bytes())
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, IndexError) as error:
        raise InvalidFile(
            f"{path}: is not a model of `opmark predict train`: {error}", "`opmark predict train` writes one"
        ) from None


def shipped() -> Predictor:
    """Return the model that ships: float32 operators of torch on five NVIDIA GPUs."""
    return _load((files("opmark.prediction") / SHIPPED).read_bytes())


def _load(data: bytes) -> Predictor:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        about = json.loads(archive.read("about.json"))
        if about.get("version") != VERSION:
            raise ValueError(f"version {about.get('version')}; this opmark reads {VERSION}")
        arrays = {
            name.removesuffix(".npy"): np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            for name in archive.namelist() if name.endswith(".npy")
        }  # fmt: skip
    models = {}
    for kind, one in about["models"].items():
        forests = {name: _forest(arrays, f"{kind}/{name}") for name in ("pooled", *(f"own.{c}" for c in one["own"]))}
        models[kind] = ClassModel(
            kind, one["codes"], one["floors"], forests["pooled"], {chip: forests[f"own.{chip}"] for chip in one["own"]},
            arrays[f"{kind}/centre"], arrays[f"{kind}/spread"], arrays[f"{kind}/lowest"], arrays[f"{kind}/highest"],
            reference=_get_samples(arrays, f"{kind}/reference", one["reference"]), counts=one["counts"],
            blend=tuple(one["blend"]), unseen=one["unseen"], probed=one["probed"], known=one["known"],
            share=one["share"], smooth={
                chip: {operator: _smooth(arrays, f"{kind}/smooth.{chip}/{operator}") for operator in operators}
                for chip, operators in one["smooth"].items()
            },
        )  # fmt: skip
    probes = {chip: _get_samples(arrays, f"probes/{chip}", one) for chip, one in about["probes"].items()}
    return Predictor(
        models, about["source"], about["data_hash"], about["seed"], about["backend"], about["quantity"], probes
    )


def _compact(forest: Forest) -> dict[str, np.ndarray]:
    """Return arrays without what follows from others: the left child of a node is the next one."""
    arrays = forest.arrays()
    return {
        "feature": arrays["feature"].astype(np.int8), "threshold": arrays["threshold"],
        "right": (arrays["right"] - np.arange(len(arrays["right"]))).astype(np.uint16), "roots": arrays["roots"],
    }  # fmt: skip


def _forest(arrays: Mapping[str, np.ndarray], prefix: str) -> Forest:
    feature = arrays[f"{prefix}/feature"].astype(np.int32)
    places = np.arange(len(feature))
    return Forest.of_arrays({
        "feature": feature, "threshold": arrays[f"{prefix}/threshold"], "left": places + (feature >= 0),
        "right": arrays[f"{prefix}/right"] + places, "roots": arrays[f"{prefix}/roots"],
    })  # fmt: skip


def _smooth(arrays: Mapping[str, np.ndarray], prefix: str) -> Smooth:
    parts: dict[str, Any] = {part.name: arrays[f"{prefix}/{part.name}"] for part in fields(Smooth)}
    plain: dict[str, Any] = {name: float(values) if values.ndim == 0 else values for name, values in parts.items()}
    return Smooth(**plain)


def _put_samples(arrays: dict[str, np.ndarray], prefix: str, samples: Samples) -> dict[str, Any]:
    for name in _COLUMNS:
        arrays[f"{prefix}/{name}"] = getattr(samples, name).astype(np.float32)
    chips = {name: msgspec.to_builtins(one) for name, one in samples.chips.items()}
    return {"operators": list(samples.operator), "devices": list(samples.device), "chips": chips}


def _get_samples(arrays: Mapping[str, np.ndarray], prefix: str, about: Mapping[str, Any]) -> Samples:
    columns: dict[str, Any] = {name: arrays[f"{prefix}/{name}"].astype(float) for name in _COLUMNS}
    columns |= {"operator": _objects(about["operators"]), "device": _objects(about["devices"])}
    return Samples(**columns, chips={name: msgspec.convert(one, ChipFigures) for name, one in about["chips"].items()})


def _objects(texts: Sequence[str]) -> np.ndarray:
    return np.asarray(texts, dtype=object)


def _npy(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=False)
    return stream.getvalue()
