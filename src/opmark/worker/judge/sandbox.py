"""Locks a process in before it loads a candidate: what it may write, whom it may touch, what it may start.

Everything here is the kernel's own: Landlock for files and the network, seccomp for system calls, and no capabilities.
A part that this kernel lacks is named, so that nobody takes it for granted.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
from collections.abc import Sequence
from typing import NamedTuple

from opmark.worker.process_setup import die_with_parent

FILES = "it cannot write files outside of a folder of its own"
NETWORK = "it cannot open connections"
CALLS = "it cannot read, trace or signal other processes"
STARTS = "it cannot start processes while it is timed"
CAPABILITIES = "it has no privileges of root"
GUARDS = (FILES, NETWORK, CALLS, STARTS, CAPABILITIES)


class LockedIn(NamedTuple):
    guards: tuple[str, ...]
    """The guards that hold."""
    listener: int | None
    """Descriptor on which the kernel asks whether a process may be started; None if this kernel does not ask."""


def lock_in(writable: Sequence[str]) -> LockedIn:
    """Lock this process in for good, and everything that it starts. Only these folders stay writable."""
    libc = ctypes.CDLL(None, use_errno=True)
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    guards = [CAPABILITIES] if _drop_capabilities(libc) else []
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    guards += _restrict_files(libc, writable)
    listener = _filter_calls(libc, ask=True)
    if listener is not None:
        return LockedIn((*guards, CALLS, STARTS), listener)
    if _filter_calls(libc, ask=False) is not None:
        guards.append(CALLS)
    return LockedIn(tuple(guards), None)


_NO_NEW_PRIVS = 38
_SET_SECUREBITS, _CAPBSET_DROP = 28, 24
_NO_ROOT = 0b11
"""A process of root gets no capabilities when it starts a program, and this cannot be changed back."""
_CAPABILITIES_V3 = 0x20080522
_LAST_CAPABILITY = 63


def _drop_capabilities(libc: ctypes.CDLL) -> bool:
    libc.prctl(_SET_SECUREBITS, _NO_ROOT, 0, 0, 0)
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)
    return bool(libc.capset(struct.pack("=Ii", _CAPABILITIES_V3, 0), bytes(24)) == 0)


# Landlock: which files may be written, and no connections.

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_WRITE_FILE = 1 << 1
_CHANGES = sum(1 << bit for bit in range(4, 13))
"""Removing and making files, folders, links, sockets and devices."""
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_TCP = 0b11
_SCOPED = 0b11
"""Abstract sockets and signals of processes outside."""


def _restrict_files(libc: ctypes.CDLL, writable: Sequence[str]) -> list[str]:
    version = libc.syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    if version < 1:
        return []
    rights = _WRITE_FILE | _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    net, scoped = _TCP if version >= 4 else 0, _SCOPED if version >= 6 else 0
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    rules = libc.syscall(_CREATE_RULESET, struct.pack("=QQQ", rights, net, scoped)[:size], size, 0)
    if rules < 0:
        return []
    for folder in writable:
        place = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
        os.close(place)
    held = libc.syscall(_RESTRICT_SELF, rules, 0) == 0
    os.close(rules)
    return ([FILES, NETWORK] if net else [FILES]) if held else []


# seccomp: which system calls it may make. Numbers are those of the kernel's tables for each machine.


class _CallTable(NamedTuple):
    audit: int
    """The name of the machine in a filter."""
    seccomp: int
    forbidden: tuple[int, ...]
    """ptrace, process_vm_readv and _writev, process_madvise, kcmp, pidfd_open, _getfd and _send_signal, tkill,
    rt_sigqueueinfo, perf_event_open, bpf, userfaultfd, unshare, setns, mount, keyctl, sched_setaffinity, _setattr,
    _setscheduler and _setparam, setpriority."""
    about_itself: tuple[int, ...]
    """kill, tgkill, rt_tgsigqueueinfo, prlimit64: allowed for the process itself."""
    absent: tuple[int, ...]
    """clone3, whose flags a filter cannot see, and io_uring_setup: programs go on without them."""
    clone: int
    forks: tuple[int, ...]


_TABLES = {
    "x86_64": _CallTable(
        0xC000003E, 317,
        (101, 310, 311, 440, 312, 434, 438, 424, 200, 129, 298, 321, 323, 272, 308, 165, 250, 203, 314, 144, 142, 141),
        (62, 234, 297, 302), (435, 425), 56, (57, 58),
    ),
    "aarch64": _CallTable(
        0xC00000B7, 277,
        (117, 270, 271, 440, 272, 434, 438, 424, 130, 138, 241, 280, 282, 97, 268, 40, 219, 122, 274, 119, 118, 140),
        (129, 131, 240, 261), (435, 425), 220, (),
    ),
}  # fmt: skip

_LOAD, _IF_EQUAL, _IF_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERROR, _ASK = 0x7FFF0000, 0x80000000, 0x00050000, 0x7FC00000
_THREAD = 0x10000
"""The flag of clone that makes a thread and not a process."""
_OTHER_TABLE = 0x40000000
"""The bit of system calls of a second table, which would go around a filter for the first."""
_SET_FILTER, _NEW_LISTENER = 1, 8


def _filter_calls(libc: ctypes.CDLL, *, ask: bool) -> int | None:
    """Install the filter. Return the descriptor for questions, 0 without questions; None if it cannot be installed."""
    table = _TABLES.get(platform.machine())
    if table is None:
        return None
    program = b"".join(struct.pack("=HBBI", *line) for line in _program(table, os.getpid(), _ASK if ask else _ALLOW))
    kept = ctypes.create_string_buffer(program)
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(kept))
    found: int = libc.syscall(table.seccomp, _SET_FILTER, _NEW_LISTENER if ask else 0, header)
    return None if found < 0 else found


def _program(table: _CallTable, pid: int, start: int) -> list[tuple[int, int, int, int]]:
    """Return the instructions of the filter: (operation, lines to skip if it holds, if it does not, operand)."""
    denied, absent = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS
    lines = [
        (_LOAD, 0, 0, _MACHINE), (_IF_EQUAL, 1, 0, table.audit), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER), (_IF_BITS, 0, 1, _OTHER_TABLE), (_RETURN, 0, 0, absent),
    ]  # fmt: skip
    for numbers, answer in ((table.forbidden, denied), (table.absent, absent), (table.forks, start)):
        for number in numbers:
            lines += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]
    for number in table.about_itself:
        lines += [
            (_IF_EQUAL, 0, 5, number), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_IF_EQUAL, 2, 0, pid),
            (_IF_EQUAL, 0 if number != table.about_itself[-1] else 1, 0, 0), (_RETURN, 0, 0, denied),
            (_RETURN, 0, 0, _ALLOW),
        ]  # fmt: skip
    lines += [
        (_IF_EQUAL, 0, 4, table.clone), (_LOAD, 0, 0, _FIRST_ARGUMENT), (_IF_BITS, 1, 0, _THREAD),
        (_RETURN, 0, 0, start), (_RETURN, 0, 0, _ALLOW),
    ]  # fmt: skip
    return [*lines, (_RETURN, 0, 0, _ALLOW)]
