"""New tensors: constants, sequences, random values; densities; copies into existing memory."""

from __future__ import annotations

from typing import Any

from opmark.errors import Unsupported
from opmark.frameworks.mxnet.implementations._rows import nd, np_row, refuse_float64, row, to_integers, write_call
from opmark.plugin import Params
from opmark.schema.tensor import is_float


def _new(p: Params) -> dict[str, Any]:
    return {"shape": tuple(p["shape"]), "dtype": p["dtype"]}


def _arange(mx: Any, p: Params) -> Any:
    """End half a step after the last element, so that rounding cannot add or drop an element."""
    last = p["start"] + p["step"] * (p["elements"] - 1)
    return mx.nd.arange(p["start"], last + p["step"] / 2, p["step"], dtype=p["dtype"])


def _linspace(mx: Any, p: Params) -> Any:
    return mx.nd.linspace(p["start"], p["stop"], p["elements"], dtype=p["dtype"])


def _logspace(mx: Any, p: Params) -> Any:
    return mx.np.logspace(p["start"], p["stop"], p["elements"], dtype=p["dtype"])


def _fill(mx: Any, p: Params, x: Any) -> Any:
    x[:] = p["value"]
    return x


def _sampler(name: str, **names: str) -> Any:
    """Make a sampler with one distribution for all values; `names` maps its parameter names to ours."""

    def call(mx: Any, p: Params) -> Any:
        return getattr(mx.nd, name)(**{theirs: p[ours] for theirs, ours in names.items()}, **_new(p))

    return row(call, f"mxnet.nd.{name}")


def _negative_binomial(mx: Any, p: Params) -> Any:
    if p["k"] != int(p["k"]):
        raise Unsupported("MXNet takes only integers as the number of successes")
    return mx.nd.random_negative_binomial(k=int(p["k"]), p=p["prob"], **_new(p))


def _row_sampler(name: str) -> Any:
    """Make a sampler with one distribution per row; MXNet returns the draws of one distribution as neighbours."""

    def call(mx: Any, p: Params, **parameters: Any) -> Any:
        return getattr(mx.nd, name)(*parameters.values(), shape=(p["draws"],), dtype=p["dtype"]).T

    return row(call, f"mxnet.nd.{name}")


def _multinomial(mx: Any, p: Params, weights: Any) -> Any:
    shares = mx.nd.broadcast_div(weights, mx.nd.sum(weights, axis=-1, keepdims=True))
    return to_integers(mx.nd.sample_multinomial(shares, shape=(p["draws"],)))


def _bernoulli(mx: Any, p: Params, x: Any) -> Any:
    return mx.nd.random_uniform(shape=x.shape, dtype=p["dtype"]) < x


def _randint(mx: Any, p: Params) -> Any:
    return mx.nd.random_randint(low=p["low"], high=p["high"], **_new(p))


def _density(name: str) -> Any:
    """Make a density with one distribution per row of points."""

    def call(mx: Any, p: Params, sample: Any, **parameters: Any) -> Any:
        rows = (value.reshape((value.shape[0], *value.shape[2:])) for value in parameters.values())
        return getattr(mx.nd, name)(sample, *rows, is_log=p["log"])

    made = row(call, f"mxnet.nd.{name}")
    return refuse_float64(made, "the root of 2π") if name == "random_pdf_normal" else made


def _write_to(step: Any, path: str = "") -> Any:
    def build(mx: Any, p: Params, x: Any, **others: Any) -> Any:
        if p["repeats"] != 1:
            raise Unsupported("MXNet cannot write the same memory several times in one call; numpy-cpu can")
        out = mx.nd.zeros(x.shape, dtype=x.dtype)
        return lambda: step(mx, out, x, *others.values())

    return write_call(build, path)


def _triad(mx: Any, out: Any, x: Any, y: Any) -> Any:
    mx.nd._internal._mul_scalar(y, scalar=3.0, out=out)
    return mx.nd.elemwise_add(x, out, out=out)


def _full(mx: Any, p: Params) -> Any:
    value = p["value"] if is_float(p["dtype"]) else int(p["value"])
    return mx.nd.full(val=value, **_new(p))


PAIRS = ("uniform", "normal", "exponential", "gamma", "poisson", "negative_binomial", "generalized_negative_binomial")

IMPLEMENTATIONS = {
    "zeros": row(lambda mx, p: mx.nd.zeros(**_new(p)), "mxnet.nd.zeros"),
    "ones": row(lambda mx, p: mx.nd.ones(**_new(p)), "mxnet.nd.ones"),
    "full": row(_full, "mxnet.nd.full"),
    "zeros_like": nd("zeros_like", "x"),
    "ones_like": nd("ones_like", "x"),
    "full_like": np_row(lambda mx, p, x: mx.np.full_like(x, p["value"]), "mxnet.np.full_like"),
    "fill": row(_fill),
    "arange": row(_arange, "mxnet.nd.arange"),
    "linspace": row(_linspace, "mxnet.nd.linspace"),
    "logspace": row(_logspace, "mxnet.np.logspace"),
    "eye": row(lambda mx, p: mx.nd.eye(p["rows"], p["columns"], dtype=p["dtype"]), "mxnet.nd.eye"),
    "random_uniform": _sampler("random_uniform", low="low", high="high"),
    "random_normal": _sampler("random_normal", loc="mean", scale="std"),
    "random_exponential": _sampler("random_exponential", lam="rate"),
    "random_gamma": _sampler("random_gamma", alpha="alpha", beta="scale"),
    "random_poisson": _sampler("random_poisson", lam="rate"),
    "random_negative_binomial": row(_negative_binomial, "mxnet.nd.random_negative_binomial"),
    "random_generalized_negative_binomial": _sampler("random_generalized_negative_binomial", mu="mu", alpha="alpha"),
    "random_randint": row(_randint, "mxnet.nd.random_randint"),
    **{f"sample_{name}": _row_sampler(f"sample_{name}") for name in PAIRS},
    "bernoulli": row(_bernoulli),
    "multinomial": row(_multinomial, "mxnet.nd.sample_multinomial"),
    "randperm": row(lambda mx, p: mx.nd.shuffle(mx.nd.arange(p["elements"], dtype=p["dtype"])), "mxnet.nd.shuffle"),
    "shuffle": nd("shuffle", "x"),
    **{f"random_pdf_{name}": _density(f"random_pdf_{name}") for name in (*PAIRS, "dirichlet")},
    "copy": _write_to(lambda mx, out, x: mx.nd.identity(x, out=out)),
    "triad": _write_to(_triad),
}
