"""Tracks a test run through the event stream of Swift Testing."""
import collections
import json
import re
import sys
import time

from progress import relative


class Failure:
    """The issues of a test, in the order in which they were recorded."""

    def __init__(self, test):
        self.test, self.issues = test, []

    def lines(self, limit=10):
        yield f"✘ {name(self.test) if self.test else 'an issue outside of tests, for example in a detached task'}"
        for issue in self.issues[:limit]:
            yield from issue
        if len(self.issues) > limit:
            yield f"    … and {len(self.issues) - limit} more issues in the log"


class Events:
    """Tracks which tests are running, have ended and have failed.

    The console output does not show which tests are running: it reports a test as started while the test is still
    waiting for a parallel slot. So does the event stream, but it also has an event for each case of a test with
    arguments. A hanging test without arguments is detected when all other tests have ended and no more events arrive.

    Slots are granted in the order in which tests request them. Therefore, a test without arguments is running as soon
    as a test that was reported as started later makes progress, or if the number of tests does not exceed the number
    of slots.
    """

    def __init__(self, path, width):
        self.path, self.width, self.offset, self.rest = path, width, 0, b""
        self.functions, self.parameterized = set(), set()
        self.cases = collections.defaultdict(dict)  # the start times of the running cases of each test
        self.open = {}  # the unfinished tests, each with its position in the order of starts
        self.waiting = {}  # unfinished tests without arguments that may be waiting for a slot
        self.begun = {}  # the start times of the other unfinished tests without arguments
        self.finished = set()
        self.failures = {}
        self.skipped = collections.Counter()  # the number of skipped tests for each reason
        self.ended = self.started = 0
        self.has_begun = self.is_over = False
        self.latest = None

    def read(self):
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read()
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            try:
                record = json.loads(line)
                if record["kind"] == "event":
                    self.note(record["payload"])
                elif record["kind"] == "test":
                    self.declare(record["payload"])
            except (ValueError, KeyError, TypeError):
                print(f"watch-tests: cannot read the event {line[:200]!r}", file=sys.stderr)

    def declare(self, test):
        if test["kind"] == "function":
            self.functions.add(test["id"])
        if test.get("isParameterized"):
            self.parameterized.add(test["id"])

    def note(self, event):
        self.latest = time.monotonic()
        kind, test = event["kind"], event.get("testID")
        case = event.get("_testCase", {}).get("id")
        if kind == "runStarted":
            self.has_begun = True
        elif kind == "testStarted":
            self.started += 1
            self.open[test] = self.started
            if "/" in test and test not in self.parameterized:
                self.waiting[test] = self.started
            self.advance(0)
        elif kind == "testEnded":
            self.advance(self.open.pop(test, 0))
            self.begun.pop(test, None)
            self.waiting.pop(test, None)
            self.cases.pop(test, None)
            self.finished.add(test)
            self.ended += "/" in test
        elif kind == "testCaseStarted":
            self.cases[test][case] = self.latest
            self.advance(self.open.get(test, 0))
        elif kind == "testCaseEnded":
            self.cases[test].pop(case, None)
        elif kind == "testSkipped":
            self.finished.add(test)
            reason = re.search(r'skipped: "(.*)"$', event["messages"][0]["text"], re.DOTALL)
            self.skipped[reason.group(1) if reason else "no reason"] += 1
        elif kind == "issueRecorded":
            self.record(test, event)
        elif kind == "runEnded":
            self.is_over, self.latest = True, None

    def advance(self, position):
        """Marks the tests before this position as running."""
        has_free_slots = sum(test in self.functions for test in self.open) <= self.width if self.waiting else False
        while self.waiting:
            test, own = next(iter(self.waiting.items()))
            if own >= position and not has_free_slots:
                break
            del self.waiting[test]
            self.begun[test] = self.latest

    def record(self, test, event):
        """Stores an issue that makes its test fail."""
        first, *details = event["messages"]
        if event["issue"].get("isKnown") or first["symbol"] != "fail":
            return
        location = event["issue"].get("sourceLocation") or {}
        path = location.get("_filePath") or location.get("fileID")
        place = f"{relative(path)}:{location['line']}: " if path else ""
        arguments = event.get("_testCase", {}).get("displayName")
        text = f"{place}{first['text']}" + (f"  (with {arguments})" if arguments else "")
        issue = ["    " + text.replace("\n", "\n    ")]
        issue += ["      ↳ " + detail["text"].replace("\n", "\n        ") for detail in details]
        self.failures.setdefault(test, Failure(test)).issues.append(issue)

    def hanging(self, seconds):
        """Returns tests with a case that has run for longer, or all unfinished tests if no event arrived."""
        limit = time.monotonic() - seconds
        if self.latest is not None and self.latest < limit:
            return self.names()
        return [name(test) for test, cases in self.cases.items() if any(begun < limit for begun in cases.values())]

    def names(self):
        """Returns the names of the unfinished tests. Suites are left out."""
        if not self.has_begun:
            return ["none, because the tests have not begun"]
        return [name(test) for test in self.remaining()] or ["none"]

    def remaining(self):
        return [test for test in self.open if "/" in test]

    def running(self):
        """Returns the running tests with their start times, starting with the test that has been running longest."""
        running = self.begun | {test: min(cases.values()) for test, cases in self.cases.items() if cases}
        return dict(sorted(running.items(), key=lambda item: item[1]))

    def interrupted(self):
        """Returns the tests that were running when the run ended early, and tests that may have been running."""
        running = list(self.running())
        return running + list(self.waiting)[:max(0, self.width - len(running))]

    def state(self):
        """Returns the number of finished tests, and the test that has been running longest."""
        text = f"{len(self.finished & self.functions)} of {len(self.functions)} tests"
        if self.failures:
            text += f", {len(self.failures)} failed"
        for test, begun in self.running().items():
            return f"{text}, longest: {int(time.monotonic() - begun)} s {name(test).partition('.')[2]}"
        return text

    def skips(self):
        """Returns a line about skipped tests, or None."""
        if not self.skipped:
            return None
        return "skipped: " + ", ".join(f"{count} × {reason}" for reason, count in self.skipped.most_common(8))


def name(test):
    """Returns Suite/function(labels:) from Suite/function(labels:)/file:line:column. A suite has no location."""
    return re.sub(r"/[^/]*:\d+:\d+$", "", test)
