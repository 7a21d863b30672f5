"""Writes the tables and charts of Scripts/scale."""
import json
import math
import os

from chart import COLORS, HEIGHT, LEFT, TOP, Drawing
from measurement import SERVERS
from passes import head
from results import paragraph, publish

STEPS = {"accept": "accept, with an echo of one byte", "echo": "echo of 64 bytes", "end": "closing them together"}
WIDTH = 420


def is_same(one, other):
    """Whether both results are about the same measurement."""
    return all(one[key] == other[key] for key in ("server", "secure", "connections"))


def line(result):
    steps = [f"{step} {result[step]['server']:.1f} µs" for step in (*STEPS, "broadcast") if step in result]
    return (f"{result['connections']:>7,} {'TLS' if result['secure'] else 'plain':5} {result['server']:12} {', '.join(steps)}, "
            f"memory {result['memory'] / 1024:.1f} KiB")


def table(results, secure, value, title):
    """Returns a table of a value by server and number of connections."""
    chosen = [result for result in results if result["secure"] == secure]
    sizes = sorted({result["connections"] for result in chosen})
    rows = {server: {} for server in SERVERS}
    for result in chosen:
        rows.setdefault(result["server"], {})[result["connections"]] = value(result)
    lines = [f"| {title} | " + " | ".join(f"{size:,}" for size in sizes) + " |", "|---|" + "--:|" * len(sizes)]
    for server, cells in rows.items():
        if any(cells.get(size) is not None for size in sizes):
            lines.append(f"| `{server}` | " + " | ".join(f"{cells[size]:,.1f}" if cells.get(size) is not None else "–" for size in sizes) + " |")
    return "\n".join(lines) + "\n"


def tables(results):
    parts = []
    for secure in (False, True):
        if not any(result["secure"] == secure for result in results):
            continue
        kind = "TLS" if secure else "plain"
        for step, title in STEPS.items():
            parts.append(table(results, secure, lambda result, step=step: result[step]["server"], f"{kind}: {title}, µs"))
        parts.append(table(results, secure, lambda result: result["memory"] / 1024, f"{kind}: memory of a connection, KiB"))
        parts.append(table(results, secure, lambda result: result.get("broadcast", {}).get("server"), f"{kind}: broadcast, µs each"))
        parts.append(table(results, secure, lambda result: result.get("broadcast", {}).get("longest"), f"{kind}: broadcast, s in total"))
        parts.append(table(results, secure, lambda result: result["end"]["longest"], f"{kind}: closing, s in total"))
    return "\n".join(parts)


def chart(results, secure, step):
    """Draws the cost of a step over the number of connections."""
    chosen = [result for result in results if result["secure"] == secure]
    sizes = sorted({result["connections"] for result in chosen})
    top = max(result[step]["server"] for result in chosen)
    scale = 10.0 ** math.floor(math.log10(top))
    unit = next(part for part in (scale / 5, scale / 2, scale, 2 * scale) if top / part <= 6)
    high = unit * math.ceil(top / unit)

    def x(size):
        return LEFT + WIDTH * (0.5 if len(sizes) == 1 else math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0]))

    def y(value):
        return TOP + HEIGHT - HEIGHT * value / high

    drawing = Drawing()
    drawing.text(16, 26, f"{'TLS' if secure else 'Plain'}: {STEPS[step]}", size=15, weight="bold")
    drawing.text(16, 46, "processor time of the server for a connection, µs", size=12)
    for number in range(round(high / unit) + 1):
        drawing.line(LEFT, y(number * unit), LEFT + WIDTH, y(number * unit), "#ddd")
        drawing.text(LEFT - 8, y(number * unit) + 4, f"{number * unit:g}", anchor="end")
    for size in sizes:
        drawing.text(x(size), TOP + HEIGHT + 18, f"{size:,}", anchor="middle")
    drawing.text(LEFT + WIDTH, TOP + HEIGHT + 36, "connections", anchor="end")
    for number, server in enumerate(SERVERS):
        points = sorted((result["connections"], result[step]["server"]) for result in chosen if result["server"] == server)
        drawing.path([(x(size), y(cost)) for size, cost in points], COLORS[number % len(COLORS)])
        drawing.rectangle(LEFT + WIDTH + 20, TOP + 6 + 22 * number, 12, 12, COLORS[number % len(COLORS)])
        drawing.text(LEFT + WIDTH + 38, TOP + 16 + 22 * number, server, size=12)
    return drawing.svg(LEFT + WIDTH + 140, TOP + HEIGHT + 50)


def facts(results):
    processes = max(result["processes"] for result in results)
    earlier = sorted({result["commit"] for result in results if result.get("commit", head()) != head()})
    return (f"{os.cpu_count()} processors, one of them for the servers and one for the clients. "
            f"The largest number of connections was shared by {processes} processes."
            + (f" Some results are from earlier commits: {', '.join(earlier)}." if earlier else ""))


def write(results, output, updates_document):
    images = {f"{'tls' if secure else 'plain'}-{step}.svg": chart(results, secure, step)
              for secure in sorted({result["secure"] for result in results}) for step in STEPS}
    publish(f"{paragraph(facts(results))}\n{tables(results)}", images | {"results.json": json.dumps(results, indent=1)}, output,
            "Documentation/Scale.md" if updates_document else None)
