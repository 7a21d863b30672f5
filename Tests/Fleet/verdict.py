"""Judges a run of Scripts/test-fleet, and writes its results."""
import collections
import os
import re

import chart
import results

# The table and the facts in the document, which are above its first image.
RESULTS = re.compile(r"(?:\| scenario \| made .*?)?(?=!\[)", re.S)
KINDS = {"short": "short", "long": "long", "resumed": "resumed", "starttls": "STARTTLS"}
# How long after the kill connections of the killed process may still fail, in seconds.
GRACE = 5


def total(counts):
    return sum(counts.values())


def blamed(fleet):
    """Yields each failure with the server to which a load balancer had passed the connection, or None."""
    wanted = {failure["client"] for failure in fleet.load.failures}
    passed = collections.defaultdict(list)
    for balancer in (fleet.haproxy, fleet.nginx):
        for time, client, server in balancer.servers():
            if client in wanted:
                passed[client].append((time, server))
    for failure in fleet.load.failures:
        # A client may use a port again later.
        _, server = min(passed[failure["client"]], key=lambda entry: abs(entry[0] - failure["time"]), default=(0, None))
        yield failure, server


def failures(fleet):
    for failure, server in blamed(fleet):
        since = failure["time"] - fleet.killed_at
        if server != "a" or not 0 <= since <= GRACE:
            yield (f"a {failure['kind']} connection on the route {failure['route']} to server {server} failed after "
                   f"{failure['seconds']:.3f} s, {since:+.1f} s after the kill: {failure['error']}")


def resumption(scenarios):
    for name, counts in scenarios.items():
        if total(counts["made"]) and not counts["resumed"] and name != "stopped":
            yield f"{name}: no session was resumed"
        if counts["refused"] and name != "certificate replaced":
            yield f"{name}: sessions were not resumed: {counts['refused']}"
    if not sum(counts["across"] for counts in scenarios.values()):
        yield "no session of another process was resumed"


def certificates(scenarios):
    (before,) = scenarios["steady"]["certificates"] or [None]
    for name in ("process killed", "both replaced", "limits attacked"):
        seen = scenarios[name]["certificates"]
        if not seen or before in seen:
            yield f"{name}: clients did not receive the new certificate alone: {seen}"


def judge(fleet, connections):
    """Returns what is wrong."""
    scenarios = {entry["name"]: entry["counts"] for entry in fleet.load.report}
    problems = [*failures(fleet), *resumption(scenarios), *certificates(scenarios)]
    made = sum(total(counts["made"]) for counts in scenarios.values())
    ended = sum(total(counts["finished"]) + total(counts["failed"]) for counts in scenarios.values())
    if made < connections or made != ended:
        problems.append(f"{made} connections were made, and {ended} ended")
    for reason in ("bySource", "byConnections"):
        if not fleet.monitor.refused(reason):
            problems.append(f"the attack reached no limit that counts as {reason}")
    for server in ("a", "b"):
        if not fleet.monitor.states.get(server, {}).get("resumed"):
            problems.append(f"server {server} resumed no session")
    return problems


def row(name, counts):
    cells = [name, total(counts["made"]), total(counts["finished"]), total(counts["failed"]), total(counts["resumed"])]
    return (f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else cell for cell in cells)} "
            f"| {counts['usualWait'] * 1000:,.0f} ms | {counts['longestWait'] * 1000:,.0f} ms |")


def table(fleet):
    """Returns the counts of each scenario and of each kind of connection."""
    lines = ["| scenario | made | finished | failed | resumed | 99th percentile of the wait | longest wait |",
             "|---|--:|--:|--:|--:|--:|--:|"]
    lines += [row(entry["name"], entry["counts"]) for entry in fleet.load.report]
    lines += ["", "| connections | made | finished | failed | resumed |", "|---|--:|--:|--:|--:|"]
    for kind, label in [*KINDS.items(), (None, "total")]:
        cells = [sum(number for entry in fleet.load.report for name, number in entry["counts"][column].items() if kind in (None, name))
                 for column in ("made", "finished", "failed", "resumed")]
        lines.append(f"| {label} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def facts(fleet):
    """Returns sentences about the run."""
    across = sum(entry["counts"]["across"] for entry in fleet.load.report)
    refused, replaced = fleet.monitor.refused("bySource"), fleet.monitor.refused("byConnections")
    return (f"{os.cpu_count()} processors, with a load average of {fleet.load_before:.1f} before the run, which took "
            f"{fleet.monitor.end:.0f} seconds. {across:,} sessions were resumed by a different process. "
            f"Of the silent connections, the servers refused {refused:,} and replaced {replaced:,}.")


def write(fleet, output, updates_document):
    monitor = fleet.monitor
    images = {
        "latency.svg": chart.draw("Event loops: time to start a job", "milliseconds (the slower loop of each process)",
                                  monitor.lines(monitor.latency), monitor.marks, monitor.end, is_logarithmic=True),
        "memory.svg": chart.draw("Resident memory", "MiB (each line is a process)", monitor.lines(monitor.memory), monitor.marks,
                                 monitor.end),
    }
    results.publish(f"{table(fleet)}\n{results.paragraph(facts(fleet))}", images, output,
                    "Documentation/Fleet.md" if updates_document else None, RESULTS)
