"""Stores the result of each mutant, selects the mutants that are due, and computes the score of each area."""
import collections
import math
import os
import subprocess

RECORD = "Scripts/records/mutants"
HEAD = "# Written by Scripts/mutants: library and mutant, test that caught it, last commit of Sources, checksum.\n"
SCORES = "Scripts/records/mutant-scores"
SCORES_HEAD = """# Written by Scripts/mutants: how many of the mutants in each area that have run were caught by the tests. If more mutants
# are missed and the share of an area falls, the run fails. If that is intended, change the line and explain why in the
# commit message. Mutants that have not run are due first in the next run.
"""
MISSED = "(missed)"
# Verdicts that name no test.
UNNAMED = ("crash", "hang")
GOAL = 0.90
# A folder with fewer entries belongs to the area of its parent folder.
SMALLEST_AREA = 10

Result = collections.namedtuple("Result", "test commit digest")


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)


def key_of(entry):
    return f"{entry.library}: {entry.name}"


class Record:
    def __init__(self, entries):
        self.entries, self.results = entries, {}
        self.commit = git("log", "-1", "--format=%h", "--abbrev=10", "--", "Sources").stdout.strip()
        if os.path.exists(RECORD):
            with open(RECORD, encoding="utf-8") as file:
                lines = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
            self.results = {key: Result(*rest) for key, *rest in lines}

    def result(self, entry):
        return self.results.get(key_of(entry))

    def catching_test(self, entry):
        """Returns the test that caught the mutant in its last run, or None."""
        result = self.result(entry)
        return None if result is None or result.test in (MISSED, *UNNAMED) else result.test

    def was_missed(self, entry):
        """Returns whether all tests missed the mutant in its last run, and it has not changed since."""
        result = self.result(entry)
        return result is not None and result.test == MISSED and result.digest == entry.digest

    def due(self, entries, share):
        """Returns the entries that changed, or whose file changed, since their last run, and a share of the others.

        Entries that have never run come first, then those with the oldest results.
        """
        changes = {}
        for commit in {result.commit for result in self.results.values()}:
            difference = git("diff", "--name-only", commit, "--", "Sources")
            changes[commit] = set(difference.stdout.split("\n")) if difference.returncode == 0 else None
        due, rest = [], []
        for entry in entries:
            result = self.result(entry)
            paths = result and changes[result.commit]
            is_due = paths is None or entry.file in paths or entry.digest != result.digest
            (due if is_due else rest).append(entry)
        times = {commit: int(git("show", "-s", "--format=%ct", commit).stdout or 0) for commit in changes}
        for part in (due, rest):
            part.sort(key=lambda entry: (times[result.commit] if (result := self.result(entry)) else 0, entry.number))
        return due + rest[:math.ceil(len(rest) * share / 100)]

    def update(self, verdicts):
        """Stores new verdicts. Returns the mutants that are no longer caught, whose verdicts are not stored.

        An entry whose text has changed is treated as a new entry.
        """
        lost = []
        for entry, test in verdicts.items():
            old = self.result(entry)
            if test is None and old and old.test != MISSED and old.digest == entry.digest:
                lost.append(entry)
            else:
                self.results[key_of(entry)] = Result(test or MISSED, self.commit, entry.digest)
        return lost

    def save(self):
        known = {key_of(entry) for entry in self.entries}
        lines = ["\t".join([key, *result]) + "\n" for key, result in sorted(self.results.items()) if key in known]
        with open(RECORD, "w", encoding="utf-8") as file:
            file.writelines([HEAD, *lines])

    def areas(self):
        """Returns the entries of each area. An area is a folder in Sources."""
        areas = collections.defaultdict(list)
        for entry in self.entries:
            areas[os.path.dirname(entry.file).removeprefix("Sources/")].append(entry)
        for depth in (3, 2, 1):
            for folder in [folder for folder in areas if folder.count("/") == depth]:
                if len(areas[folder]) < SMALLEST_AREA:
                    areas[os.path.dirname(folder)] += areas.pop(folder)
        return areas

    def counts(self):
        """Returns the numbers of entries, of mutants that have run, and of missed mutants for each area."""
        counts = {}
        for area, entries in sorted(self.areas().items()):
            tests = [result.test for result in map(self.result, entries) if result]
            counts[area] = len(entries), len(tests), tests.count(MISSED)
        return counts

    def table(self):
        """Yields the lines of a table with one row for each area."""
        yield f"{'area':42} entries  run  caught missed  share"
        counts = self.counts()
        for area, numbers in counts.items():
            yield row(area, *numbers)
        yield row("all", *map(sum, zip(*counts.values())))

    def update_scores(self):
        """Compares each area with its record. Returns the areas that miss a larger number and a larger share.

        If only the share falls, mutants that the tests caught were removed together with their code.
        """
        before, worse = read_scores(), []
        with open(SCORES, "w", encoding="utf-8") as file:
            file.write(SCORES_HEAD)
            for area, (_, run, missed) in self.counts().items():
                score, earlier = (run - missed, run), before.get(area)
                is_worse = earlier and score[0] * earlier[1] < earlier[0] * score[1]
                if is_worse and score[1] - score[0] > earlier[1] - earlier[0]:
                    worse.append(f"{area}: {score[0]} of {score[1]} instead of {earlier[0]} of {earlier[1]}")
                    score = earlier
                file.write(f"{area} = {score[0]}/{score[1]}\n")
        return worse


def read_scores():
    if not os.path.exists(SCORES):
        return {}
    with open(SCORES, encoding="utf-8") as file:
        lines = [line.split(" = ") for line in file if not line.startswith("#")]
    return {area: tuple(map(int, score.split("/"))) for area, score in lines}


def row(area, entries, run, missed):
    share = (run - missed) / run if run else 0
    low = f"  below {GOAL:.0%}" if run and share < GOAL else ""
    return f"{area:42} {entries:7} {run:4} {run - missed:7} {missed:6} {share:6.0%}{low}"
