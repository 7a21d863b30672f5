"""Measures the servers while a test runs."""
import collections
import threading
import time

INTERVAL = 0.25


def resident_mebibytes(pid):
    """Returns the memory of a process, or None if it has exited."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return next((int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:")), None)
    except OSError:
        return None


class Monitor:
    """Samples the memory of each process, and the state that each server reports, four times a second."""

    def __init__(self, servers):
        self.servers, self.begun, self.marks = servers, time.monotonic(), []
        # By server: the latest state, and the sum of the largest numbers of each process.
        self.states = {}
        # By server and process: samples of (seconds, value).
        self.memory, self.latency = collections.defaultdict(list), collections.defaultdict(list)
        self.largest = collections.defaultdict(dict)
        self.is_stopped, self.end = threading.Event(), None
        self.threads = [threading.Thread(target=self.watch, args=(server,), daemon=True) for server in servers]
        for thread in self.threads:
            thread.start()

    def seconds(self):
        return time.monotonic() - self.begun

    def mark(self, name):
        self.marks.append((self.seconds(), name))

    def stop(self):
        self.end = self.seconds()
        self.is_stopped.set()
        for thread in self.threads:
            thread.join(timeout=30)

    def watch(self, server):
        while not self.is_stopped.wait(INTERVAL):
            for program in list(server.programs):
                size = resident_mebibytes(program.process.pid)
                if size:
                    self.memory[server.name, program.process.pid].append((self.seconds(), size))
            state = server.status()
            if state:
                self.states[server.name] = state
                self.latency[server.name, state["process"]].append((self.seconds(), max(state["latencies"])))
                self.largest[state["process"]] = state

    def lines(self, samples):
        """Returns the samples as lines for a chart, by server."""
        lines = collections.defaultdict(list)
        for server, process in sorted(samples):
            lines[f"server {server.upper()}"].append(samples[server, process])
        return dict(lines)

    def refused(self, reason):
        """Returns how many connections the processes have refused because of a limit."""
        return sum(state[listener]["refused"][reason] for state in list(self.largest.values())
                   for listener in ("tls", "startTLS"))
