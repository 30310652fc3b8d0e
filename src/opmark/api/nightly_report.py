"""Write the files of a night, and tell whoever wants to know."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import msgspec

from opmark.api.nightly_file import NightlyPlan
from opmark.api.report import report_request
from opmark.api.requests import ReportRequest
from opmark.errors import UserError, one_line
from opmark.report.formats.junit import junit_xml
from opmark.report.formats.markdown import summary_markdown
from opmark.report.formats.night import night_lines, night_markdown, night_view
from opmark.schema.comparison import CheckResult
from opmark.schema.nightly import Night, NightRun

NIGHT_FILE, SUMMARY_FILE = "night.json", "summary.md"
VARIABLE = "OPMARK_NIGHT"
"""Variable in which the command of a hook finds the path of the night's JSON file."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_COMMAND_TIMEOUT = 600.0
_POST_TIMEOUT = 30.0
_PAUSES = (1.0, 5.0)
"""Seconds to wait before each further try to post."""


def night_folder(plan: NightlyPlan, night: Night) -> Path:
    folder = plan.folder / night.date
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(plan: NightlyPlan, night: Night, run: NightRun, name: str, text: str) -> None:
    """Write a file of a run, and remember it."""
    part = f"-part-{run.part.replace('/', '-of-')}" if run.part else ""
    path = night_folder(plan, night) / f"{run.job}{part}{name}"
    path.write_text(text, encoding="utf-8")
    shown = str(path.relative_to(plan.folder))
    if shown not in run.files:
        run.files.append(shown)


def write_report(plan: NightlyPlan, night: Night, run: NightRun, db: str | None) -> None:
    """Write the report of a run, compared with its baseline."""
    names = [*([run.baseline] if run.baseline else []), run.run]
    title = f"{run.label}, night of {night.date}" + (f", part {run.part}" if run.part else "")
    try:
        page = report_request(ReportRequest(names, title=title, db=db, unlike=True))
    except UserError as error:  # the numbers are stored all the same
        run.notes.append(f"no report: {one_line(error)}")
        return
    assert isinstance(page, str)
    _write(plan, night, run, ".html", page)


def write_check(plan: NightlyPlan, night: Night, run: NightRun, checked: CheckResult) -> None:
    _write(plan, night, run, ".md", summary_markdown(checked))
    _write(plan, night, run, ".xml", junit_xml(checked))


def write_night(plan: NightlyPlan, night: Night) -> None:
    """Write the night as JSON and as text, and remove the folders of nights that are too old."""
    folder = night_folder(plan, night)
    view = msgspec.json.format(msgspec.json.encode(night_view(night)))
    (folder / NIGHT_FILE).write_bytes(view)
    (folder / SUMMARY_FILE).write_text(night_markdown(night), encoding="utf-8")
    nights = sorted(path for path in plan.folder.iterdir() if path.is_dir() and _DATE.fullmatch(path.name))
    for old in nights[: -plan.file.report.keep]:
        shutil.rmtree(old)


def tell_hooks(plan: NightlyPlan, night: Night, say: Callable[[str], None]) -> None:
    """Run the command and post to the address that the file names, if the night is one to tell of. Of a night that was
    told before, only those are told that could not be. The night knows which failed."""
    hook, left = plan.file.hook, night.undelivered
    night.problems = [problem for problem in night.problems if problem not in left.values()]
    told = {"always": True, "failed": bool(night.exit_code), "changed": night.changed}[hook.when]
    hooks = {"command": hook.command, "url": plan.url}
    names = [name for name, there in hooks.items() if there and (name in left or (told and not left))]
    night.undelivered = _call_hooks(plan, night, names) if names else {}
    night.problems += night.undelivered.values()
    for problem in night.undelivered.values():
        say(problem)
    if left or night.undelivered:
        write_night(plan, night)


def _call_hooks(plan: NightlyPlan, night: Night, names: list[str]) -> dict[str, str]:
    """Return what failed, by the name of the hook."""
    night.undelivered = {}  # what they are told is as if nothing had failed
    body = msgspec.json.encode({**night_view(night), "text": "\n".join(night_lines(night))})
    calls = {"command": lambda: _run_command(plan, night, body), "url": lambda: _post(plan, body)}
    return {name: problem for name in names if (problem := calls[name]())}


def _run_command(plan: NightlyPlan, night: Night, body: bytes) -> str:
    """Run the command by the shell, in the folder of the file. Return what failed; empty if nothing did."""
    environ = {**os.environ, VARIABLE: str(night_folder(plan, night) / NIGHT_FILE)}
    try:
        done = subprocess.run(
            plan.file.hook.command, shell=True, cwd=plan.path.parent, env=environ, input=body, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_COMMAND_TIMEOUT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"hook: the command did not end within {_COMMAND_TIMEOUT:.0f} s"
    if done.returncode == 0:
        return ""
    lines = done.stdout.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
    return f"hook: the command failed with exit code {done.returncode}: {lines[-1][:300]}"


def _post(plan: NightlyPlan, body: bytes) -> str:
    """Post the JSON, three times at most. A message never quotes the address, which may hold a secret."""
    headers = {"Content-Type": "application/json", **plan.headers}
    why = ""
    for pause in (0.0, *_PAUSES):
        time.sleep(pause)
        try:
            with urlopen(Request(plan.url, body, headers, method="POST"), timeout=_POST_TIMEOUT):
                return ""
        except HTTPError as error:
            why = f"it answered {error.code} {error.reason}"
            if error.code < 500:
                break
        except (URLError, HTTPException, OSError) as error:
            why = str(getattr(error, "reason", error)) or type(error).__name__
        except ValueError:
            why = "the address is none"
            break
    return f"hook: the address could not be posted to: {why}"
