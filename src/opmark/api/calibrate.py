from __future__ import annotations

from opmark.api.doctor import calibrate_request
from opmark.api.requests import CalibrateRequest, keywords_of
from opmark.schema.machine import Peaks


@keywords_of(CalibrateRequest)
def calibrate(request: CalibrateRequest) -> Peaks:
    """Measure this machine's real peaks, store them as a run, and keep them for what is shown of later runs."""
    return calibrate_request(request)
