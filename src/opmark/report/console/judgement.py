"""A judgement on one screen: correct or not, faster or not, how close to the roofline, and what was refused."""

from __future__ import annotations

from collections.abc import Iterator

from opmark import units
from opmark.schema.judgement import NEGLIGIBLE, Judgement, Refusal
from opmark.units import count_noun

_WIDEST = 1000.0
"""Ends of an interval that are further apart than this are not worth printing."""
_REFUSALS: dict[Refusal, str] = {
    "wrong": "wrong",
    "imprecise": "not precise enough",
    "failed": "failed",
    "tampered": "refused",
    "timeout": "too slow to judge",
}


def judgement_lines(found: Judgement) -> Iterator[str]:
    """Yield the lines of the answer."""
    params = " ".join(f"{name}={_shown(value)}" for name, value in found.params.items())
    yield f"{found.candidate} as {found.op} {params} on {found.backend}, {count_noun(found.threads, 'thread')}"
    yield ""
    if found.refusal:
        yield f"{_REFUSALS[found.refusal]}: {found.reason}"
        if found.seeds:
            yield f"inputs of that call: {', '.join(f'{name} from seed {seed}' for name, seed in found.seeds.items())}"
    else:
        yield (
            f"correct: {found.checked} of {found.trials} timed calls were compared with the reference, each with "
            f"inputs of its own; largest error {found.max_abs_error:.3g}, relative {found.max_rel_error:.3g}"
        )
        yield from _speed_lines(found)
    yield ""
    yield f"{'accepted' if found.accepted else 'not accepted'}: {_why(found)}"
    for guard in found.missing:
        yield f"caution: this kernel does not see to it that {guard}"
    for caution in found.cautions:
        yield f"caution: {caution}"


def _speed_lines(found: Judgement) -> Iterator[str]:
    assert found.verdict is not None
    assert found.ratio is not None
    assert found.seconds is not None
    assert found.baseline_seconds is not None
    assert found.protocol_seconds is not None
    assert found.low is not None
    assert found.high is not None
    known = found.low > 0 and found.high < _WIDEST * found.low
    interval = f"99 % interval {found.low:.3f} to {found.high:.3f}" if known else "its interval says nothing"
    yield (
        f"{found.verdict}: {units.seconds(found.seconds)} a call, {found.baseline} "
        f"{units.seconds(found.baseline_seconds)}; ratio {found.ratio:.3f}, {interval}, "
        f"{count_noun(found.pairs, 'pair')} of processes in turns"
    )
    yield f"starting, stopping and copying take {units.seconds(found.protocol_seconds)} a call, which is subtracted"
    if found.share is not None:
        yield f"roofline: {units.percent(found.share)} of what {found.bound} allows ({found.share_of})"
    else:
        yield f"roofline: unknown; `opmark calibrate {found.backend}` measures the peaks of this machine"


def _why(found: Judgement) -> str:
    if found.refusal:
        return "only what is correct is compared"
    if found.verdict == "slower":
        return f"it is correct, and slower than {found.baseline}"
    if found.verdict == "undecided" and found.accepted:
        return f"it is correct, and if it is slower than {found.baseline}, then by less than {NEGLIGIBLE:.0%}"
    if found.verdict == "undecided":
        return (
            f"it is correct, but these times do not tell whether it is slower than {found.baseline}; stop other work, "
            "use fewer --threads, a higher --effort or more --processes"
        )
    return f"it is correct, and not slower than {found.baseline}"


def _shown(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
