"""The processes of Tools/soak/run: the library's server and clients, the relays, and the peers that check them."""
import json
import os
import re
import subprocess
import threading
import time


def wait_until(condition, what, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds} s: {what}")
        time.sleep(0.2)


class Party:
    """A process that reports its counts as JSON each second."""

    # Whether the process uses the library, so that its resources must stay constant.
    is_judged = False
    # Whether the process prints its messages to standard error.
    is_talkative = False

    def __init__(self, name, command, folder):
        self.name, self.log = name, f"{folder}/{name.replace(' ', '-')}.log"
        self.ports, self.counts, self.latencies, self.allocated, self.faults = None, None, [], None, []
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.STDOUT if self.is_talkative else log, text=True)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                self.faults.append(f"printed a line that is not JSON: {line!r}")
                continue
            self.ports = message.get("ports", self.ports)
            self.counts = message.get("counts", self.counts)
            self.allocated = message.get("allocated", self.allocated)
            self.latencies = message.get("latencies", self.latencies)
            if "fault" in message:
                self.faults.append(message["fault"])

    def live(self):
        return self.counts["live"] if self.counts else 0

    def check(self):
        """Raises an error if the process has exited."""
        if self.process.poll() is not None:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                raise ChildProcessError(f"{self.name} exited with status {self.process.returncode}: {file.read()[-2000:]}")

    def expect_ports(self):
        wait_until(lambda: self.check() or self.ports, f"{self.name} listens", 60)
        return self.ports

    def send_line(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def expect_idle(self, seconds=240):
        """Waits until the process reports no open connection, in a report that is newer than this call."""
        previous = self.counts
        wait_until(lambda: self.check() or self.counts is not previous, f"{self.name} reports", 30)
        wait_until(lambda: self.check() or not self.live(), f"all connections of the {self.name} end", seconds)

    def expect_exit(self):
        status = self.process.wait(timeout=60)
        if status != 0:
            raise ChildProcessError(f"{self.name} exited with status {status}")


class LibraryParty(Party):
    is_judged = True


class Relay(Party):
    """`sockcat relay`, which reports each connection that its client or target ended early."""

    is_judged, is_talkative = True, True

    def __init__(self, name, sockcat, arguments, folder):
        super().__init__(name, [sockcat, "relay", "--listen", "127.0.0.1:0", *arguments], folder)

    def read(self):
        with open(self.log, "a", encoding="utf-8", buffering=1) as log:
            for line in self.process.stdout:
                log.write(line)
                match = re.search(r"listening on 127\.0\.0\.1:(\d+)", line)
                if match:
                    self.ports = {"relay": int(match[1])}

    def expect_idle(self, seconds=240):
        pass

    def expect_exit(self):
        self.process.terminate()
        super().expect_exit()


def resources(pid):
    """Returns a process's memory in MiB and its numbers of descriptors and threads."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        values = dict(line.split(":", 1) for line in file)
    return int(values["VmRSS"].split()[0]) / 1024, len(os.listdir(f"/proc/{pid}/fd")), int(values["Threads"])


class Topology:
    """Starts the processes, with shares of the connections."""

    # Shares of the connections in percent. The library's clients have the first half.
    OWN = {"plain:tasks": 6, "plain:inline": 3, "plain:queue": 3, "tls:tasks": 8, "tls:inline": 4, "tls:queue": 4,
           "startTLS:tasks": 5, "startTLS:inline": 3, "startTLS:queue": 2, "relayed": 3, "relayed tls": 3, "dtls:tasks": 6}
    PEERS = {"plain:tasks": 6, "plain:inline": 3, "plain:queue": 3, "tls:tasks": 8, "tls:inline": 4, "tls:queue": 4,
             "startTLS:tasks": 5, "startTLS:inline": 3, "startTLS:queue": 3, "relayed": 5, "dtls:tasks": 6}

    def __init__(self, folder, programs, options, plant):
        self.folder, self.parties = folder, []
        count = options.connections
        timing = [str(options.seed), str(options.pause), str(options.ramp)]
        self.server = self.add(LibraryParty("server", [programs["soak"], "serve", folder, plant], folder))
        streams = self.add(Party("peer's server", [programs["streams"], "serve", folder, plant], folder))
        datagrams = self.add(Party("DTLS peer's server", [programs["datagrams"], "serve", folder, plant], folder))
        ports, own, peer_ports = {}, self.server.expect_ports(), streams.expect_ports()
        ports.update(peer_ports, dtls=datagrams.expect_ports()["dtls"])
        relay_tls = ["--listen-tls", "--cert", f"{folder}/server.pem", "--key", f"{folder}/server.key"]
        to = {"relay": [*self.to(peer_ports["plain"])], "relay of TLS": [*relay_tls, *self.to(peer_ports["plain"])],
              "relay to TLS": ["--to", f"localhost:{own['tls:tasks']}", "--to-tls", "--to-ca", f"{folder}/ca.pem"]}
        relays = {name: self.add(Relay(name, programs["sockcat"], words, folder))
                  for name, words in to.items()}
        relay_ports = {name: relay.expect_ports()["relay"] for name, relay in relays.items()}
        routes = []
        for name, share in self.OWN.items():
            kind, _, style = name.partition(":")
            if name == "relayed":
                kind, style, port = "plain", "tasks", relay_ports["relay"]
            elif name == "relayed tls":
                kind, style, port = "tls", "inline", relay_ports["relay of TLS"]
            else:
                port = ports[kind]
            routes.append(f"{kind}:{style}:{port}:{count * share // 100}")
        peer_routes, dtls = [], None
        for name, share in self.PEERS.items():
            amount = count * share // 100
            if name == "dtls:tasks":
                dtls = [str(own[name]), str(amount)]
            elif name == "relayed":
                peer_routes.append(f"plain:{relay_ports['relay to TLS']}:{amount}")
            else:
                peer_routes.append(f"{name.partition(':')[0]}:{own[name]}:{amount}")
        self.clients = [
            self.add(LibraryParty("clients", [programs["soak"], "connect", folder, plant, *timing, *routes], folder)),
            self.add(Party("peer's clients", [programs["streams"], "connect", folder, plant, *timing, *peer_routes], folder)),
            self.add(Party("DTLS peer's clients", [programs["datagrams"], "connect", folder, plant, *timing, *dtls], folder))]

    @staticmethod
    def to(port):
        return ["--to", f"127.0.0.1:{port}"]

    def add(self, party):
        self.parties.append(party)
        return party

    def check(self):
        for party in self.parties:
            party.check()

    def drain(self):
        """Ends all connections."""
        for party in self.clients:
            party.send_line()
        for party in [*self.clients, *self.parties]:
            party.expect_idle()

    def end(self):
        for party in self.parties:
            if not isinstance(party, Relay):
                for _ in range(1 if party in self.clients else 2):
                    party.send_line()
        for party in self.parties:
            party.expect_exit()
