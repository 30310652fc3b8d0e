"""Launches of TensorFlow, and how they are differentiated: by a tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from opmark.errors import Unsupported
from opmark.interfaces import Held
from opmark.schema import Compilation


class Launched:
    """Calls with what the boxes hold now."""

    compilation: Compilation | None = None

    def __init__(self, call: Callable[..., Any], run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.call = call
        """The function in Python, for whoever differentiates it."""
        self._run = run
        self.arguments = arguments
        self.reads = arguments
        self.leaves = tuple(box for box in arguments if box.value.dtype.is_floating)

    def __call__(self) -> Any:
        return self._run(*[box.value for box in self.arguments])


class Step(Launched):
    """The gradients of a step. The outputs are computed too: a graph that did not return them would leave them out
    where no gradient needs them."""

    def __call__(self) -> Any:
        return self._run(*[box.value for box in self.arguments])[0]


class LaidGradient(Held):
    """The gradient of a weight in the layout in which TensorFlow's users keep both: what they would hand to an
    optimizer. It goes back to the layout of the catalogue only for somebody who looks."""

    __slots__ = ("_box",)

    def __init__(self, value: Any, box: Any) -> None:
        super().__init__(value)
        self._box = box

    def plain(self) -> Any:
        """The gradient in the layout of the catalogue, by the chain rule through what laid the weight out."""
        source = self._box.source.value
        with tf.GradientTape() as tape:
            tape.watch(source)
            laid = self._box.lay(source)
        return tape.gradient(laid, source, output_gradients=self.value)


class _Marked:
    """Says of the gradients of a launch which of them are laid out."""

    def __init__(self, launch: Launched, boxes: Sequence[Any]) -> None:
        self._launch = launch
        self._boxes = boxes
        self.compilation = launch.compilation

    def __call__(self) -> Any:
        pairs = zip(self._launch(), self._boxes, strict=True)
        return tuple(value if box is None else LaidGradient(value, box) for value, box in pairs)


class Differentiable:
    """A function whose gradients a tape computes. A sparse gradient (that of a lookup) is made dense, which is what
    the catalogue means by one; that is part of the launch."""

    def __init__(self, launch: Launched, wanted: Sequence[int], some: bool) -> None:
        self._call = launch.call
        self._some = some
        self.arguments = launch.arguments
        self.wanted = list(wanted)
        self.operators = launch.compilation.operators if launch.compilation else ()
        self.roots = [i for i, out in enumerate(flat(launch())) if out.dtype.is_floating]
        if len(self.roots) > 1:
            self.roots = self._connected([box.value for box in self.arguments])
        if not self.roots:
            raise Unsupported("no output of this implementation has a gradient")

    def _connected(self, values: Sequence[Any]) -> list[int]:
        """The outputs that depend on what is wanted: running statistics, for instance, do not."""
        variables = [values[i] for i in self.wanted]
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(variables)
            outputs = self.forward(*values)
        found = [tape.gradient(out, variables) for out in outputs]
        return [i for i, some in zip(self.roots, found, strict=True) if any(each is not None for each in some)]

    def forward(self, *values: Any) -> list[Any]:
        """The outputs that are gone back from. The others are not for a function of its own that is kept on a tape:
        the way back would take a gradient of zeros for each of them."""
        return self._with_gradient(flat(self._call(*values)))

    def _with_gradient(self, outputs: Sequence[Any]) -> list[Any]:
        return [outputs[i] for i in self.roots]

    def step(self, *values: Any) -> tuple[tuple[Any, ...], list[Any]]:
        """Gradients and all outputs, also those without a gradient: indices, running statistics."""
        values, seeds = values[: len(self.arguments)], values[len(self.arguments) :]
        variables = [values[i] for i in self.wanted]
        with tf.GradientTape() as tape:
            tape.watch(variables)
            outputs = flat(self._call(*values))
        return self.gradients(tape, self._with_gradient(outputs), variables, seeds), outputs

    def gradients(self, tape: Any, outputs: Any, variables: Any, seeds: Any) -> tuple[Any, ...]:
        found = tape.gradient(outputs, variables, output_gradients=list(seeds))
        if self._some:
            found = [gradient for gradient in found if gradient is not None]
        if any(gradient is None for gradient in found):
            raise Unsupported("TensorFlow has no gradient of one of these inputs")
        return tuple(tf.convert_to_tensor(gradient) for gradient in found)

    def marked(self, launch: Launched) -> Launched | _Marked:
        boxes = [self.arguments[i] for i in self.wanted]
        laid = [box if hasattr(box, "lay") else None for box in boxes]
        return _Marked(launch, laid) if any(laid) else launch


def flat(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]
