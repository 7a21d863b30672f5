"""Samples the processes of a run each second, and judges whether anything grows."""
import collections
import statistics
import time

from parties import Relay, resources

# How many descriptors a process may have more after the run than its connections explain: those of event loops and files.
SPARE_DESCRIPTORS = 40
# The longest time that an event loop may take to start a job, in milliseconds. Other processes share the processors.
LONGEST_LATENCY = 2_000


class Samples:
    """Samples of each process, by kind, as (seconds, value)."""

    def __init__(self, topology, ramp):
        self.topology, self.ramp, self.begun = topology, ramp, time.monotonic()
        self.values = collections.defaultdict(lambda: collections.defaultdict(list))
        self.drained_at, self.end, self.marks = None, None, []

    @property
    def judged(self):
        return [party for party in self.topology.parties if party.is_judged]

    def seconds(self):
        return time.monotonic() - self.begun

    def take(self):
        now = self.seconds()
        for party in self.judged:
            memory, descriptors, threads = resources(party.process.pid)
            self.values["memory"][party.name].append((now, memory))
            self.values["threads"][party.name].append((now, threads))
            self.values["descriptors"][party.name].append((now, descriptors))
            if not isinstance(party, Relay):
                if party.counts:
                    self.values["surplus"][party.name].append((now, descriptors - party.counts["sockets"]))
                if party.allocated:
                    self.values["allocated"][party.name].append((now, party.allocated))
                if party.latencies:
                    self.values["latency"][party.name].append((now, max(party.latencies)))
        for party in self.topology.parties:
            if not isinstance(party, Relay):
                self.values["connections"][party.name].append((now, party.live()))
        self.end = now

    def begin_drain(self):
        self.drained_at = self.end
        self.marks.append((self.end, "end"))

    @property
    def warm(self):
        """The time from which nothing may grow: after the first minutes, or after a third of a short run."""
        return self.ramp + min(180, (self.drained_at - self.ramp) / 3)

    def ends_of(self, kind, name):
        """Returns the medians of the first and of the last quarter of the time in which nothing may grow."""
        values = [(time, value) for time, value in self.values[kind][name] if self.warm <= time <= self.drained_at]
        quarter = max(1, len(values) // 4)
        return [statistics.median(value for _, value in part) for part in (values[:quarter], values[-quarter:])]

    def latency(self, name):
        """Returns the median, the 99th percentile and the longest latency of a process."""
        values = sorted(value for time, value in self.values["latency"][name] if self.ramp <= time <= self.drained_at)
        return values[len(values) // 2], values[len(values) * 99 // 100], values[-1]

    # Judging

    def problems(self, is_complete):
        """Returns what is wrong. `is_complete` is whether all kinds of events must have occurred."""
        problems = self.faults()
        for party in self.judged:
            problems += self.growth(party.name)
        problems += self.remains()
        return problems + (list(self.missing()) if is_complete else [])

    def faults(self):
        """Returns what is wrong whenever it occurs."""
        problems = [f"{party.name}: {fault}" for party in self.topology.parties for fault in party.faults]
        for name, values in self.values["latency"].items():
            longest = max(value for _, value in values)
            if longest > LONGEST_LATENCY:
                problems.append(f"{name}: a latency of {longest:.0f} ms of an event loop")
        return problems

    def growth(self, name):
        first, last = self.ends_of("memory", name)
        # The resident memory of a process with many threads grows for longer, because free memory is fragmented.
        if last > (1.5 if name in self.values["allocated"] else 1.05) * first + 6:
            yield f"{name}: resident memory grew from {first:.1f} to {last:.1f} MiB"
        if name in self.values["allocated"]:
            first, last = self.ends_of("allocated", name)
            if last > 1.05 * first + 3:
                yield f"{name}: allocated memory grew from {first:.1f} to {last:.1f} MiB"
        first, last = self.ends_of("threads", name)
        if last > first + 4:
            yield f"{name}: threads grew from {first:.0f} to {last:.0f}"
        if name in self.values["surplus"]:
            first, last = self.ends_of("surplus", name)
            if last > first + SPARE_DESCRIPTORS:
                yield f"{name}: descriptors without a connection grew from {first:.0f} to {last:.0f}"

    def remains(self):
        for party in self.judged:
            descriptors = resources(party.process.pid)[1]
            if descriptors > SPARE_DESCRIPTORS:
                yield f"{party.name}: {descriptors} descriptors are open after the end of all connections"

    def missing(self):
        """Yields the kinds of events that did not occur."""
        for party in self.topology.parties:
            if isinstance(party, Relay):
                continue
            counts = party.counts
            for kind in ("made", "exchanges", "secured", "resumed"):
                if not counts[kind]:
                    yield f"{party.name}: no {kind}"
            for end in ("none", "halfClose", "reset", "cut", "close") if counts["ends"] else ():
                if not counts["ends"].get(end):
                    yield f"{party.name}: no exchange ended with {end}"
