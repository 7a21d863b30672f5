"""Runs tests with mutants, and determines which mutants the tests catch.

First runs each mutant with the test that caught it last time. If there is no such test, or it does not fail, runs the
nearest suites. Several mutants run at a time, each in its own process. Then runs the mutants that the nearest suites
missed in groups, each group in one process, with all tests of their library.

If a test fails because an event did not arrive in time, the cause may be a busy machine, so the test is repeated
alone. A failure counts only if the same test passes without a mutant.
"""
import collections
import concurrent.futures
import os
import re
import resource
import signal
import subprocess
import threading
import time

from processes import adopt_orphans, kill_descendants
from program import LOG, PROGRAM
from progress import Display
from record import UNNAMED

# Most of these wait for an event that does not come, and use no processor time.
AT_A_TIME = 6
# The timeout for each event in a test, and the time limits for the test that caught a mutant last time, for the nearest
# suites, and for all tests of a library.
PATIENCE = 15
KNOWN_LIMIT = 45
NEAREST_LIMIT = 90
WHOLE_LIMIT = 900
# The number of mutants in one process, and how many of the failed tests are repeated with each of these mutants. With
# more mutants, many tests wait in vain, and a run takes a quarter of an hour instead of a few minutes.
GROUP = 4
CULPRITS = 20
TIMED_OUT = re.compile(r"in vain|timed out|time limit|timeout|no event occurred", re.I)

# `failed` contains the names of the failed tests. `detail` describes other failures, such as a crash.
Outcome = collections.namedtuple("Outcome", "failed detail is_late ran")
log_lock = threading.Lock()


def stop_all(*_):
    kill_descendants()
    os._exit(1)


def prepare():
    """Raises the limit on open files. Installs signal handlers that kill the tests when this script is interrupted."""
    adopt_orphans()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_all)


def stop(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def start(entries, pattern):
    environment = dict(
        os.environ, MUTANT=",".join(str(entry.number) for entry in entries), TEST_PATIENCE=str(PATIENCE), NO_COLOR="1")
    return subprocess.Popen(
        [os.path.abspath(PROGRAM), "--testing-library", "swift-testing", "--filter", pattern,
         "--experimental-maximum-parallelization-width", "8"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
        start_new_session=True)


def run_tests(entries, pattern, limit=NEAREST_LIMIT, to_end=False):
    """Runs the tests that match the pattern with these mutants. Stops at the first failure unless `to_end` is set."""
    process, begun = start(entries, pattern), time.monotonic()
    timer = threading.Timer(limit, stop, [process])
    timer.start()
    failed, detail, is_late, ran, lines = {}, "", False, 0, []
    for line in process.stdout:
        lines.append(line)
        ran += bool(re.match(r"\W+ Test (?!run|case)\w+\(.*\) started", line))
        found = re.search(r"✘ Test (\w+)\(", line)
        if found and found[1] not in failed:
            failed[found[1]] = True
            is_late = is_late or bool(TIMED_OUT.search(line))
            if not to_end:
                break
        if "Fatal error" in line or "Program crashed" in line:
            detail = detail or f"crash: {line.strip()[:90]}"
    timer.cancel()
    stop(process)
    status = process.wait()
    if time.monotonic() - begun >= limit:
        detail, is_late = f"hang: over {limit} s", True
    elif not failed and status != 0:
        detail = detail or f"crash: status {status}"
        is_late = is_late or status == -signal.SIGKILL  # possibly out of memory
    outcome = Outcome(list(failed), detail, is_late, ran)
    with log_lock, open(LOG, "a", encoding="utf-8") as log:
        names = "; ".join(entry.name for entry in entries) or "no mutant"
        log.write(f"\n[{time.monotonic() - begun:.1f} s] {names} | {pattern} | {outcome}\n")
        log.writelines(lines[-12:] if failed or detail else [])
    return outcome


def alone(names):
    """Returns a pattern for tests with these names."""
    return "/(" + "|".join(sorted(set(names))) + r")\("


class Trials:
    """The verdicts on mutants: the name of the test that caught the mutant, `crash`, `hang`, or None if missed."""

    def __init__(self):
        self.display = Display()
        # The time after which no further mutant or group is started.
        self.end = float("inf")
        self.verdicts, self.faults = {}, []

    def is_late(self):
        return time.monotonic() > self.end

    def show(self, what, done, total):
        self.display.show(f"mutants: {what}: {done} of {total}")

    def run_nearest(self, entries, known, before, total):
        """Runs each mutant with the test in `known`, then with its nearest suites. Returns the mutants that these missed."""
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            waiting = {pool.submit(self.judge_known, entry, known.get(entry)): entry for entry in entries}
            for done, future in enumerate(concurrent.futures.as_completed(waiting), 1):
                entry, verdict = waiting[future], future.result()
                if verdict != "":
                    self.verdicts[entry] = verdict
                self.show("nearest suites", before + done, total)
        return [entry for entry in entries if entry in self.verdicts and self.verdicts[entry] is None]

    def judge_known(self, entry, test):
        """Returns the verdict of the test alone or, if the test does not fail, that of the nearest suites.

        A crash and a hang count only with the nearest suites, because `confirm` repeats those without the mutant.
        """
        if self.is_late():
            return ""
        if test:
            outcome = run_tests([entry], alone([test]), KNOWN_LIMIT)
            if outcome.failed and outcome.is_late:
                outcome = run_tests([entry], alone([test]), KNOWN_LIMIT)
            if outcome.failed:
                return verdict_of(outcome)
        return self.judge(entry, entry.tests)

    def judge(self, entry, pattern):
        """Returns the verdict on the mutant, or an empty string if no test ran."""
        outcome = run_tests([entry], pattern)
        if outcome.is_late:
            again = alone(outcome.failed) if outcome.failed else pattern
            outcome = run_tests([entry], again)
            if not outcome.failed and not outcome.detail and again != pattern:
                outcome = run_tests([entry], pattern)
        if not outcome.ran:
            self.faults.append(f"{entry.name}: no test ran for {pattern}")
            return ""
        return verdict_of(outcome)

    def run_groups(self, survivors):
        """Runs groups of mutants with all tests of their library, and yields each group afterwards.

        The survivors that come first run first, whatever their library. Mutants for which the time is too short have
        no verdict.
        """
        groups = []
        for library in dict.fromkeys(entry.library for entry in survivors):
            members = [entry for entry in survivors if entry.library == library]
            groups += [members[begin:begin + GROUP] for begin in range(0, len(members), GROUP)]
        for done, group in enumerate(groups, 1):
            if not self.split(group):
                for entry in group:
                    if self.verdicts[entry] is None:
                        del self.verdicts[entry]
            kill_descendants()
            self.confirm(group)
            self.show("groups of survivors", done, len(groups))
            yield group

    def split(self, group):
        """Removes mutants that are caught from the group until all tests pass with the remaining mutants.

        Returns False if there was not enough time.

        A failed test that passes when it is repeated alone does not count, because it only timed out. If a failure
        requires several mutants or is not a failed test, such as a crash, each half of the group runs separately.
        """
        pattern = rf"^{group[0].library}Tests\."
        while group:
            if self.is_late():
                return False
            outcome = run_tests(group, pattern, min(WHOLE_LIMIT, self.end - time.monotonic()), to_end=True)
            if not outcome.failed and not outcome.detail:
                return True
            if outcome.detail and self.is_late():
                return False
            caught = self.find_caught(group, outcome.failed[:CULPRITS])
            if caught:
                group = [entry for entry in group if entry not in caught]
            elif not outcome.detail and not run_tests(group, alone(outcome.failed)).failed:
                return True
            elif len(group) > 1:
                if not self.split(group[:len(group) // 2]):
                    return False
                group = group[len(group) // 2:]
            else:
                if outcome.detail and not outcome.is_late:
                    self.verdicts[group[0]] = verdict_of(outcome)
                return True
        return True

    def find_caught(self, group, tests):
        """Returns the members of the group that one of the tests catches when no other mutant is active."""
        if not tests:
            return []
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            verdicts = dict(zip(group, pool.map(lambda entry: self.judge(entry, alone(tests)), group)))
        caught = [entry for entry in group if verdicts[entry]]
        self.verdicts.update({entry: verdicts[entry] for entry in caught})
        return caught

    def confirm(self, entries):
        """Removes the verdicts of tests that also fail without a mutant, and reports these tests."""
        for entry in entries:
            # The verdicts `crash` and `hang` do not name a test, so all tests of the mutant are repeated without it.
            if self.verdicts.get(entry) in UNNAMED:
                outcome = run_tests([], entry.tests)
                if outcome.failed or outcome.detail:
                    self.faults.append(f"{entry.name}: its nearest suites fail without a mutant: {outcome.detail or outcome.failed[0]}")
                    del self.verdicts[entry]
        tests = {self.verdicts.get(entry) for entry in entries} - {None, *UNNAMED}
        if not tests:
            return
        self.display.show("mutants: the same tests without a mutant")
        failed = run_tests([], alone(tests), WHOLE_LIMIT, to_end=True).failed
        if failed:
            failed = run_tests([], alone(failed), WHOLE_LIMIT, to_end=True).failed
        for test in failed:
            self.faults.append(f"{test} fails without a mutant")
        self.verdicts = {entry: verdict for entry, verdict in self.verdicts.items() if verdict not in failed}


def verdict_of(outcome):
    if outcome.failed:
        return outcome.failed[0]
    return outcome.detail.split(":")[0] or None
