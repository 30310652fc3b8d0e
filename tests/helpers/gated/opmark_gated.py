"""A stranger's backend whose tasks wait until a test lets them go on, so that it can strike in the middle of one."""

from __future__ import annotations

from opmark.plugin import BackendInfo

INFO = BackendInfo(
    name="gated",
    framework="null",
    device="none",
    summary="computes nothing, and waits for inputs with more rows than the file $OPMARK_GATE says",
    loads="opmark_gated_code:Backend",
    computes=False,
)
