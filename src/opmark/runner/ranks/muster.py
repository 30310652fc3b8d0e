"""Where the ranks of a world come from: processes that are started here."""

from __future__ import annotations

from opmark.interfaces import BackendInfo
from opmark.runner.ranks.crew import Crew
from opmark.runner.ranks.members import Inbox, LocalMember
from opmark.runner.supervisor import Keep


class Muster:
    """All ranks on this host, each a child of this process."""

    def crew(self, info: BackendInfo, threads: int, ranks: int, timeout: float, keep: Keep) -> Crew:
        inbox = Inbox()
        return Crew(info, threads, [LocalMember(rank, inbox) for rank in range(ranks)], inbox, timeout, keep)
