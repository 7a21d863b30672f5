"""Writes the results of a long run to its output folder, and on request to its document."""
import datetime
import os
import re
import textwrap

import passes

# The results in a document, which are between its heading for the results and its first image.
PLACE = re.compile(r"(?<=## Results\n\n).*?(?=!\[)", re.S)


def paragraph(sentences):
    """Returns sentences about a run, which begin with its date and commit."""
    return textwrap.fill(f"{datetime.date.today()}, commit {passes.head()}: {sentences}", 110) + "\n"


def publish(text, files, output, document, place=PLACE):
    """Prints and writes a report and its files. A document, unless it is None, has a folder of its name for the files."""
    print(f"\n{text}", flush=True)
    for folder in [output, document.removesuffix(".md")] if document else [output]:
        os.makedirs(folder, exist_ok=True)
        for name, content in files.items():
            with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
                file.write(content)
    with open(f"{output}/report.md", "w", encoding="utf-8") as file:
        file.write(text)
    if document:
        with open(document, encoding="utf-8") as file:
            replaced, count = place.subn(lambda _: f"{text}\n", file.read(), count=1)
        if not count:
            raise ValueError(f"{document} has no place for results")
        with open(document, "w", encoding="utf-8") as file:
            file.write(replaced)
