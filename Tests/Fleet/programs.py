"""Starts the programs of Scripts/test-fleet: servers, load balancers, and the load."""
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time


def wait_until(condition, what, seconds=60):
    """Returns the first true result of the condition. Raises an error after the time limit."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


def free_port():
    """Returns an unused port below the range that the kernel assigns to clients."""
    for _ in range(100):
        port = random.randrange(20_000, 30_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise OSError("no port is free")


class Program:
    """A process that writes its output to a log."""

    def __init__(self, name, command, folder, **options):
        self.name, self.log = name, f"{folder}/{name}.log"
        with open(self.log, "ab") as log:
            self.start = log.tell()
            self.process = subprocess.Popen(command, **{"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **options})

    def printed(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            file.seek(self.start)
            return file.read()

    def expect(self, pattern, seconds=60):
        """Waits until the program has printed a match."""
        def find():
            if self.process.poll() not in (None, 0):
                raise ChildProcessError(f"{self.name} exited with status {self.process.returncode}: {self.printed()[-2000:]}")
            return re.search(pattern, self.printed())
        return wait_until(find, f"{self.name} prints {pattern!r}", seconds)

    def expect_exit(self, pattern, seconds=120):
        """Waits until the program has exited with status 0 and printed a match."""
        try:
            status = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"not within {seconds} s: {self.name} exits") from None
        if status != 0 or not re.search(pattern, self.printed()):
            raise ChildProcessError(f"{self.name} exited with status {status}: {self.printed()[-2000:]}")


class Server:
    """A server process, and the processes that replace it."""

    def __init__(self, name, program, folder):
        self.name, self.folder = name, folder
        self.own = f"{folder}/{name}"
        os.mkdir(self.own, 0o700)
        self.port, self.starttls_port = free_port(), free_port()
        self.programs = []
        self.begin(program)

    @property
    def current(self):
        return self.programs[-1]

    def begin(self, program):
        """Starts a process, which takes over from a running process."""
        ports = [str(self.port), str(self.starttls_port)]
        name = f"server-{self.name}-{len(self.programs) + 1}"
        self.programs.append(Program(name, [program, f"{self.folder}/shared", self.own, *ports], self.folder))
        self.current.expect(r"process \d+ serves")

    def kill(self):
        self.current.process.kill()
        self.current.process.wait(timeout=30)

    def status(self):
        """Returns the state that the server reports, or None if it does not respond."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(10)
                connection.connect(f"{self.own}/status")
                return json.loads(b"".join(iter(lambda: connection.recv(65536), b"")))
        except (OSError, ValueError):
            return None


class Load:
    """The clients (load.go), which report their progress and failures."""

    def __init__(self, command, folder):
        self.failures, self.progress, self.report = [], None, None
        self.program = Program("load", command, folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.program.process.stdout:
            message = json.loads(line)
            if "failure" in message:
                self.failures.append(message["failure"])
            self.progress = message.get("progress", self.progress)
            self.report = message.get("report", self.report)

    def command(self, *words):
        self.program.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.program.process.stdin.flush()

    def until_made(self, count, seconds=900):
        """Waits until the current scenario has made this number of connections."""
        self.wait(lambda: self.progress["made"] >= count, f"{count} connections are made", seconds)

    def until_renewed(self):
        """Waits until each client that resumes sessions has connected on each of its routes."""
        # The first round may have begun before this call.
        rounds = self.progress["rounds"] + 2
        self.wait(lambda: self.progress["rounds"] >= rounds, "each client connects on each route")

    def wait(self, condition, what, seconds=300):
        def is_true():
            if self.program.process.poll() is not None:
                raise ChildProcessError(f"the load exited: {self.program.printed()[-2000:]}")
            return condition()
        wait_until(is_true, what, seconds)

    def begin(self, scenario):
        self.command("scenario", scenario)
        wait_until(lambda: self.progress and self.progress["scenario"] == scenario, "the scenario begins")

    def finish(self):
        """Waits for the report."""
        self.program.expect_exit("")
        self.reader.join(timeout=60)


def stop(program, number=signal.SIGTERM):
    program.process.send_signal(number)
