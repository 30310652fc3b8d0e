"""`opmark env`: environments for frameworks that cannot share this one."""

from __future__ import annotations

from opmark.guests.manage import create_env, envs, remove_env

__all__ = ["create_env", "envs", "remove_env"]
