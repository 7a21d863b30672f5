"""Finds and kills the processes that a run leaves behind."""
import collections
import ctypes
import os
import signal
import time

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Makes this script the parent of descendants whose parents have exited."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid):
    parents = collections.defaultdict(list)
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(parent)].append(int(entry))
    found, waiting = [], [pid]
    while waiting:
        children = parents[waiting.pop()]
        found += children
        waiting += children
    return found


def kill(processes):
    for pid in processes:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def kill_descendants():
    """Kills all descendants of this script, including processes that start in the meantime."""
    for _ in range(100):
        processes = descendants(os.getpid())
        if not processes:
            return
        kill(processes)
        time.sleep(0.05)
