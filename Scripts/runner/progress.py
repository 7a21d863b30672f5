"""Shows the progress of a script in this folder, and creates its log."""
import os
import re
import sys
import time
import unicodedata

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The number of earlier logs that are kept.
KEPT = 3
# Seconds between two progress lines if the output is not a terminal, and between two updates on a terminal.
INTERVAL = float(os.environ.get("PROGRESS_INTERVAL") or 60)
UPDATE = 0.1
# Prints UTF-8 in every locale.
for stream in filter(None, (sys.stdout, sys.stderr)):
    stream.reconfigure(encoding="utf-8", errors="replace")


def is_verbose():
    return bool(os.environ.get("VERBOSE"))


def elapsed(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def relative(path):
    """Returns the path relative to the current folder, or unchanged if it is outside that folder."""
    shorter = os.path.relpath(path)
    return path if shorter.startswith("..") else shorter


def open_log(name):
    """Creates .build/logs/NAME.log. The logs of the last runs are kept as NAME.1.log, NAME.2.log, etc."""
    folder = os.path.join(ROOT, ".build", "logs")
    os.makedirs(folder, exist_ok=True)
    paths = [os.path.join(folder, f"{name}{'.' + str(age) if age else ''}.log") for age in range(KEPT + 1)]
    for newer, older in reversed(list(zip(paths, paths[1:]))):
        try:
            os.replace(newer, older)
        except FileNotFoundError:
            pass
    return open(paths[0], "ab", buffering=0)


class Display:
    """Shows the progress: on a terminal, in a line that is rewritten; otherwise, in a new line every minute."""

    def __init__(self):
        self.is_terminal = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self.is_drawn = False
        self.shown = 0 if self.is_terminal else time.monotonic()

    def show(self, text):
        now = time.monotonic()
        if now - self.shown < (UPDATE if self.is_terminal else INTERVAL):
            return
        self.shown = now
        if self.is_terminal:
            self.is_drawn = True
            write("\r" + cut(text, columns() - 1) + "\x1b[K")
        else:
            write(cut(text, 160) + "\n")

    def print(self, text):
        """Prints lines that are not rewritten."""
        self.clear()
        write(text + "\n")

    def clear(self):
        if self.is_drawn:
            self.is_drawn = False
            write("\r\x1b[K")


def write(text):
    """Prints text. Ignores an error if the program that reads the output has exited."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except (BrokenPipeError, AttributeError):
        pass


def columns():
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80


def cut(text, width):
    """Shortens the text to the width. Removes colours and control characters."""
    result, used = [], 0
    for character in " ".join(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text).split()):
        if unicodedata.category(character) in ("Cc", "Mn"):
            continue
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > width:
            return "".join(result[:-1]) + "…"
        result.append(character)
    return "".join(result)
