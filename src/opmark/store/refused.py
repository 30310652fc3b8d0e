"""What a person's SQL may not ask of PostgreSQL: functions that do more than read, by their names; and who may not ask.

A name can be hidden in ways that nobody foresees: this keeps people from mistakes, and a role keeps them from harm.
"""

from __future__ import annotations

import re
from typing import Any

from opmark.errors import UserError

_FUNCTION = re.compile(
    r"\b(pg_(read|ls|stat)_(binary_)?(file|dir)\w*|pg_ls_\w+|pg_(terminate|cancel)_backend|pg_(try_)?advisory\w*"
    r"|pg_(reload_conf|rotate_logfile|promote|switch_wal|create_restore_point|backup_\w+|wal_replay_\w+|notify)"
    r"|pg_(create|drop|copy|replication|logical)_\w*|pg_sleep\w*|lo_\w+|loread|lowrite|dblink\w*|set_config|query_to_xml\w*"
    r"|cursor_to_xml\w*|(table|schema|database)_to_xml\w*|setval|nextval)\"?\s*\(",
    re.IGNORECASE,
)
_TOKEN = re.compile(
    r"""(?P<coded>(?<!\w)U&["'])
      | (?P<name>"(?:[^"]|"")*")
      | (?<!\w)E'(?:[^'\\]|\\.|'')*'
      | '(?:[^']|'')*'
      | (?<![\w$])\$(?P<tag>\w*)\$.*?\$(?P=tag)\$
      | --[^\r\n]*
      | (?P<block>/\*)""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
"""What is no code: texts and comments; and names in quotes, in which these do not begin."""
_BLOCK = re.compile(r"/\*|\*/")

_ROLES = ("pg_read_server_files", "pg_write_server_files", "pg_execute_server_program", "pg_signal_backend")
_WHO = (
    "SELECT current_user, rolsuper, ARRAY(SELECT r.rolname::text FROM pg_roles r WHERE r.rolname = ANY(%s) "
    "AND pg_has_role(current_user, r.oid, 'MEMBER')) FROM pg_roles WHERE rolname = current_user"
)


def refused_in(sql: str) -> str | None:
    """What there is in it that is refused, in words."""
    code: list[str] = []
    place = 0
    while found := _TOKEN.search(sql, place):
        if found["coded"]:
            return "names and texts of the kind U&'...' are not taken"
        code += [sql[place : found.start()], found["name"] or " "]
        place = _end_of_block(sql, found.end()) if found["block"] else found.end()
    function = _FUNCTION.search("".join([*code, sql[place:]]))
    return f"the function {function[1]} does more than read" if function else None


def _end_of_block(sql: str, place: int) -> int:
    """Comments stand in comments."""
    depth = 1
    while depth and (found := _BLOCK.search(sql, place)):
        depth += 1 if found[0] == "/*" else -1
        place = found.end()
    return len(sql) if depth else place


def refuse_roles(connection: Any) -> None:
    """Nothing holds back a role that may read the server's files or end what others do."""
    user, everything, roles = connection.execute(_WHO, [list(_ROLES)]).fetchone()
    if everything or roles:
        what = "a superuser" if everything else f"a member of {', '.join(roles)}"
        raise UserError(
            f"query: `{user}` is {what}, whom nothing on that server holds back",
            "ask as a role that may only read (docs/store.md); --as-superuser asks all the same",
        )
