"""The process that looks at a replay, call by call: `python -m opmark.traces.replay_child QUESTION`.

The parent imports no framework. The answer is the last line of the output, as JSON: a ReplayReport, or an error. Ranks
are processes of their own that meet in a file.
"""

from __future__ import annotations

import datetime
import sys

import msgspec
import torch

from opmark.errors import OpmarkError
from opmark.models.host import ChildAnswer, describe_error
from opmark.plugin.registry import backend as find_backend
from opmark.schema.replay import ReplayReport
from opmark.traces.family import find_files
from opmark.traces.replay_case import build_replay
from opmark.traces.replay_question import ReplayQuestion

_WARM_UP = 2


def main() -> int:
    question = msgspec.json.decode(sys.argv[1], type=ReplayQuestion)
    try:
        answer = ChildAnswer(msgspec.Raw(msgspec.json.encode(look(question))))
    except OpmarkError as error:
        answer = describe_error(error)
    print(msgspec.json.encode(answer).decode())
    return 0


def look(question: ReplayQuestion) -> ReplayReport:
    """Replay a trace as often as warms it up, then once more with a clock around every call."""
    backend = find_backend(question.backend).load(question.threads)
    with backend.placing():
        if question.world > 1:
            import torch.distributed as dist

            engine = dist.get_default_backend_for_device(str(torch.get_default_device().type))
            within = datetime.timedelta(seconds=question.timeout)
            dist.init_process_group(
                engine, init_method=f"file://{question.meeting}", rank=question.rank, world_size=question.world,
                timeout=within,
            )  # fmt: skip
        replay = build_replay(find_files(question.name), question.params, question.rank, question.world)
        for _ in range(_WARM_UP):
            replay()
        backend.synchronize()
        report = msgspec.structs.replace(replay.report(timed=True), backend=question.backend)
        if question.world > 1:
            dist.barrier()  # nobody leaves while another one still communicates
            dist.destroy_process_group()
    return report


if __name__ == "__main__":
    sys.exit(main())
