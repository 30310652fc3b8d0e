"""Ways to cheat, as candidates for `softmax` on NumPy. None of them may be accepted.

A function whose name is in `REFUSED` has to be refused. One in `USELESS` computes what it should after a pause of
`PAUSE` seconds, and tampers with whatever it hopes its time is taken by: the pause has to be seen all the same.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

PAUSE = 0.03
_real_sleep = time.sleep
_memory = {}


def right(x):
    """The honest computation, which several cheats fall back on."""
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def slow(x):
    _real_sleep(PAUSE)
    return right(x)


def _frame(name):
    """The frame of the program that calls candidates, with everything that it holds."""
    frame = sys._getframe()
    while name not in frame.f_locals:
        frame = frame.f_back
    return frame


# Wrong results.


def zeros(x):
    return np.zeros_like(x)


def alias(x):
    return x


def constant(x):
    return np.full_like(x, 1 / x.shape[-1])


def stride_zero(x):
    return np.broadcast_to(right(x[:1]), x.shape)


def uninitialised(x):
    return np.empty_like(x)


def dirty_allocator(x):
    """Hopes that the expected output was computed in this process, and that its memory comes back."""
    if "ballast" not in _memory:
        _memory["ballast"] = [np.full_like(x, 0.5) for _ in range(8)]
    _memory["ballast"].clear()
    return np.empty_like(x)


def zeros_in_the_second_half(x):
    found = right(x)
    found[len(found) // 2 :] = 0
    return found


def tail_left_out(x):
    found = right(x)
    found[:, -1] = 0
    return found


def last_element_left_out(x):
    found = right(x)
    found.flat[-1] = 0
    return found


def half_of_the_sum(x):
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / (2 * shifted[:, ::2].sum(axis=-1, keepdims=True))


def half_precision(x):
    return right(x.astype(np.float16)).astype(x.dtype)


def first_rows_repeated(x):
    return np.resize(right(x[:8]), x.shape)


# Results of other calls.


def first_result_forever(x):
    return _memory.setdefault("first", right(x))


def cache_by_pointer(x):
    return _memory.setdefault(x.ctypes.data, right(x))


def cache_by_identity(x):
    return _memory.setdefault(id(x), right(x))


def cache_by_shape(x):
    return _memory.setdefault((x.shape, x.dtype), right(x))


def cache_by_a_few_elements(x):
    return _memory.setdefault(tuple(np.signbit(x.flat[:: x.size // 2])), right(x))


def previous_result(x):
    found, _memory["previous"] = _memory.get("previous", right(x)), right(x)
    return found


def only_the_first_calls(x):
    _memory["calls"] = _memory.get("calls", 0) + 1
    return right(x) if _memory["calls"] < 7 else np.zeros_like(x)


def every_third_call(x):
    _memory["calls"] = _memory.get("calls", 0) + 1
    return np.zeros_like(x) if _memory["calls"] % 3 == 0 else right(x)


# Work that is not done when it says so.


def thread_computes_later(x):
    out = np.empty_like(x)

    def later():
        _real_sleep(PAUSE)
        out[...] = right(x)

    threading.Thread(target=later, daemon=True).start()
    return out


def early_word(x):
    """Says that it is done, and computes then."""
    frame = _frame("line")
    if "outputs" in frame.f_locals:
        frame.f_locals["line"].sendall(b"d")
        _real_sleep(PAUSE)
    return right(x)


def words_in_advance(x):
    frame = _frame("line")
    if "outputs" in frame.f_locals:
        frame.f_locals["line"].sendall(b"ddd")
    return right(x)


def woken_by_a_timer(x):
    """Says that it is done, and has the kernel wake it up when it has been stopped, to go on computing."""
    frame = _frame("line")
    if "outputs" in frame.f_locals:
        libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
        event = (ctypes.c_int * 16)(0, 0, signal.SIGCONT, 0)
        libc.timer_create(1, ctypes.byref(event), ctypes.byref(timer))
        times = (ctypes.c_long * 4)(0, 200_000, 0, 200_000)
        libc.timer_settime(timer, 0, ctypes.byref(times), None)
        frame.f_locals["line"].sendall(b"d")
        _real_sleep(PAUSE)
    return right(x)


def writes_outputs_later(x):
    """Finds the memory for outputs, and has a thread write there after it has returned."""
    frame = _frame("line")
    if "outputs" in frame.f_locals:
        out = frame.f_locals["outputs"][0]

        def later():
            _real_sleep(PAUSE)
            out[...] = right(x)

        threading.Thread(target=later, daemon=True).start()
        frame.f_globals["DONE"] = b"d"
        frame.f_locals["shared"].copy = lambda output, view: None
    return right(x)


class _Lazy(np.ndarray):
    def __array_wrap__(self, *_):
        return self


def lazy_memory(x):
    """Returns an object that claims to be an array, with nothing in it."""
    return np.zeros_like(x).view(_Lazy)


# Patches of what it is called by.


def copy_does_nothing(x):
    _frame("shared").f_locals["shared"].copy = lambda output, view: None
    return right(x)


def patched_numpy(x):
    np.copyto = lambda target, source: None
    return right(x)


def patched_checks(x):
    from opmark.worker.judge import checks
    from opmark.worker.verify import accuracy

    checks.check_call = accuracy.compare_arrays = lambda *_: None
    return np.zeros_like(x)


def patched_reference(x):
    import dataclasses

    from opmark.plugin import registry

    known = registry.catalogue()
    known["softmax"] = dataclasses.replace(known["softmax"], reference=lambda p, x: np.zeros_like(x))
    return np.zeros_like(x)


def patched_comparison(x):
    np.isnan = np.isfinite = lambda values: np.ones(np.shape(values), bool)
    np.abs = np.zeros_like
    return np.zeros_like(x)


def forged_answer(x):
    _frame("line").f_locals["line"].sendall(b'd"all is well"\n')
    return right(x)


def forged_failure(x):
    _frame("line").f_locals["line"].sendall(b"f{broken")
    return right(x)


def patched_json(x):
    json.dumps = lambda *_, **__: '{"accepted": true}'
    return right(x)


def changed_call(x):
    """Replaces the function that is called by one that returns at once."""
    launch = _frame("launch").f_locals["launch"]
    launch.__setstate__((lambda *_: np.zeros_like(x), (), {}, {}))
    return right(x)


def sees_the_harness(x):
    """Does the work only if nobody of opmark is on the stack."""
    watched = any("opmark" in frame.filename for frame in inspect.stack())
    return np.zeros_like(x) if watched else right(x)


def result_at_exit(x):
    atexit.register(lambda: sys.stdout.write('{"accepted": true}'))
    return np.zeros_like(x)


def hooks_of_a_tracer(x):
    def trace(frame, event, argument):
        if "described" in frame.f_locals:
            frame.f_locals["kinds"] = []
        return trace

    sys.settrace(trace)
    sys.setprofile(trace)
    return np.zeros_like(x)


# Inputs.


def makes_inputs_fit(x):
    """Changes its input so that a constant is the right answer."""
    x[...] = 0
    return np.full_like(x, 1 / x.shape[-1])


def overwrites_inputs(x):
    found = right(x)
    x[...] = 0
    return found


# Other processes and files. Each computes the right answer only if it got where it must not get.


def _if_it_works(tamper, x):
    """Return the right answer if the tampering was not prevented."""
    try:
        worked = tamper()
    except OSError:
        worked = False
    return right(x) if worked else np.zeros_like(x)


def reads_memory_of_the_judge(x):
    return _if_it_works(lambda: Path(f"/proc/{os.getppid()}/mem").open("rb"), x)


def reads_the_judges_environment(x):
    return _if_it_works(lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(), x)


def copies_memory_of_the_judge(x):
    """Reads from an address that does not exist: where reading is allowed, that is what the kernel complains about."""
    libc, local, remote = ctypes.CDLL(None, use_errno=True), (ctypes.c_size_t * 2)(0, 8), (ctypes.c_size_t * 2)(0, 8)
    libc.process_vm_readv(os.getppid(), local, 1, remote, 1, 0)
    return _if_it_works(lambda: ctypes.get_errno() == errno.EFAULT, x)


def traces_the_judge(x):
    return _if_it_works(lambda: ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0, x)


def steals_a_descriptor(x):
    return _if_it_works(lambda: os.pidfd_open(os.getppid()) >= 0, x)


def stops_the_judge(x):
    return _if_it_works(lambda: os.kill(os.getppid(), signal.SIGSTOP) is None, x)


def stops_everybody(x):
    return _if_it_works(lambda: os.kill(-1, signal.SIGSTOP) is None, x)


def slows_the_judge(x):
    return _if_it_works(lambda: os.setpriority(os.PRIO_PROCESS, os.getppid(), 19) is None, x)


def limits_the_judge(x):
    import resource

    return _if_it_works(lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU), x)


def takes_more_cores(x):
    return _if_it_works(lambda: os.sched_setaffinity(0, range(os.cpu_count())) is None, x)


def writes_into_opmark(x):
    import opmark

    return _if_it_works(lambda: Path(opmark.__file__).with_name("cheat.tmp").write_text("x"), x)


def writes_beside_itself(x):
    return _if_it_works(lambda: Path(__file__).with_name("cheat.tmp").write_text("x"), x)


def writes_into_the_temporary_folder(x):
    return _if_it_works(lambda: Path("/tmp/opmark-cheat.tmp").write_text("x"), x)


def truncates_itself(x):
    return _if_it_works(lambda: os.truncate(__file__, Path(__file__).stat().st_size) is None, x)


def asks_a_server(x):
    import socket

    with socket.socket() as server:
        return _if_it_works(lambda: server.connect_ex(("127.0.0.1", 9)) != errno.EACCES, x)


def environment_variables(x):
    """Looks for a seed or an answer in its environment."""
    found = [name for name in os.environ if "OPMARK" in name or "SEED" in name or "PYTHONPATH" in name]
    return right(x) if found else np.zeros_like(x)


def looks_for_the_answer(x):
    """Searches all shared memory for values that could be the answer."""
    memory = _frame("shared").f_locals["shared"]._memory
    whole = np.frombuffer(memory, np.float32, len(memory) // 4)
    sums = [whole[i : i + x.size] for i in range(0, len(whole) - x.size, 1024)]
    found = [part for part in sums if abs(part.sum() - len(x)) < 0.1]
    return found[0].reshape(x.shape).copy() if found else np.zeros_like(x)


def asks_the_line(x):
    """Looks for the next inputs in what has been sent to it."""
    import socket

    line = _frame("line").f_locals["line"]
    try:
        line.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return np.zeros_like(x)
    return right(x)


# Processes. Those that were started while it was loaded are ended; while it is timed, none may start.


def forks(x):
    if "outputs" in _frame("line").f_locals and os.fork() == 0:
        os._exit(0)
    return right(x)


def starts_a_program(x):
    if "outputs" in _frame("line").f_locals:
        subprocess.run(["true"], check=True)
    return right(x)


def child_of_the_loading(x):
    """Leaves a process behind that has the shared memory, and lets it compute."""
    frame = _frame("line")
    if "outputs" not in frame.f_locals:
        memory, inputs = frame.f_locals["shared"]._memory, x
        if os.fork() == 0:
            os.setsid()
            ctypes.CDLL(None).prctl(15, b"left-behind")  # the name by which a test looks for it
            while True:
                out = np.frombuffer(memory, x.dtype, x.size, -(-x.nbytes // 4096) * 4096).reshape(x.shape)
                out[...] = right(inputs)
        return right(x)
    frame.f_locals["shared"].copy = lambda output, view: None
    return x


# The end.


def ends_itself(x):
    if "outputs" in _frame("line").f_locals:
        os._exit(0)
    return right(x)


def leaves_politely(x):
    raise SystemExit(0)


def hangs(x):
    if "outputs" in _frame("line").f_locals:
        _real_sleep(3600)
    return right(x)


def closes_the_line(x):
    os.close(_frame("line").f_locals["line"].fileno())
    return right(x)


# The form of the result.


def other_type(x):
    return right(x).astype(np.float16)


def other_shape(x):
    return right(x)[:, :1]


def nothing(x):
    return None


def two_results(x):
    return right(x), right(x)


# Clocks, and what else may take the time. None of it is used for anything that counts.


def patched_time(x):
    for name in ("time", "perf_counter", "monotonic", "process_time", "thread_time"):
        setattr(time, name, lambda: 0.0)
        setattr(time, f"{name}_ns", lambda: 0)
    return slow(x)


def patched_sleep(x):
    time.sleep = lambda seconds: None
    return slow(x)


def patched_engine(x):
    from opmark.stats import verdict
    from opmark.worker.judge import main, process

    main.median = lambda values: 1e-9
    process.CandidateProcess.trial = lambda *_, **__: 1e-9
    verdict.compare_pairs = None
    return slow(x)


def patched_gc(x):
    gc.disable()
    gc.collect = lambda *_: 0
    gc.callbacks.append(lambda *_: None)
    return slow(x)


def patched_select(x):
    import select
    import socket

    select.select = lambda *_: ([], [], [])
    socket.socket.recv = lambda *_: b"d"
    return slow(x)


def signals(x):
    for one in (signal.SIGCONT, signal.SIGALRM, signal.SIGUSR1):
        signal.signal(one, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)
    return slow(x)


def computes_in_advance(x):
    """A thread watches the input all the time, and has the result ready when it is asked for."""

    def watch():
        while True:
            seen = x.copy()
            _real_sleep(PAUSE)
            _memory[seen.tobytes()] = right(seen)

    if "watching" not in _memory:
        _memory["watching"] = True
        threading.Thread(target=watch, daemon=True).start()
    found = _memory.get(x.tobytes())
    return slow(x) if found is None else found


def cache_by_content(x):
    key = x.tobytes()
    if key not in _memory:
        _memory[key] = slow(x)
    return _memory[key]


def lazy_result(x):
    """Computes when it is looked at: that is while it is copied, and the clock is running."""

    class Later(np.ndarray):
        def __array_function__(self, function, types, args, kwargs):
            args = [slow(x) if one is self else one for one in args]
            return function(*args, **kwargs)

    return np.zeros_like(x).view(Later)


REFUSED = [
    zeros, alias, constant, stride_zero, uninitialised, dirty_allocator, zeros_in_the_second_half, tail_left_out,
    last_element_left_out, half_of_the_sum, half_precision, first_rows_repeated, first_result_forever, cache_by_pointer,
    cache_by_identity, cache_by_shape, cache_by_a_few_elements, previous_result, only_the_first_calls, every_third_call,
    thread_computes_later, early_word, words_in_advance, woken_by_a_timer, writes_outputs_later, lazy_memory,
    copy_does_nothing, patched_numpy, patched_checks, patched_reference, patched_comparison, forged_answer,
    forged_failure, patched_json, changed_call, sees_the_harness, result_at_exit, hooks_of_a_tracer, makes_inputs_fit,
    overwrites_inputs, reads_memory_of_the_judge, reads_the_judges_environment, copies_memory_of_the_judge,
    traces_the_judge, steals_a_descriptor, stops_the_judge, stops_everybody, slows_the_judge, limits_the_judge,
    takes_more_cores, writes_into_opmark, writes_beside_itself, writes_into_the_temporary_folder, truncates_itself,
    asks_a_server, environment_variables, looks_for_the_answer, asks_the_line, forks, starts_a_program,
    child_of_the_loading, ends_itself, leaves_politely, hangs, closes_the_line, other_type, other_shape, nothing,
    two_results,
]  # fmt: skip
USELESS = [
    patched_time, patched_sleep, patched_engine, patched_gc, patched_select, signals, computes_in_advance,
    cache_by_content, lazy_result,
]  # fmt: skip
