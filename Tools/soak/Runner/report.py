"""Writes the report and the charts of Tools/soak/run."""
import os

import chart
import results


def resource_table(samples):
    lines = ["| process | resident memory, first quarter | last quarter | allocated memory, first quarter | last quarter | descriptors without a connection | threads | latency: median | 99th percentile | longest |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for party in samples.judged:
        name = party.name
        memory, threads = samples.ends_of("memory", name), samples.ends_of("threads", name)
        cells = [f"{memory[0]:,.0f} MiB", f"{memory[1]:,.0f} MiB"]
        if name in samples.values["surplus"]:
            cells += [f"{value:,.0f} MiB" for value in samples.ends_of("allocated", name)]
            surplus, latency = samples.ends_of("surplus", name), samples.latency(name)
            cells += [f"{surplus[0]:.0f}, {surplus[1]:.0f}", f"{threads[0]:.0f}, {threads[1]:.0f}", *(f"{value:,.1f} ms" for value in latency)]
        else:
            cells += ["", "", "", f"{threads[0]:.0f}, {threads[1]:.0f}", "", "", ""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def count_table(samples):
    lines = ["| process | connections | exchanges | GB | handshakes | resumed | half-closed | reset | cut | closed by the server |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for party in samples.topology.parties:
        if party.counts:
            counts = party.counts
            ends = [counts["ends"].get(end, 0) for end in ("halfClose", "reset", "cut", "close")]
            numbers = [counts["made"], counts["exchanges"]], [counts["secured"], counts["resumed"], *ends]
            cells = [*(f"{number:,}" for number in numbers[0]), f"{counts['bytes'] / 1e9:.2f}", *(f"{number:,}" for number in numbers[1])]
            lines.append(f"| {party.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def facts(samples, options, load):
    return (f"{options.connections:,} connections for {options.minutes:g} minutes with the seed {options.seed}. "
            f"{os.cpu_count()} processors, with a load average of {load:.1f} before the run.")


def write(samples, options, load, output, updates_document):
    drawings = {"memory": ("Resident memory", "MiB"), "allocated": ("Memory allocated with malloc and not freed", "MiB"),
                "descriptors": ("Open descriptors", "descriptors"), "threads": ("Threads", "threads"),
                "latency": ("Event loops: time to start a job", "milliseconds (the slowest loop of the process)"),
                "connections": ("Open connections", "connections, on both sides")}
    images = {f"{kind}.svg": chart.draw(*titles, {name: [line] for name, line in samples.values[kind].items()}, samples.marks,
                                        samples.end, is_logarithmic=kind == "latency")
              for kind, titles in drawings.items()}
    text = f"{results.paragraph(facts(samples, options, load))}\n{resource_table(samples)}\n{count_table(samples)}"
    results.publish(text, images, output, "Documentation/Soak.md" if updates_document else None)
