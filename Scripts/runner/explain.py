"""Finds the lines in the output of a build or test run that explain why it failed."""
import collections
import re

LAST = 40
LONGEST = 100_000  # lines of a report. A backtrace shows every thread, and a stack that overflowed is deep.
ERROR = re.compile(r"(^|[\s:])(fatal )?error: ")
SNIPPET = re.compile(r"^\s|^\d+ \||^\||: note: ")
SANITIZER = re.compile(r"(WARNING|ERROR): \w+Sanitizer\b|Sanitizer:DEADLYSIGNAL")
# Messages of Swift's runtime, the C library and sanitizers before a process aborts.
ABORT = re.compile(r"Fatal error\b|: runtime error: |: Assertion .* failed|^\*\*\* stack smashing|^(malloc|free|corrupted)\b.*: ")
CRASH = re.compile(r"^(\*\*\*|💣) (Signal \d+|Program crashed)")
CLOSING = re.compile(r"^[✔✘] Test run with \d+ tests? .*(passed|failed) after ")
RUNNER = ("✘", "↳", "━")  # prefixes of the lines that the test runner prints about issues
LIBRARY = re.compile(r"^\S+ (warning|error|critical) AsyncSockets\b")
EXPLAINS = re.compile(r"error:|\bfailed\b|✘|↳|Fatal error|Sanitizer:")


class Output:
    """Reads the output of a run line by line, and stores the lines that explain a failure."""

    def __init__(self):
        self.last = collections.deque(maxlen=LAST)
        self.closing = None  # the closing line of the test runner
        self.warnings = 0  # the number of log lines of the library that were not captured
        self.reports = []  # build errors, sanitizer reports and backtraces, each a list of lines
        self.end = None  # a function that returns whether a line ends the current report

    def read(self, line, has_begun):
        self.last.append(line)
        if CLOSING.match(line):
            self.closing = line
        self.warnings += bool(LIBRARY.match(line))
        if self.end is not None and self.extend(line):
            return
        if SANITIZER.search(line):
            self.begin(line, lambda line: "SUMMARY: " in line)
        elif CRASH.match(line):
            self.begin(line, lambda line: line.startswith("Backtrace took"))
        elif ABORT.search(line):
            self.begin(line, None)
        elif line.startswith("error: ") or not has_begun and ERROR.search(line) and not line.startswith(RUNNER):
            if not any(report[0] == line for report in self.reports):  # The compiler repeats errors.
                self.begin(line, lambda line: not SNIPPET.search(line))

    def begin(self, line, end):
        self.reports.append([line])
        self.end = end

    def extend(self, line):
        """Adds a line to the current report. Returns False if the line does not belong to the report."""
        report, is_end = self.reports[-1], self.end(line)
        if is_end or len(report) > LONGEST:
            self.end = None
        if is_end and ERROR.search(report[0]) and not SANITIZER.search(report[0]):
            return False
        report.append(line)
        return True

    def explanations(self):
        """Yields the lines of the reports. Backtraces are reduced to the threads that crashed."""
        for report in self.reports[:10]:
            yield from crashed(report) if CRASH.match(report[0]) else shortened(report)
            yield ""
        if len(self.reports) > 10:
            yield f"… and {len(self.reports) - 10} more reports in the log"


def shortened(lines, limit=150):
    return lines if len(lines) <= limit else lines[:limit] + [f"… {len(lines) - limit} more lines in the log"]


def crashed(report):
    """Returns the first lines of a backtrace and the frames of crashed threads, except frames of the test runner."""
    kept, result = True, []
    if not any(re.match(r"Thread \d+\b.*crashed", line) for line in report):
        return shortened(report[:-LAST], 5) + report[-LAST:]
    for line in report:
        if re.match(r"Thread \d+\b", line):
            kept = "crashed" in line
        elif line.startswith(("Registers:", "Images ", "Backtrace took")):
            kept = False
        if line.endswith(" in libTesting.so"):
            continue
        if kept and (line or result and result[-1]):
            result.append(line)
    return shortened(result)


def of_log(path):
    """Returns the lines of a log that explain a failure, followed by the last lines."""
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    reasons = list(dict.fromkeys(line for line in lines[:-LAST] if EXPLAINS.search(line)))
    if len(reasons) > 60:
        reasons = reasons[:60] + [f"… {len(reasons) - 60} more such lines in the log"]
    return reasons + (["…"] if reasons else []) + lines[-LAST:]
