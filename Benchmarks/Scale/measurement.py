"""Measures a server with many connections: see Scripts/scale."""
import json
import os
import resource
import signal
import subprocess

# The servers: a program, its arguments, and whether it sends to all of its connections after SIGUSR1.
SERVERS = {
    "ours-inline": ("server-ours", ["--broadcasts"], True),
    "ours-async": ("server-ours-async", ["--broadcasts"], True),
    "nio": ("server-nio", [], False),
    "go": ("server-go", [], False),
    "tokio": ("server-tokio", [], False),
    "c": ("server-c", [], False),
}
# Descriptors of a process that are not connections.
SPARE = 500


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def kernel_memory():
    """Returns the bytes of the kernel's objects, most of which are sockets and their files while a test runs."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Slab:"))


class Pair:
    """A server process and its client."""

    def __init__(self, programs, name, secure, count):
        program, arguments, _ = SERVERS[name]
        tls = ["--tls", *programs["certificate"]] if secure else []
        self.count = count
        self.server = subprocess.Popen(["taskset", "-c", "0", programs[program], "--mode", "echo", *arguments, *tls],
                                       stdout=subprocess.PIPE, text=True)
        port = self.server.stdout.readline().strip()
        if not port:
            raise ChildProcessError(f"{program} exited with status {self.server.wait()}")
        self.memory = resident(self.server.pid)
        self.command = ["taskset", "-c", str(os.cpu_count() - 1), programs["load"], "--mode", "scale", "--spin", "--connections", str(count),
                        "--port", port, "--server-pid", str(self.server.pid), *(["--tls"] if secure else [])]
        self.client = None

    def accept(self):
        self.client = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self.result()

    def begin(self, step):
        self.client.stdin.write(f"{step}\n")
        self.client.stdin.flush()

    def result(self):
        line = self.client.stdout.readline()
        if not line:
            raise ChildProcessError(f"the client exited with status {self.client.wait()}")
        return json.loads(line)

    def broadcast(self):
        """Starts to send to all connections, once the client waits."""
        if self.client.stdout.readline() != "ready\n":
            raise ChildProcessError("the client does not wait for the broadcast")
        self.server.send_signal(signal.SIGUSR1)

    def stop(self):
        for process in (self.client, self.server):
            if process:
                process.kill()
                process.wait()


def combined(results):
    """Returns the costs of an operation over all processes."""
    count = sum(result["operations"] for result in results)
    return {"server": sum(result["serverCPU"] for result in results) / count / 1000,
            "client": sum(result["clientCPU"] for result in results) / count / 1000,
            "elapsed": sum(result["elapsed"] for result in results) / 1e9,
            "longest": max(result["elapsed"] for result in results) / 1e9,
            "p50": sorted(result["p50"] for result in results)[len(results) // 2] / 1e6,
            "p99": max(result["p99"] for result in results) / 1e6}


def measure(programs, name, secure, total):
    """Returns the costs of each step in µs of processor time per connection, the memory in bytes per connection, and times."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    processes = 1 if limit == resource.RLIM_INFINITY else -(-total // (limit - SPARE))
    shares = [total // processes + (number < total % processes) for number in range(processes)]
    pairs = []
    kernel = kernel_memory()
    try:
        for share in shares:
            pairs.append(Pair(programs, name, secure, share))
        found = {"server": name, "secure": secure, "connections": total, "processes": processes}
        found["accept"] = combined([pair.accept() for pair in pairs])
        found["kernel"] = (kernel_memory() - kernel) / total
        found["memory"] = sum(resident(pair.server.pid) - pair.memory for pair in pairs) / total
        results = []
        for pair in pairs:
            pair.begin("echo")
            results.append(pair.result())
        found["echo"] = combined(results)
        found["memory after echoes"] = sum(resident(pair.server.pid) - pair.memory for pair in pairs) / total
        for step in ("broadcast", "end"):
            if step == "broadcast" and not SERVERS[name][2]:
                continue
            for pair in pairs:
                pair.begin(step)
            for pair in pairs if step == "broadcast" else ():
                pair.broadcast()
            found[step] = combined([pair.result() for pair in pairs])
        return found
    finally:
        for pair in pairs:
            pair.stop()
