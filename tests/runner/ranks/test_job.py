"""Whether a process is one of several, by the variables of each launcher."""

from __future__ import annotations

import pytest

from opmark.errors import UserError
from opmark.runner.ranks.job import JobRank, read_job

MASTER = {"MASTER_ADDR": "node-a", "MASTER_PORT": "1234"}
BY_HAND = {"RANK": "1", "WORLD_SIZE": "4"}
TORCHRUN = {**BY_HAND, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none", **MASTER}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
MVAPICH = {name.replace("OMPI", "MV2"): value for name, value in OPEN_MPI.items()}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_STEP_NODELIST": "gpu[003-004]",
    "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.9",
}


def place(environ: dict[str, str]) -> JobRank:
    found = read_job(environ)
    assert found is not None
    return found


def standing(environ: dict[str, str]) -> tuple[str, int, int, int | None, int | None]:
    found = place(environ)
    return found[:5]


def refused(environ: dict[str, str]) -> str:
    with pytest.raises(UserError) as caught:
        read_job(environ)
    return str(caught.value)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TORCHRUN, ("torchrun", 1, 4, 1, 2)),
        ({**BY_HAND, **MASTER}, ("RANK and WORLD_SIZE", 1, 4, None, None)),
        ({**OPEN_MPI, **MASTER}, ("Open MPI", 3, 4, 1, 2)),
        ({**MVAPICH, **MASTER}, ("MVAPICH", 3, 4, 1, 2)),
        ({**HYDRA, **MASTER}, ("MPICH", 3, 4, 1, 2)),
        (SLURM, ("Slurm", 3, 4, 1, 2)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_every_launcher_says_which_rank_of_how_many(
    environ: dict[str, str], expected: tuple[str, int, int, int, int]
) -> None:
    assert standing(environ) == expected


@pytest.mark.parametrize(
    "environ",
    [
        {},
        MASTER,
        {"RANK": "0", "WORLD_SIZE": "1"},
        {"WORLD_SIZE": "1"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
        {**SLURM, "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
    ],
)
def test_a_process_alone_is_no_rank(environ: dict[str, str]) -> None:
    assert read_job(environ) is None


@pytest.mark.parametrize("step", [None, "batch", "", str(0xFFFFFFFA), str(0xFFFFFFFB)])
def test_a_shell_in_an_allocation_is_no_rank(step: str | None) -> None:
    """Slurm numbers the steps of batch scripts and of interactive shells too, from above."""
    environ = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_ID"}
    assert read_job({**environ, "SLURM_PROCID": "0"} | ({} if step is None else {"SLURM_STEP_ID": step})) is None


def test_the_innermost_launcher_counts() -> None:
    """`srun torchrun ...`, and mpirun that starts its helpers with srun: one task a host, several processes."""
    helper = {**SLURM, "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    assert standing({**helper, **TORCHRUN}) == ("torchrun", 1, 4, 1, 2)
    assert standing({**helper, **OPEN_MPI, **MASTER}) == ("Open MPI", 3, 4, 1, 2)
    assert standing({**helper, **HYDRA, **MASTER}) == ("MPICH", 3, 4, 1, 2)


def test_srun_that_speaks_pmi_is_slurm() -> None:
    assert standing({**SLURM, "PMI_RANK": "3", "PMI_SIZE": "4"}) == ("Slurm", 3, 4, 1, 2)


@pytest.mark.parametrize(
    ("tasks", "node", "expected"), [("2(x2)", "1", 2), ("3,1", "1", 1), ("2(x3),1", "3", 1), ("odd", "0", None)]
)
def test_slurm_lists_tasks_by_node(tasks: str, node: str, expected: int | None) -> None:
    assert place({**SLURM, "SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_NODEID": node}).local_size == expected


def test_slurm_without_a_list_has_one_number_for_all_nodes() -> None:
    environ = {name: value for name, value in SLURM.items() if name != "SLURM_STEP_TASKS_PER_NODE"}
    assert place({**environ, "SLURM_NTASKS_PER_NODE": "2"}).local_size == 2


def test_of_a_step_that_is_smaller_than_its_job_the_step_counts() -> None:
    assert place({**SLURM, "SLURM_NTASKS": "16", "SLURM_STEP_NUM_TASKS": "4"}).size == 4


# Where rank 0 is.


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ("node7", "node7"),
        ("gpu[003-010,12],login", "gpu003"),
        ("a1,b[1-2]", "a1"),
        ("rack[0-1]n[5,7]", "rack0n5"),
        ("x[08]", "x08"),
        ("", "10.0.0.9"),
    ],
)
def test_slurm_names_the_first_host(listed: str, expected: str) -> None:
    assert place({**SLURM, "SLURM_STEP_NODELIST": listed}).host == expected


def test_what_the_user_says_comes_first() -> None:
    assert place({**SLURM, "MASTER_ADDR": "10.1.1.1"}).host == "10.1.1.1"


def test_on_one_host_nobody_needs_to_say_where() -> None:
    environ = {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "3"}
    assert place(environ).host == "127.0.0.1"
    assert place({**environ, "MASTER_ADDR": "node-a"}).host == "127.0.0.1"


@pytest.mark.parametrize("environ", [BY_HAND, OPEN_MPI, MVAPICH, HYDRA])
def test_on_several_hosts_somebody_has_to(environ: dict[str, str]) -> None:
    assert "MASTER_ADDR" in refused(environ)


@pytest.mark.parametrize(
    ("environ", "port", "whose"),
    [
        ({**SLURM}, 29500, "OPMARK_PORT"),
        ({**SLURM, "MASTER_PORT": "7"}, 7, "MASTER_PORT"),
        (TORCHRUN, 1235, "torchrun"),
        ({**TORCHRUN, "OPMARK_PORT": "9"}, 9, "OPMARK_PORT"),
        ({**BY_HAND, **MASTER}, 1234, "MASTER_PORT"),
    ],
)
def test_the_port_and_who_wants_it(environ: dict[str, str], port: int, whose: str) -> None:
    found = place(environ)
    assert found.port == port
    assert whose in found.port_of


# What cannot be.


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"RANK": "1"}, ["RANK", "WORLD_SIZE"]),
        ({"RANK": "0"}, ["RANK", "WORLD_SIZE"]),
        ({"WORLD_SIZE": "2"}, ["RANK", "WORLD_SIZE"]),
        ({"OMPI_COMM_WORLD_RANK": "1"}, ["OMPI_COMM_WORLD_SIZE"]),
        ({"RANK": "4", "WORLD_SIZE": "4", **MASTER}, ["RANK is 4", "0 to 3"]),
        ({**TORCHRUN, "LOCAL_RANK": "2"}, ["LOCAL_RANK is 2", "LOCAL_WORLD_SIZE"]),
        ({**SLURM, "SLURM_PROCID": "9"}, ["SLURM_PROCID is 9"]),
        ({"RANK": "one", "WORLD_SIZE": "2"}, ["RANK", "`one`"]),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, ["RANK", "`-1`"]),
        ({**SLURM, "WORLD_SIZE": "8"}, ["WORLD_SIZE is 8", "Slurm says 4"]),
        ({**SLURM, "RANK": "0"}, ["RANK is 0", "Slurm says 3"]),
        ({**SLURM, **BY_HAND}, ["rank 1 of 4", "rank 3 of 4"]),
        ({**BY_HAND, **MASTER, "OPMARK_PORT": "70000"}, ["70000", "OPMARK_PORT"]),
        ({**TORCHRUN, "MASTER_PORT": "65535"}, ["65536", "OPMARK_PORT"]),
        ({**BY_HAND, **MASTER, "OPMARK_PORT": "http"}, ["OPMARK_PORT", "`http`"]),
    ],
)
def test_what_is_missing_or_contradicts_is_named(environ: dict[str, str], named: list[str]) -> None:
    said = refused(environ)
    assert all(part in said for part in named), said


def test_a_size_for_all_in_a_batch_script_is_no_contradiction() -> None:
    """Batch scripts export it, and leave the rank to Slurm."""
    assert standing({**SLURM, "WORLD_SIZE": "4"})[:3] == ("Slurm", 3, 4)
