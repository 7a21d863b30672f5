"""Reads and writes Scripts/records/passes, which contains the last pass of each step of Scripts/check."""
import dataclasses
import datetime
import fcntl
import os
import re
import subprocess
import sys

PATH = "Scripts/records/passes"
# Files that a run may write. Results do not affect later steps, but limits do: they must be committed before a run.
RESULTS = ["Scripts/records/passes", "Scripts/records/mutants", "Scripts/records/mutant-scores"]
LIMITS = ["Scripts/records/consumer-limits", "Scripts/records/structure-limits"]
LINE = re.compile(r"([\w-]+) (\d+|-) ([0-9a-f]{12}) (\d{4}-\d\d-\d\d)")


def git(*arguments):
    """Returns the output of git. Exits if git fails."""
    run = subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit(f"git {' '.join(arguments)}: {run.stderr.strip()}")
    return run.stdout.strip()


def steps(kind):
    return subprocess.run(["Scripts/checks/run-step", "--list", kind], capture_output=True, text=True, check=True).stdout.split()


def head():
    return git("rev-parse", "--short=12", "HEAD")


def is_clean(written):
    """Returns whether the work tree matches the commit, apart from the given files."""
    return not git("status", "--porcelain", "--", ".", *[f":!{path}" for path in written])


@dataclasses.dataclass
class Pass:
    """The last pass of a step.

    If the step has never passed, `seconds` is None and `commit` is the commit that added it.
    """
    step: str
    seconds: int | None
    commit: str
    date: str

    def line(self):
        return f"{self.step} {'-' if self.seconds is None else self.seconds} {self.commit} {self.date}"

    def commits_since(self):
        """Returns the number of commits since the pass.

        If the commit was rebased or squashed, it is not in the history. Then the commit that added the line is used.
        """
        commit = self.commit
        if subprocess.run(["git", "merge-base", "--is-ancestor", commit, "HEAD"], capture_output=True, check=False).returncode:
            commit = git("log", "-1", "--format=%H", f"-S{self.line()}", "--", PATH)
        return int(git("rev-list", "--count", f"{commit}..HEAD")) if commit else 0


def read():
    """Returns the comment at the head of the file, and the passes by step."""
    with open(PATH, encoding="utf-8") as file:
        lines = file.read().splitlines()
    heading, passes = [line for line in lines if line.startswith("#")], {}
    for line in lines[len(heading):]:
        match = LINE.fullmatch(line)
        if not match:
            sys.exit(f"{PATH} has a malformed line: {line!r}")
        step, seconds, commit, date = match.groups()
        passes[step] = Pass(step, None if seconds == "-" else int(seconds), commit, date)
    return heading, passes


def add(step, seconds):
    """Records that the step has passed at the current commit. Several runs may record passes at the same time."""
    with open(f"{PATH}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        heading, passes = read()
        passes[step] = Pass(step, round(seconds), head(), datetime.date.today().isoformat())
        with open(f"{PATH}.new", "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in heading + [it.line() for it in passes.values()])
        os.replace(f"{PATH}.new", PATH)
        os.remove(f"{PATH}.lock")
