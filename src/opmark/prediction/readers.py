"""Read samples from files: the tables of measured operators that NeuSight publishes, and tables like them."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np

from opmark.errors import InvalidFile, UserError
from opmark.hardware.datasheets import datasheets, names
from opmark.prediction.features import features
from opmark.prediction.forest import grow_forest
from opmark.prediction.samples import ChipFigures, Samples, chip_figures, class_of, samples_of
from opmark.schema.call_sizes import CallSizes
from opmark.schema.machine import Peaks
from opmark.units import count_noun

_OPERATORS = {"pow": "power", "ln": "layer_norm"}
_PRODUCT = {"device", "B", "M", "N", "K", "ms"}
_CONVOLUTION = {"device", "B", "in_channels", "out_channels", "kernel", "image", "stride", "padding", "ms"}
_ROWS = {"op", "device", "rows", "columns", "ms"}
_TWO_INPUTS = ("add", "div", "mul", "power")
_DRIFT_ROWS = 2500
"""Number of calls, evenly over a session, that its drift is found with."""
_DRIFT_PASSES = 6
MOST_DRIFT = 0.5
"""Share of drift in the time of a call up to which the call is learnt from."""
_LEAST_GAIN = 0.25
"""Share of their error that forests have to lose with a drift, so that it is taken for one."""


def find_chip(name: str, preferred: Collection[str] = ()) -> Peaks | None:
    """Return the datasheet of a chip by its name, an alias, or a part of one, as in `A100-PCIE-40GB`; of several that
    match, one of the preferred chips."""
    parts = matching_chips(name)
    # `A100` is any of the A100s: else the first one that ships, as the list has the usual variant first.
    return next((sheet for sheet in parts if sheet.chip in preferred), parts[0] if parts else None)


def matching_chips(name: str) -> list[Peaks]:
    """Return the datasheets of all chips that a name may stand for."""
    known = datasheets()
    for sheet in known:
        if name in names(sheet):
            return [sheet]
    folded = _folded(name)
    exact = [sheet for sheet in known if folded in {_folded(one) for one in names(sheet)}]
    # Of `Tesla` or `NVIDIA` nothing is left: a maker's name is no part of one chip's.
    return exact or [sheet for sheet in known if folded and any(folded in _folded(one) for one in names(sheet))]


def _folded(name: str) -> str:
    folded = "".join(letter for letter in name.casefold() if letter.isalnum())
    for word in ("nvidia", "tesla", "geforce"):
        folded = folded.replace(word, "")
    return folded


def read_tables(paths: Sequence[Path], *, keep_drift: bool = False, say: Callable[[str], None] = print) -> Samples:
    """Read CSV files (also .gz) of measured calls in float32. What drifted over a session is corrected, and said."""
    calls: list[CallSizes] = []
    devices: list[str] = []
    seconds: list[float] = []
    for path in paths:
        for number, row in enumerate(_rows(path), 2):
            try:
                if None in row:
                    raise ValueError("more values than columns")
                time = float(row["ms"]) / 1e3
                if not 0 < time < float("inf"):
                    raise ValueError(f"time of {row['ms']} ms")
                calls.append(_call(row))
                if min(calls[-1].batch, calls[-1].m, calls[-1].n, calls[-1].k, calls[-1].image) <= 0:
                    raise ValueError("a size that is not above 0")
            except (ValueError, KeyError, ZeroDivisionError) as error:
                raise InvalidFile(
                    f"{path}:{number}: {error}", "expected sizes as whole numbers, time as `ms`"
                ) from None
            devices.append(row["device"])
            seconds.append(time)
    chips = {name: _figures(name) for name in sorted(set(devices))}
    samples = samples_of(calls, [chips[name].chip for name in devices], seconds,
                         {figures.chip: figures for figures in chips.values()})  # fmt: skip
    return samples if keep_drift else without_drift(samples, drift_of(samples, say), say)


def tables_in(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.iterdir() if path.name.endswith((".csv", ".csv.gz")))
    if not found:
        raise UserError(f"{folder}: has no .csv or .csv.gz", "expected tables with device, sizes and ms")
    return found


def hash_of(samples: Samples) -> str:
    """Return a hash of the data: the same samples in the same order give the same model."""
    digest = hashlib.sha256()
    for column in (samples.m, samples.n, samples.k, samples.batch, samples.flops, samples.nbytes, samples.seconds):
        digest.update(np.ascontiguousarray(column, dtype=float).tobytes())
    digest.update("\0".join((*samples.operator, *samples.device)).encode())
    return digest.hexdigest()[:16]


def _figures(name: str) -> ChipFigures:
    sheet = find_chip(name)
    if sheet is None:
        raise UserError(
            f"no datasheet for the device `{name}`",
            "`opmark list chips` lists those that ship; docs/add-a-chip.md says how to add one",
        )
    return chip_figures(sheet, "float32")


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (gzip.BadGzipFile, zlib.error, EOFError, UnicodeDecodeError) as error:
        raise InvalidFile(f"{path}: is not a table: {error}", "expected CSV, plain or compressed with gzip") from None
    reader = csv.DictReader(io.StringIO(text), restval="")
    columns = set(reader.fieldnames or ())
    if not any(needed <= columns for needed in (_PRODUCT, _CONVOLUTION, _ROWS)):
        raise InvalidFile(
            f"{path}: has the columns {', '.join(sorted(columns)) or 'none'}",
            "expected device, B, M, N, K, ms; or op, device, rows, columns, ms; or those of conv2d",
        )
    rows = list(reader)
    if columns >= _PRODUCT and "op" not in columns:
        # The tables of linear layers have a batch of 1 throughout.
        name = "linear" if all(row["B"] == "1" for row in rows) else "batched_matmul"
        rows = [{**row, "op": name} for row in rows]
    return rows


def _call(row: dict[str, str]) -> CallSizes:
    if "in_channels" in row:
        images, channels, out, kernel, image, stride, padding = (
            int(row[name]) for name in ("B", "in_channels", "out_channels", "kernel", "image", "stride", "padding")
        )
        height = (image + 2 * padding - kernel) // stride + 1
        windows, elements = images * height**2, channels * kernel**2
        moved = 4.0 * (images * channels * image**2 + windows * out + out * elements)
        return CallSizes(
            "conv2d", images, windows, out, elements, 2.0 * windows * out * elements, moved, height, channels,
            4.0 * windows * out, stride=stride,
        )  # fmt: skip
    if "rows" in row:
        name = row["op"]
        with_number = name.endswith("u") and name not in ("relu", "gelu")
        name = name.removesuffix("u") if with_number else name
        name = _OPERATORS.get(name, name)
        rows, columns = int(row["rows"]), int(row["columns"])
        reads = 2 if name in _TWO_INPUTS and not with_number else 1
        label = f"{name} y=scalar" if with_number else name
        return CallSizes(label, 1, rows, columns, 1, float(rows * columns), 4.0 * rows * columns * (reads + 1),
                         written=4.0 * rows * columns)  # fmt: skip
    batch, m, n, k = (int(row[name]) for name in ("B", "M", "N", "K"))
    moved = 4.0 * batch * (m * n + m * k + n * k)
    return CallSizes(row["op"], batch, m, n, k, 2.0 * batch * m * n * k, moved, written=4.0 * batch * m * n)


def without_drift(samples: Samples, drift: np.ndarray, say: Callable[[str], None] = print) -> Samples:
    """Return samples as they would have been at the begin of their session. Calls that are mostly drift tell little
    about themselves, and are left out."""
    kept = drift <= MOST_DRIFT * samples.seconds
    if not kept.all():
        say(f"left out, because they are mostly drift: {count_noun(int((~kept).sum()), 'call')}")
    samples = samples.take(kept)
    samples.seconds = samples.seconds - drift[kept]
    return samples


def drift_of(samples: Samples, say: Callable[[str], None] = print) -> np.ndarray:
    """Return the seconds that each call takes longer than at the begin of its session; 0 in sessions that drift little.
    A session is a class of operators on a chip; rows are in the order of time."""
    drift = np.zeros(len(samples))
    kinds = np.asarray([class_of(str(op)) for op in samples.operator], dtype=object)
    for kind in sorted(set(kinds)):
        for chip in sorted(set(samples.device[kinds == kind])):
            rows = np.flatnonzero((kinds == kind) & (samples.device == chip))
            if len(rows) < 500:
                continue
            found = _drift_of_session(kind, samples.take(rows))
            if found.any():
                say(f"{kind} on {chip} drifts by {1e3 * found[-1]:+.2f} ms per call over its session: corrected")
                drift[rows] = found
    return drift


def _drift_of_session(kind: str, samples: Samples) -> np.ndarray:
    """Return a drift that grows with the position in the session and its square: what shorter calls take longer than
    others of their size, by forests that have not seen them; 0 if it explains little."""
    order = np.unique(np.linspace(0, len(samples) - 1, _DRIFT_ROWS).astype(int))
    position, every = order / len(samples), np.arange(len(samples)) / len(samples)
    samples = samples.take(order)
    numbers = {op: number for number, op in enumerate(sorted(set(samples.operator)))}
    matrix, _ = features(kind, samples, np.asarray([float(numbers[op]) for op in samples.operator]))
    powers = np.stack([position, position**2], 1)
    found, errors = np.zeros(2), list[float]()
    folds = np.random.default_rng(0).integers(0, 2, len(samples))
    for _ in range(_DRIFT_PASSES):
        drift = powers @ found
        used = drift <= MOST_DRIFT * samples.seconds
        rest = np.maximum(samples.seconds - drift, 0.1 * samples.seconds)
        base = samples.roofline + np.quantile(rest[used], 0.002)
        expected = np.zeros(len(samples))
        for fold in (0, 1):
            seen = used & (folds != fold)
            forest = grow_forest(matrix[seen], np.log(rest / base)[seen], rounds=60, leaves=15, seed=0)
            expected[folds == fold] = (np.exp(forest.predict(matrix)) * base)[folds == fold]
        errors.append(float(np.median(np.abs((expected + drift) / samples.seconds - 1))))
        short = expected < np.quantile(expected, 0.6)
        steps = np.minimum((10 * position[short]).astype(int), 9)
        left = (samples.seconds - drift - expected)[short]
        medians = np.asarray(
            [np.median(left[steps == step]) if (steps == step).any() else np.nan for step in range(10)]
        )
        middle = (np.arange(10) + 0.5) / 10
        known = ~np.isnan(medians)
        curve = np.polyfit(middle[known], medians[known], 2)
        found = found + curve[1::-1]
    if errors[-1] > (1 - _LEAST_GAIN) * errors[0]:
        return np.zeros(len(every))
    return np.asarray(np.stack([every, every**2], 1) @ found)
