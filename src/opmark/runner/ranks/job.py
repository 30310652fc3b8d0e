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


class _Standing(NamedTuple):
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
    """Like `outside`, but only where a launcher has surely started this very process: variables set by hand, or for a
    whole container, say nothing about a command that needs one process only."""
    try:
        found = outside(environ)
    except UserError:
        return None
    return found if found and found.launcher != _BY_HAND else None


def outside(environ: Environ) -> JobRank | None:
    """The position of this process, or None where it is alone. Raise UserError where variables contradict each
    other, or some are missing."""
    found = [one for one in (*(_standing(names, environ) for names in _BY_NAME), _slurm(environ)) if one]
    if not found:
        _refuse_half(environ)
        return None
    this = found[0]
    _refuse_contradiction(environ, found)
    if this.size == 1:
        return None
    if this.launcher == _HYDRA.launcher and this.local_rank is None:
        # srun speaks PMI too: then Slurm knows the rest.
        this = next((one for one in found[1:] if (one.rank, one.size) == (this.rank, this.size)), this)
    port, port_of = _port(environ)
    return JobRank(*this, _host(environ, this), port, port_of)


def _standing(names: _JobVariables, environ: Environ) -> _Standing | None:
    rank, size = _number(environ, names.rank), _number(environ, names.size)
    if rank is None or size is None:
        return None
    local_rank, local_size = _number(environ, names.local_rank), _number(environ, names.local_size)
    _refuse_beyond(names.rank, rank, names.size, size)
    if local_rank is not None and local_size is not None:
        _refuse_beyond(names.local_rank, local_rank, names.local_size, local_size)
    launcher = _BY_HAND if names is _TORCH and _TORCHRUN not in environ else names.launcher
    return _Standing(launcher, rank, size, local_rank, local_size)


def _slurm(environ: Environ) -> _Standing | None:
    """The position in a step that srun started: a shell in an allocation has the same variables, and is one process."""
    step = environ.get("SLURM_STEP_ID", "")
    if not step.isdecimal() or int(step) >= _FIRST_STEP_OF_SLURM:
        return None
    size_name = "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS"
    rank, size = _number(environ, "SLURM_PROCID"), _number(environ, size_name)
    if rank is None or size is None:
        return None
    _refuse_beyond("SLURM_PROCID", rank, size_name, size)
    return _Standing("Slurm", rank, size, _number(environ, "SLURM_LOCALID"), _tasks_here(environ))


def _tasks_here(environ: Environ) -> int | None:
    """Tasks on this node. SLURM_STEP_TASKS_PER_NODE is `2(x3),1` for two tasks on each of three nodes, and one on the
    fourth."""
    node = _number(environ, "SLURM_NODEID")
    counts: list[int] = []
    for part in filter(None, environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(",")):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if not found:
            return None
        counts += [int(found[1])] * int(found[2] or 1)
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
    """A rank without a size, or a size above 1 without a rank."""
    for names in _BY_NAME:
        rank, size = _number(environ, names.rank), _number(environ, names.size)
        if (rank is None) == (size is None) or size == 1:
            continue
        there, missing = (names.rank, names.size) if size is None else (names.size, names.rank)
        raise UserError(
            f"{there} is set and {missing} is not: nobody knows which rank of how many this is",
            f"set {missing} too, or unset {there}",
        )


def _refuse_contradiction(environ: Environ, found: list[_Standing]) -> None:
    """torchrun may be started by another launcher, once a host; what is set by hand has to say the same as that one."""
    this = found[0]
    for name, own in ((_TORCH.rank, this.rank), (_TORCH.size, this.size)):
        said = _number(environ, name)
        if said is not None and said != own:
            raise UserError(f"{name} is {said}, {this.launcher} says {own}", f"unset {name}")
    for other in found[1:]:
        if this.launcher == _BY_HAND and (other.rank, other.size) != (this.rank, this.size):
            raise UserError(
                f"{_BY_HAND} say rank {this.rank} of {this.size}, {other.launcher} says rank {other.rank} of "
                f"{other.size}",
                f"unset {_BY_HAND}, or set them for each process",
            )


def _host(environ: Environ, this: _Standing) -> str:
    """MASTER_ADDR; without, on one host nobody needs it, and Slurm lists its hosts with that of rank 0 first."""
    named = environ.get("MASTER_ADDR", "")
    if named:
        return named
    if this.local_size == this.size:
        return LOOPBACK
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
    """torchrun itself listens on MASTER_PORT."""
    own, master = _number(environ, PORT), _number(environ, "MASTER_PORT")
    if own is not None:
        found, whose = own, PORT
    elif master is None:
        found, whose = DEFAULT_PORT, "the usual one, as neither OPMARK_PORT nor MASTER_PORT is set"
    elif _TORCHRUN in environ:
        found, whose = master + 1, "MASTER_PORT + 1, as torchrun itself listens on MASTER_PORT"
    else:
        found, whose = master, "MASTER_PORT"
    if not 0 < found <= _LAST_PORT:
        raise UserError(f"port {found} ({whose}): expected 1 to {_LAST_PORT}", f"set {PORT} to a free port")
    return found, whose
