"""Reads a workload file of ByteMLPerf's general_perf as a workload of opmark: one case per batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from opmark.errors import UserError
from opmark.interop.general_perf import files
from opmark.interop.general_perf.resolution import TaskFolders, resolve_task
from opmark.schema import Imported, ImportProblem


class _GeneralPerf:
    name = "general-perf"
    summary = "workloads of ByteMLPerf's general_perf (whole models): JSON, with the model_zoo beside it"

    def recognises(self, path: Path, data: Any) -> bool:
        return files.is_workload(data)

    def read(self, path: Path, data: Any, seed: int) -> Imported:
        """Return the cases of the model. A model-zoo file is looked for beside the workload and in ../model_zoo."""
        workload, notes = files.read_task_file(data, str(path))
        zoo = next((place for place in (path.parent.parent / "model_zoo", path.parent)
                    if files.file_of(place, workload.model, files.MODEL)), None)  # fmt: skip
        try:
            task = resolve_task(workload.model, workload, TaskFolders(None, zoo))
        except UserError as error:
            return Imported(problems=(ImportProblem(f"{path}: $.model", error.message, error.hint or ""),))
        entries = tuple(
            replace(entry, source=f"{path.name}#{size}")
            for entry, size in zip(task.entries(), workload.sizes, strict=True)
        )
        notes += [
            *task.notes,
            f"`opmark general-perf --workload {path}` also tests accuracy and writes ByteMLPerf's report; its "
            f"{workload.clients} clients are --clients {workload.clients} --requests {workload.iterations} here",
        ]
        return Imported(entries, notes=tuple(f"{path.name}: {note.removeprefix(f'{path}: ')}" for note in notes))


GENERAL_PERF = _GeneralPerf()
