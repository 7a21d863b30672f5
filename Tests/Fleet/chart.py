"""Draws lines over time as an SVG image, in the style of Benchmarks/Sources/Bench/LineChart.swift."""
import math

LEFT, TOP, WIDTH, HEIGHT, RIGHT = 70, 96, 800, 260, 170
COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


class Drawing:
    def __init__(self):
        self.elements = []

    def text(self, x, y, text, size=11, anchor="start", color="#222", weight="normal"):
        self.elements.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{color}" '
                             f'font-weight="{weight}">{escaped(text)}</text>')

    def line(self, x1, y1, x2, y2, color):
        self.elements.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>')

    def path(self, points, color):
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.elements.append(f'<polyline points="{text}" fill="none" stroke="{color}" stroke-width="1.5"/>')

    def rectangle(self, x, y, width, height, color):
        self.elements.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width}" height="{height}" fill="{color}"/>')

    def svg(self, width, height):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
                f'viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, DejaVu Sans, sans-serif">')
        return "\n".join([head, '<rect width="100%" height="100%" fill="#fff"/>', *self.elements, "</svg>"]) + "\n"


def thinned(points, seconds):
    """Returns the largest value of each period."""
    largest = {}
    for time, value in points:
        period = math.floor(time / seconds)
        if value >= largest.get(period, (0, -math.inf))[1]:
            largest[period] = (time, value)
    return list(largest.values())


def ticks(values, is_logarithmic):
    """Returns round numbers that enclose the values."""
    low, high = min(values), max(values)
    if is_logarithmic:
        return [10.0 ** power for power in range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)]
    step = 10.0 ** math.floor(math.log10(high))
    step = next(part for part in (step / 5, step / 2, step, 2 * step) if high / part <= 6)
    return [step * number for number in range(math.floor(high / step) + 2)]


def draw(title, unit, lines, marks, end, is_logarithmic=False):
    """Returns an SVG image.

    `lines` contains, for each label, the lines of one color, each a list of (seconds, value). `marks` contains the time
    and the name of each scenario. `end` is the end of the horizontal axis.
    """
    lines = {label: [thinned(line, end / 200) for line in group] for label, group in lines.items()}
    scale = math.log10 if is_logarithmic else float
    rows = ticks([value for group in lines.values() for line in group for _, value in line], is_logarithmic)
    low, high = scale(rows[0]), scale(rows[-1])

    def x(time):
        return LEFT + WIDTH * time / end

    def y(value):
        return TOP + HEIGHT - HEIGHT * (scale(value) - low) / (high - low)

    drawing = Drawing()
    drawing.text(16, 26, title, size=15, weight="bold")
    drawing.text(16, 46, unit, size=12)
    for value in rows:
        drawing.line(LEFT, y(value), LEFT + WIDTH, y(value), "#ddd")
        drawing.text(LEFT - 8, y(value) + 4, f"{value:g}", anchor="end")
    for number, (time, name) in enumerate(marks):
        drawing.line(x(time), TOP - 6 - 14 * (number % 2), x(time), TOP + HEIGHT, "#999")
        drawing.text(x(time) + 4, TOP - 10 - 14 * (number % 2), name)
    step = next((step for step in (5, 10, 20, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200) if end / step <= 12), 14_400)
    for number in range(int(end / step) + 1):
        drawing.text(x(number * step), TOP + HEIGHT + 18, f"{number * step}", anchor="middle")
    drawing.text(LEFT + WIDTH, TOP + HEIGHT + 36, "seconds", anchor="end")
    for number, (label, group) in enumerate(lines.items()):
        for line in group:
            drawing.path([(x(time), y(value)) for time, value in line], COLORS[number])
        drawing.rectangle(LEFT + WIDTH + 20, TOP + 6 + 22 * number, 12, 12, COLORS[number])
        drawing.text(LEFT + WIDTH + 38, TOP + 16 + 22 * number, label, size=12)
    return drawing.svg(LEFT + WIDTH + RIGHT, TOP + HEIGHT + 50)
