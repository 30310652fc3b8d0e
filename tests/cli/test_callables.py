"""opmark run torch.add --args ...: any callable, from the command line to the table."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

Command = Callable[..., Any]

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")

QUICK = ["--effort", "quick", "--processes", "1"]

NOT_VERIFIED = "not verified: a callable has no reference in the catalogue"


@needs_torch
def test_a_function_is_measured_and_its_operations_are_counted(main: Command) -> None:
    done = main(
        "run", "torch.baddbmm", "--args", "[8x64x64 float32, 8x64x64 float32, 8x64x64 float32]",
        "--kwargs", "{alpha: 2}", *QUICK, "--json",
    )  # fmt: skip
    assert done.code == 0
    (found,) = done.objects
    assert (found["op"], found["status"], found["reason"]) == ("torch.baddbmm", "unchecked", NOT_VERIFIED)
    assert found["params"]["kwargs"] == {"alpha": 2}
    assert found["view"] is False
    assert found["cost"]["flops"] == 2 * 8 * 64**3


@needs_torch
def test_a_class_is_built_and_an_axis_multiplies(main: Command) -> None:
    done = main(
        "run", "torch.nn.Linear", "--build", "{args: ['{n}', 3]}", "--args", "['2x{n} float32']", "-p", "n=4,8", *QUICK
    )
    assert done.code == 0
    rows = [line for line in done.out.splitlines() if line.startswith("torch.nn.Linear")]
    assert "(4, 3)(2x4 float32) eval()" in rows[0]
    assert "(8, 3)(2x8 float32) eval()" in rows[1]


def test_an_array_function_needs_no_torch(main: Command) -> None:
    done = main("run", "numpy.transpose", "--args", "[64x64 float32]", "--backend", "numpy-cpu", *QUICK, "--json")
    assert done.code == 0
    (found,) = done.objects
    assert (found["status"], found["view"]) == ("unchecked", True)


def test_a_plan_of_a_callable_is_printed_without_running_it(main: Command) -> None:
    done = main("run", "torch.add", "--args", "[4 float32, 4 float32]", "--dry-run", "--backend", "torch-cpu")
    assert done.code == 0
    assert "4 float32, 4 float32" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["torch.add"], "needs arguments"),
        (["torch.add", "--args", "4 float32"], "--args: expected a list"),
        (["torch.add", "--args", "{a: 1}"], "--args: expected a list"),
        (["torch.add", "--kwargs", "[1]"], "--kwargs: expected a mapping"),
        (["torch.add", "--build", "3"], "--build: expected a list or a mapping"),
        (["torch.add", "--args", "[4 float32"], "--args"),
        (["torch.add", "--args", "[4 float31]"], "expected an element type, got `float31`"),
        (["torch.add", "--args", "['{n} float32']"], "`{n}` stands for a parameter that has no value"),
        (["torch.add", "--args", "[4 float32]", "--size", "small"], "has no sizes"),
        (["exp", "--args", "[4 float32]"], "takes parameters, not args"),
        (["--suite", "quick", "--args", "[4 float32]"], "go with operators"),
        (["os.system", "--args", "[ls]"], "no callable named `os.system`"),
        (["zzz*"], "zzz*"),
    ],
)
def test_a_mistake_in_a_call_is_the_users_and_has_no_traceback(
    main: Command, arguments: list[str], message: str
) -> None:
    done = main("run", *arguments)
    assert done.code == 2
    assert done.out == ""
    assert message in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_a_callable_can_be_described(main: Command) -> None:
    done = main("describe", "torch.baddbmm")
    assert done.code == 0
    assert "torch.baddbmm" in done.out
    assert "args" in done.out


needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed")


@needs_jax
def test_a_function_of_jax_runs_on_jax_without_being_told(main: Command) -> None:
    done = main("run", "jax.numpy.exp", "--args", "[8x16 float32]", *QUICK, "--json")
    assert done.code == 0
    (found,) = done.objects
    assert (found["op"], found["backend"]) == ("jax.numpy.exp", "jax-cpu")
    assert (found["status"], found["reason"]) == ("unchecked", NOT_VERIFIED)
    assert found["cost"] == {"flops": None, "bytes_read": 512, "bytes_written": 512}
    assert found["quantities"]["latency"]["warm"]["median"] > 0


@needs_jax
def test_a_function_of_jax_has_no_backward_phase_yet(main: Command) -> None:
    done = main("run", "jax.numpy.exp", "--args", "[8 float32]", "--phase", "forward,backward", *QUICK, "--json")
    assert done.code == 0
    found = {row["phase"]: (row["status"], row["reason"]) for row in done.objects}
    assert found["forward"] == ("unchecked", NOT_VERIFIED)
    why = "JAX differentiates functions, not calls: a callable has no backward phase here"
    assert found["backward"] == ("skipped", why)


@needs_jax
def test_a_function_of_jax_does_not_run_on_another_framework(main: Command) -> None:
    done = main("run", "jax.numpy.exp", "--args", "[8 float32]", "--backend", "numpy-cpu", *QUICK, "--json")
    assert (done.code, done.out) == (2, "")
    assert "`jax.numpy.exp` has no implementation for numpy" in done.line("error:")
