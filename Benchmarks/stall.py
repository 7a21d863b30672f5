"""How long a connection waits while others of the same event loop shake hands.

Two processes begin eight handshakes at a time, again and again, and end each connection at once. Meanwhile one
connection echoes 64 bytes every millisecond; its times are printed.
"""

import multiprocessing
import os
import socket
import ssl
import sys
import time

PORT, SECONDS, HAMMERS, BURST = int(sys.argv[1]), float(sys.argv[2]), 2, 8


def context():
    result = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    result.check_hostname = False
    result.verify_mode = ssl.CERT_NONE
    return result


def connect(settings, begins):
    plain = socket.create_connection(("127.0.0.1", PORT), timeout=10)
    return settings.wrap_socket(plain, do_handshake_on_connect=begins)


def hammer(stop, count):
    settings = context()
    while not stop.is_set():
        burst = [connect(settings, False) for _ in range(BURST)]
        for connection in burst:
            connection.setblocking(False)
            try:
                connection.do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
        for connection in burst:
            connection.settimeout(10)
            connection.do_handshake()
            connection.close()
            count.value += 1


def echo(connection):
    begin = time.perf_counter()
    connection.sendall(b"x" * 64)
    missing = 64
    while missing > 0:
        missing -= len(connection.recv(missing))
    return time.perf_counter() - begin


os.sched_setaffinity(0, {1})
probe = connect(context(), True)
probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
stop = multiprocessing.Event()
counts = [multiprocessing.Value("i", 0) for _ in range(HAMMERS)]
hammers = [multiprocessing.Process(target=hammer, args=(stop, count)) for count in counts]
for process in hammers:
    process.start()
try:
    # The load generator must not compete with the probe for its processor.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
except PermissionError:
    print("without real-time priority: the times include those of the load generator")
times, end = [], time.monotonic() + SECONDS
while time.monotonic() < end:
    times.append(echo(probe) * 1000)
    time.sleep(0.001)
stop.set()
for process in hammers:
    process.join()
times.sort()
at = lambda share: times[int((len(times) - 1) * share)]
print(
    f"{sum(count.value for count in counts) / SECONDS:5.0f} handshakes/s   {len(times):5} echoes   "
    f"p50 {at(0.5):7.2f} ms   p99 {at(0.99):7.2f}   p99.9 {at(0.999):7.2f}   max {times[-1]:7.2f}"
)
sys.exit(0 if all(process.exitcode == 0 for process in hammers) else 1)
