"""Finds out from variables whether torchrun, Slurm or mpirun started this process as one of several, and which."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from opmark.errors import UserError

LOOPBACK = "127.0.0.1"
PORT = "OPMARK_PORT"
DEFAULT_PORT = 29500
_LAST_PORT = 65535
# Slurm numbers the steps that it makes itself for a batch script or an interactive shell from here on.
_FIRST_STEP_OF_SLURM = 0xFFFFFFF0

Environ = Mapping[str, str]


class JobRank(NamedTuple):
    """The position of a process among those that a launcher started together."""

    launcher: str
    rank: int
    size: int
    local_rank: int | None
    """None where the launcher does not tell."""
    local_size: int | None
    host: str
    """The host where rank 0 can be reached."""
    port: int
    """The port where the process of rank 0 listens for the others."""
    port_of: str
    """The variable, or the rule, that the port comes from."""


class _JobVariables(NamedTuple):
    launcher: str
    rank: str
    size: str
    local_rank: str
    local_size: str


class _JobPosition(NamedTuple):
    """The position that one launcher tells."""

    launcher: str
    rank: int
    size: int
    local_rank: int | None
    local_size: int | None


_TORCH = _JobVariables("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_TORCHRUN = "TORCHELASTIC_RUN_ID"
_BY_HAND = f"{_TORCH.rank} and {_TORCH.size}"
_OPEN_MPI = _JobVariables(
    "Open MPI", *(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
)
_MVAPICH = _JobVariables(
    "MVAPICH", *(f"MV2_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
)
_HYDRA = _JobVariables("MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
# The innermost first: torchrun is started by srun, and mpirun starts its helpers by srun.
_BY_NAME = (_TORCH, _OPEN_MPI, _MVAPICH, _HYDRA)


def detect_job(environ: Environ) -> JobRank | None:
    """Like `read_job`, but only where a launcher has surely started this very process: variables set by hand, or for a
    whole container, say nothing about a command that needs one process only."""
    try:
        job = read_job(environ)
    except UserError:
        return None
    return job if job and job.launcher != _BY_HAND else None


def read_job(environ: Environ) -> JobRank | None:
    """The position of this process, or None where it is alone. Raise UserError where variables contradict each
    other, or some are missing."""
    positions = [one for one in (*(_read_position(names, environ) for names in _BY_NAME), _read_slurm(environ)) if one]
    if not positions:
        _refuse_half(environ)
        return None
    this = positions[0]
    _refuse_contradiction(environ, positions)
    if this.size == 1:
        return None
    if this.launcher == _HYDRA.launcher and this.local_rank is None:
        # srun speaks PMI too: then Slurm knows the rest.
        this = next((one for one in positions[1:] if (one.rank, one.size) == (this.rank, this.size)), this)
    port, port_of = _port(environ)
    return JobRank(*this, _host(environ, this), port, port_of)


def _read_position(names: _JobVariables, environ: Environ) -> _JobPosition | None:
    rank, size = _number(environ, names.rank), _number(environ, names.size)
    if rank is None or size is None:
        return None
    local_rank, local_size = _number(environ, names.local_rank), _number(environ, names.local_size)
    _refuse_beyond(names.rank, rank, names.size, size)
    if local_rank is not None and local_size is not None:
        _refuse_beyond(names.local_rank, local_rank, names.local_size, local_size)
    launcher = _BY_HAND if names is _TORCH and _TORCHRUN not in environ else names.launcher
    return _JobPosition(launcher, rank, size, local_rank, local_size)


def _read_slurm(environ: Environ) -> _JobPosition | None:
    """The position in a step that srun started: a shell in an allocation has the same variables, and is one process."""
    step = environ.get("SLURM_STEP_ID", "")
    if not step.isdecimal() or int(step) >= _FIRST_STEP_OF_SLURM:
        return None
    size_name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    rank, size = _number(environ, "SLURM_PROCID"), _number(environ, size_name)
    if rank is None or size is None:
        return None
    _refuse_beyond("SLURM_PROCID", rank, size_name, size)
    return _JobPosition("Slurm", rank, size, _number(environ, "SLURM_LOCALID"), _tasks_here(environ))


def _tasks_here(environ: Environ) -> int | None:
    """Tasks on this node. SLURM_STEP_TASKS_PER_NODE is `2(x3),1` for two tasks on each of three nodes, and one on the
    fourth."""
    node = _number(environ, "SLURM_NODEID")
    counts: list[int] = []
    for part in filter(None, environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(",")):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not match:
            return None
        counts += [int(match[1])] * int(match[2] or 1)
    if node is not None and node < len(counts):
        return counts[node]
    return _number(environ, "SLURM_NTASKS_PER_NODE")


def _number(environ: Environ, name: str) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise UserError(f"{name}: expected a whole number, got `{text}`", "launchers set it; unset it if none did")
    return int(text)


def _refuse_beyond(rank_name: str, rank: int, size_name: str, size: int) -> None:
    if rank >= size:
        raise UserError(f"{rank_name} is {rank} and {size_name} is {size}: ranks count from 0 to {size - 1}")


def _refuse_half(environ: Environ) -> None:
    """Raise UserError for a rank without a size, or a size above 1 without a rank."""
    for names in _BY_NAME:
        rank, size = _number(environ, names.rank), _number(environ, names.size)
        if (rank is None) == (size is None) or size == 1:
            continue
        there, missing = (names.rank, names.size) if size is None else (names.size, names.rank)
        raise UserError(
            f"{there} is set and {missing} is not: nobody knows which rank of how many this is",
            f"set {missing} too, or unset {there}",
        )


def _refuse_contradiction(environ: Environ, positions: list[_JobPosition]) -> None:
    """Raise UserError where variables that were set by hand contradict a launcher. torchrun may be started by another
    launcher, once per host."""
    this = positions[0]
    for name, own in ((_TORCH.rank, this.rank), (_TORCH.size, this.size)):
        value = _number(environ, name)
        if value is not None and value != own:
            raise UserError(f"{name} is {value}, {this.launcher} says {own}", f"unset {name}")
    for other in positions[1:]:
        if this.launcher == _BY_HAND and (other.rank, other.size) != (this.rank, this.size):
            raise UserError(
                f"{_BY_HAND} say rank {this.rank} of {this.size}, {other.launcher} says rank {other.rank} of "
                f"{other.size}",
                f"unset {_BY_HAND}, or set them for each process",
            )


def _host(environ: Environ, this: _JobPosition) -> str:
    """The host of rank 0: this host where all ranks are on it, MASTER_ADDR, or the first host that Slurm lists."""
    if this.local_size == this.size:
        return LOOPBACK  # whatever MASTER_ADDR says: no other host is to find a port of rank 0 open
    named = environ.get("MASTER_ADDR", "")
    if named:
        return named
    if this.launcher == "Slurm":
        first = _first_node(environ.get("SLURM_STEP_NODELIST", "")) or environ.get("SLURM_LAUNCH_NODE_IPADDR", "")
        if first:
            return first
    raise UserError(
        f"{this.launcher}: {this.size} processes were started, and MASTER_ADDR does not say on which host rank 0 is",
        "set MASTER_ADDR to its name or address, the same for all processes",
    )


def _first_node(listed: str) -> str:
    """`gpu[003-010,12],login` -> `gpu003`."""
    first = re.match(r"(?:[^,\[\]]|\[[^\]]*\])+", listed)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0]) if first else ""


def _port(environ: Environ) -> tuple[int, str]:
    """(the port where rank 0 listens, where that number comes from)."""
    own, master = _number(environ, PORT), _number(environ, "MASTER_PORT")
    if own is not None:
        port, source = own, PORT
    elif master is None:
        port, source = DEFAULT_PORT, "the usual one, as neither OPMARK_PORT nor MASTER_PORT is set"
    elif _TORCHRUN in environ:
        port, source = master + 1, "MASTER_PORT + 1, as torchrun itself listens on MASTER_PORT"
    else:
        port, source = master, "MASTER_PORT"
    if not 0 < port <= _LAST_PORT:
        raise UserError(f"port {port} ({source}): expected 1 to {_LAST_PORT}", f"set {PORT} to a free port")
    return port, source
