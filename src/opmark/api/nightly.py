"""Measure, compare, look back, bisect, report and tell, night after night: `opmark nightly`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from opmark.analysis.comparison import where
from opmark.api.bisect import bisect_cases, guest_of_version
from opmark.api.check import check_request, compare_stored, counted_cases, find_baseline
from opmark.api.compare import RunFinder, RunReference
from opmark.api.env import create_env, remove_env
from opmark.api.history import history_request
from opmark.api.keywords import keywords_of
from opmark.api.nightly_file import NightlyJob, NightlyPlan, environment_names, read_nightly, request_of
from opmark.api.nightly_report import tell_hooks, write_check, write_night, write_report
from opmark.api.nightly_state import choose_night, hold_lock, read_state, write_state
from opmark.api.requests import BisectRequest, CheckRequest, HistoryRequest, NightlyRequest, PlanRequest, RunRequest
from opmark.api.result import Result, open_store
from opmark.api.run import plan_request, run_request
from opmark.api.runs import describe_run
from opmark.errors import StoreError, UserError, one_line
from opmark.plugin.registry import backends
from opmark.runner.guests.environments import find_environment
from opmark.runner.selection import default_backends, take_part
from opmark.schema.comparison import CheckedCase, CheckResult, Pairing
from opmark.schema.history import History
from opmark.schema.nightly import BisectNews, CaseNews, LevelNews, Night, NightlyState, NightRun
from opmark.schema.options import options_of, split_names
from opmark.schema.record import utc_now
from opmark.schema.run import CHANGED
from opmark.store.runs import label_in
from opmark.units import count_noun

_TOLD = ("slower", "failed", "unconfirmed", "faster", "mended")
"""Outcomes of cases that are worth telling."""


@keywords_of(NightlyRequest)
def nightly(request: NightlyRequest) -> Night:
    """Do what is left of the night that a file describes, and return what became of it: `opmark nightly`."""
    return nightly_request(request)


def nightly_request(request: NightlyRequest) -> Night:
    """Do what is left of a night, and return it. A night that is finished is returned as it is.

    The lock is held until the end, and the state is written after each step, so that a kill costs the step it hits.
    """
    plan = _read_plan(request)
    with hold_lock(plan.folder):
        state = read_state(plan.folder)
        night, begun = choose_night(plan, state, request.night, again=request.again)
        if night.finished:
            request.say(f"the night of {night.date} is done since {night.finished[:19]} UTC; --again measures it anew")
            if night.undelivered:
                request.say(
                    f"told again, since it failed before: the {' and the '.join(night.undelivered)} of the hook"
                )
                tell_hooks(plan, night, request.say)
                write_state(plan.folder, state)
            return night
        if begun:
            request.say(f"the night of {night.date}, begun {night.started[:19]} UTC, is continued")
        else:
            state.nights.append(night)
        _NightWork(plan, state, night, request, begun).run()
        return night


def _read_plan(request: NightlyRequest) -> NightlyPlan:
    if request.file is None:
        raise UserError("no file is named", "`opmark nightly --template > nightly.yaml` writes one to begin with")
    return read_nightly(Path(request.file), str(request.db) if request.db else None)


class PlannedRun(NamedTuple):
    job: NightlyJob
    run: NightRun
    cases: int
    """Number of cases of the part."""
    backends: list[str]
    newest: str
    """Id of the newest run of the label; empty if there is none."""


class NightPreview(NamedTuple):
    """What a start would do now: `opmark nightly FILE --dry-run`."""

    plan: NightlyPlan
    night: Night
    begun: bool
    environments: dict[str, str]
    """By name: `there`, `to be made` or `made anew`."""
    runs: list[PlannedRun]


def preview_night(request: NightlyRequest) -> NightPreview:
    """Read and check the file, and say what would be done. Nothing is written."""
    plan = _read_plan(request)
    night, begun = choose_night(plan, read_state(plan.folder), request.night, again=request.again)
    jobs = {job.name: job for job in plan.jobs}
    runs = [
        PlannedRun(
            jobs[run.job], run, len(_cases_of(jobs[run.job], run.part)),
            split_names(jobs[run.job].request.backend) or default_backends(jobs[run.job].cases),
            next(iter(_runs_of_label(plan.db, run.label)), ""),
        )
        for run in night.runs if run.job in jobs
    ]  # fmt: skip
    environments = {
        name: "made anew" if plan.file.environments[key].renew else "there" if find_environment(name) else "to be made"
        for key, name in environment_names(plan.file).items()
    }
    return NightPreview(plan, night, begun, environments, runs)


def _cases_of(job: NightlyJob, part: str) -> Sequence[object]:
    try:
        return take_part(job.cases, part) if part else job.cases
    except UserError:  # a small workload may have no case in a part
        return ()


def _runs_of_label(db: str | None, label: str) -> list[str]:
    """Return the ids of the runs with a label, newest first; none where there is no store yet."""
    try:
        with closing(open_store(db)) as store:
            return [run.id for run in store.runs() if run.label == label]
    except StoreError:
        return []


@dataclass
class _NightWork:
    plan: NightlyPlan
    state: NightlyState
    night: Night
    request: NightlyRequest
    begun: bool
    """Whether a former process has begun this night."""

    def run(self) -> None:
        self._save()
        failed = self._make_environments()
        jobs = {job.name: job for job in self.plan.jobs}
        for run in self.night.runs:
            if run.done:
                continue
            job = jobs.get(run.job)
            try:
                if job is None:
                    raise UserError(f"the file has no job `{run.job}` any more")
                self._do(job, run, failed)
                run.problem = ""
            except StoreError:
                raise
            except UserError as error:  # the other jobs are worth their measurements all the same
                run.problem = one_line(error)
                self.request.say(f"{run.label}: {run.problem}")
            run.done = True
            self._save()
        self._finish()

    def _save(self) -> None:
        write_state(self.plan.folder, self.state)

    def _make_environments(self) -> dict[str, str]:
        """Make what is missing or has to be new. Return the names of those that could not be made, with the reason."""
        failed = {}
        for key, name in environment_names(self.plan.file).items():
            wanted, there = self.plan.file.environments[key], find_environment(name)
            if there and not (wanted.renew and there.created < self.night.started[:19]):
                continue
            self.request.say(f"environment {name}: installing {', '.join(wanted.install) or key}")
            try:
                if there:
                    remove_env(name)
                constraint = self.plan.path.parent / wanted.constraint if wanted.constraint else None
                create_env(
                    key, install=wanted.install, python=wanted.python or None, constraint=constraint,
                    say=lambda line: None,
                )  # fmt: skip
            except UserError as error:
                failed[name] = one_line(error)
                problem = f"environment {name}: {failed[name]}"
                if problem not in self.night.problems:
                    self.night.problems.append(problem)
                self.request.say(problem)
        return failed

    def _do(self, job: NightlyJob, run: NightRun, failed: dict[str, str]) -> None:
        """Do the steps of one run that are left. Notes of a try that was killed are made again."""
        run.notes = []
        if run.part and not _cases_of(job, run.part):
            run.notes.append(f"no case is in part {run.part}")
            return
        for name in split_names(job.request.backend):
            base, _, python = name.partition("@")
            guest = backends()[base].guest if base in backends() else ""  # `all` takes what is there
            for lost in (python or guest, *split_names(job.request.python)):
                if lost in failed:
                    raise UserError(f"{name}: its environment could not be made: {failed[lost]}")
        if not run.run:
            self._measure(job, run)
            self._save()
        checked = self._check(job, run)
        self._save()
        self._look_back(job, run)
        if self.plan.file.report.html:
            write_report(self.plan, self.night, run, self.plan.db)
        if checked is not None:
            write_check(self.plan, self.night, run, checked)

    def _measure(self, job: NightlyJob, run: NightRun) -> None:
        request = replace(request_of(job, run.part), say=self.request.say)
        begun = time.monotonic()
        resume = self.begun and self._has_begun(request)
        measure: Callable[[RunRequest], Result] = self.request.measure or run_request
        result = measure(replace(request, resume=resume))
        run.seconds = round(time.monotonic() - begun, 1)
        run.statuses = dict(Counter(str(record.status) for record in result.records))
        if result.journals:
            raise UserError(f"the store could not be written: {result.storage}")
        if not result.stored:
            raise UserError(f"nothing was measured: {result.records[0].reason if result.records else 'no case'}")
        described = f"night of {self.night.date}" + (f", part {run.part}" if run.part else "")
        describe_run(result.run.id, described, db=self.plan.db)
        run.run = result.run.id

    def _has_begun(self, request: RunRequest) -> bool:
        """Return whether this night has a run of the request in the store already, so that it is continued."""
        shared = {name: getattr(request, name) for name in options_of(PlanRequest)}
        planned = plan_request(PlanRequest(**shared)).id
        try:
            with closing(open_store(self.plan.db)) as store:
                newest = next((r for r in store.runs() if r.plan == planned and r.label == request.label), None)
        except StoreError:  # there is none yet
            return False
        return newest is not None and newest.started >= self.night.started

    def _check(self, job: NightlyJob, run: NightRun) -> CheckResult | None:
        """Compare with the baseline, and bisect what is slower. Return None where there is nothing to compare with."""
        with ExitStack() as stack:
            finder = RunFinder(stack, self.plan.db)
            now = finder.run(run.run)
            assert now is not None
            others = [one for one in now.store.runs() if one.label == job.label and one.id != run.run]
            if not others and label_in(job.baseline or job.label) == job.label:
                run.notes.append(f"the first run with the label `{job.label}`: nothing is compared yet")
                return None
            base, notes = find_baseline(finder, job.baseline or job.label, None, now)
            if not counted_cases(base) & counted_cases(now):
                run.notes.append(f"no earlier run of `{base.name}` has these cases: nothing is compared yet")
                return None
            run.baseline = base.run.id
            changed = self._changed_version(job, base, now)
            gate = dict(self.plan.gate)
            if changed and not any(gate.get(f"against_{what}") for what in ("rev", "python", "backend")):
                gate |= self._old_release(run, changed[0])
            # Functions that the file names may be called: whoever writes it can run anything anyway.
            named = [op.partition(":")[0] for op in split_names(job.request.ops) if ":" in op]
            gate["allow"] = [*split_names(gate.get("allow", ())), *split_names(job.request.allow), *named]
            checked = check_request(
                CheckRequest(
                    baseline=base.run.id, current=run.run, db=self.plan.db, say=self.request.say,
                    on_turn=self.request.on_turn, **gate,
                )
            )  # fmt: skip
            run.verdict = "failed" if checked.exit_code else "passed"
            run.counts = {str(outcome): count for outcome, count in checked.counts().items()}
            run.news = [_case_news(one) for one in checked.findings if one.outcome in _TOLD]
            run.notes += [note for note in (*notes, *checked.notes) if note not in run.notes]
            self._save()
            if self.plan.file.bisect and not run.bisected:
                run.bisected = self._bisect(job, base, now, checked, changed)
            return checked

    def _old_release(self, run: NightRun, version: str) -> dict[str, str]:
        """Return the option of the gate that measures the baseline again in its own release, which is installed beside
        the new one: only so can a slowdown be confirmed."""
        package = str(self.plan.bisect["package"])
        try:
            return {"against_python": guest_of_version(package, version, self.request.say).name}
        except UserError as error:
            run.notes.append(f"{package} {version} could not be installed again: {one_line(error)}")
            return {}

    def _changed_version(self, job: NightlyJob, base: RunReference, now: RunReference) -> tuple[str, str] | None:
        """Return the old and the new version of the package to bisect, if it differs and all backends are of it."""
        package = self.plan.bisect.get("package")
        names = [
            name.partition("@")[0].partition("/")[0]
            for name in split_names(job.request.backend) or default_backends(job.cases)
        ]
        if not package or any(name not in backends() or backends()[name].framework != package for name in names):
            return None
        differing = compare_stored(base, now, unlike=True).differing.get(str(package))
        if not differing or None in differing:
            return None
        # A local build is `2.13.0+cpu`, and the index has `2.13.0`.
        old, new = (str(one).partition("+")[0] for one in differing)
        return (old, new) if old != new else None

    def _bisect(
        self, job: NightlyJob, base: RunReference, now: RunReference, checked: CheckResult,
        changed: tuple[str, str] | None,
    ) -> list[BisectNews]:  # fmt: skip
        slower = [one for one in checked.findings if one.outcome == "slower"]
        slower.sort(key=lambda one: _shown_pair(one).ratio or 0.0, reverse=True)
        revisions = base.run.revision, now.run.revision
        by_commit = all(revisions) and revisions[0] != revisions[1] and not any(r.endswith(CHANGED) for r in revisions)
        found = []
        for finding in slower[: self.plan.bisect_most]:
            pair = finding.pair
            package = str(self.plan.bisect["package"]) if changed else ""
            good, bad = changed or (revisions if by_commit else ("", ""))
            news = BisectNews(pair.op, pair.params, package, good, bad)
            if not good:
                why = "neither a clean commit nor the version of the package differs from the baseline"
                found.append(BisectNews(pair.op, pair.params, package, good, bad, why=why))
                continue
            self.request.say(f"bisecting {pair.op} {pair.params} from {good[:12]} to {bad[:12]}")
            try:
                found.append(self._bisect_case(job, now, finding, news))
            except StoreError:
                raise
            except UserError as error:
                found.append(BisectNews(pair.op, pair.params, package, good, bad, why=one_line(error)))
        return found

    def _bisect_case(self, job: NightlyJob, now: RunReference, finding: CheckedCase, news: BisectNews) -> BisectNews:
        pair = finding.pair
        figure = next(
            one for one in now.store.figures(runs=[now.run.id])
            if one.case == pair.case and where(one.backend, one.implementation, one.threads, one.load) == pair.where[1]
        )  # fmt: skip
        unused = ("package", "versions") if not news.package else ("repo", "make")
        options = {key: value for key, value in self.plan.bisect.items() if key not in unused}
        if news.package:
            options["package"] = news.package
        backend = figure.backend.partition("@")[0] if news.package else figure.backend
        result = bisect_cases(
            BisectRequest(
                good=news.good, bad=news.bad, backend=backend, threads=figure.threads, db=self.plan.db,
                label=f"{job.label} bisect", say=self.request.say, on_turn=self.request.on_turn, **options,
            ),
            list(now.store.cases([pair.case]).values()),
        )  # fmt: skip
        first = [f"{one.commit[:12]} {one.subject}".strip() if not news.package else one.commit for one in result.first]
        why = "" if first else "measured in turns, the two ends do not differ beyond doubt"
        return BisectNews(news.op, news.params, news.package, news.good, news.bad, first, why)

    def _look_back(self, job: NightlyJob, run: NightRun) -> None:
        """Tell changes of level that the history shows for the first time."""
        found, _ = history_request(HistoryRequest(label=job.label, db=self.plan.db, **self.plan.history))
        known = set(self.state.known_changes)
        for series in found.series:
            change, key = series.newest_change, _change_key(series)
            if change is None or not change.sure or key in known or series.points[-1].run.id != run.run:
                continue
            self.state.known_changes.append(key)
            run.history.append(
                LevelNews(
                    series.op, series.params, f"{series.backend} {series.where}", series.quantity, change.ratio,
                    change.after.id, dict(change.differing),
                )
            )  # fmt: skip

    def _finish(self) -> None:
        self.night.finished = utc_now()
        write_night(self.plan, self.night)
        tell_hooks(self.plan, self.night, self.request.say)
        self._save()
        measured = [run for run in self.night.runs if run.run]
        self.request.say(f"the night of {self.night.date} is done: {count_noun(len(measured), 'run')}")


def _shown_pair(finding: CheckedCase) -> Pairing:
    """Return the comparison that decides: the second one, in turns, where it has a ratio."""
    return finding.again if finding.again is not None and finding.again.ratio is not None else finding.pair


def _case_news(finding: CheckedCase) -> CaseNews:
    pair = _shown_pair(finding)
    return CaseNews(
        pair.op, finding.pair.params, finding.pair.phase, finding.pair.where[1], finding.pair.quantity,
        finding.outcome, pair.ratio, pair.low, pair.high, finding.why or pair.note,
    )  # fmt: skip


def _change_key(series: History) -> str:
    change = series.newest_change
    since = change.after.id if change else ""
    return " ".join(
        (series.case, series.backend, series.implementation, series.where, series.quantity, str(series.cache), since)
    )
