"""Reads and checks the lists of mutants in this folder.

Each library in Sources has one list, LIBRARY.list. Blocks are separated by an empty line:

    == a short description of the mutant, which is its name and is unique across all lists
    file Sources/LIBRARY/…
    tests a regular expression for the test suites that should catch the mutant
    kind statement
    openssl 3.2
    - the text to replace, which occurs exactly once in the file
    + its replacement

The text is an expression or, with the line `kind statement`, one or more statements. It can have several lines, each
with its own `-` or `+`; indentation is ignored. If OpenSSL is older than the version in the line `openssl`, the
mutant has no effect and is not run. The build wraps the text as follows, and `check` rejects texts that would then not
compile:

    expression    (isMutant(number) ? (replacement) : (text))
    statement     if isMutant(number) { replacement } else { text }
"""
import collections
import glob
import hashlib
import re
import zlib

FOLDER = "Tests/Mutants"
FIELDS = ("file", "tests", "kind", "openssl")
NOT_AN_EXPRESSION = re.compile(
    r"(case|default|return|throw|let|var|if|guard|switch|for|while|defer|break|continue|else|where)\b"
    r"|&&|\|\||\?\?|[?:=]")
NOT_A_STATEMENT = re.compile(r"(case|default|else|catch|where)\b|&&|\|\||\?\?|[?:.=]")
OPEN_END = re.compile(r"(&&|\|\||\?\?|[:={+*/-])$")
# A top-level type, or a function.
DECLARATION = re.compile(
    r"(?m)^(?:[\w@][\w@(). ,:]* )?(?:struct|class|actor|enum|extension) (\w+)|\bfunc (\w+)")
STRINGS_AND_COMMENTS = re.compile(r'"(?:\\.|[^"\\\n])*"|//.*')


class Entry(collections.namedtuple("Entry", "name file tests is_statement openssl old new")):
    @property
    def number(self):
        """Identifies the mutant in the program. Adding other entries does not change it, so files stay compiled."""
        return zlib.crc32(self.name.encode())

    @property
    def library(self):
        return self.file.split("/")[1]

    @property
    def digest(self):
        """A checksum that changes if the mutant itself changes."""
        return hashlib.sha256(repr((self.file, self.is_statement, self.old, self.new)).encode()).hexdigest()[:6]


def read_file(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def version(text):
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def parse(block):
    """Returns the entry of a block, or raises ValueError."""
    fields, texts = {}, {"-": [], "+": []}
    for line in block.split("\n"):
        key, _, value = line.partition(" ")
        if key in texts:
            texts[key].append(value)
        elif key in ("==", *FIELDS) and value and key not in fields:
            fields[key] = value
        elif not line.startswith("#"):
            raise ValueError(f"unknown or repeated line in a block: {line}")
    for key in ("==", "file", "tests"):
        if key not in fields:
            raise ValueError(f"a block has no line `{key}`: {block[:80]}")
    if fields.get("kind", "statement") != "statement":
        raise ValueError(f"{fields['==']}: unknown kind {fields['kind']}")
    return Entry(fields["=="], fields["file"], fields["tests"], "kind" in fields, version(fields.get("openssl", "0")),
                 "\n".join(texts["-"]), "\n".join(texts["+"]))


def read_lists():
    """Returns the entries of all lists, and the errors."""
    entries, faults, names, numbers = [], [], set(), set()
    for path in sorted(glob.glob(f"{FOLDER}/*.list")):
        library = path.split("/")[-1].removesuffix(".list")
        for block in re.split(r"\n\s*\n", read_file(path).strip()):
            try:
                entry = parse(block)
            except ValueError as error:
                faults.append(f"{path}: {error}")
                continue
            if entry.name in names or entry.number in numbers:
                faults.append(f"{entry.name}: another entry has the same name or checksum")
            if entry.library != library:
                faults.append(f"{entry.name}: {entry.file} is not in Sources/{library}")
            names.add(entry.name)
            numbers.add(entry.number)
            entries.append(entry)
    return entries, faults


def without_strings(text):
    return STRINGS_AND_COMMENTS.sub('""', text)


def depths(code):
    """Yields each character with the number of brackets that enclose it."""
    depth = 0
    for character in code:
        depth -= character in ")]}"
        yield character, depth
        depth += character in "([{"


def form_fault(entry, text):
    """Returns why this text of the entry cannot be wrapped, or None."""
    code = without_strings(text).strip()
    levels = list(depths(code))
    if any(depth < 0 for _, depth in levels) or sum((c in "([{") - (c in ")]}") for c in code):
        return "brackets are not closed"
    start = (NOT_A_STATEMENT if entry.is_statement else NOT_AN_EXPRESSION).match(code)
    if start and not code.startswith(("==", "...")):
        return f"{'a statement' if entry.is_statement else 'an expression'} cannot begin with `{start[0]}`"
    if OPEN_END.search(code):
        return f"the text cannot end with `{code[-1]}`"
    if entry.is_statement:
        return None
    if not code:
        return "an expression cannot be empty: use `kind statement`"
    if (",", 0) in levels:
        return "an expression cannot contain a comma outside of brackets"
    return None


def bound_names(text):
    """Returns the names that the statements declare for the code after them."""
    top = "".join(character if depth == 0 else " " for character, depth in depths(without_strings(text)))
    names = set()
    for line in top.split("\n"):
        if not re.match(r"\s*(if|while|for|switch|\}|private|case)\b", line):
            names.update(re.findall(r"\b(?:let|var|func)\s+(\w+)", line))
    return names


def place_fault(entry, text, begin, end):
    """Returns why the text cannot be wrapped at its position in the file, or None."""
    before, after = text[:begin].rstrip(" "), text[end:]
    if entry.is_statement:
        rest = "".join(rest_of_block(after))
        for name in sorted(bound_names(entry.old)):
            if re.search(rf"\b{name}\b", rest):
                return f"`{name}` is used after the text: replace only the value, or include the code that uses it"
        return "`defer` would run too early" if re.match(r"\s*defer\b", entry.old) else None
    if re.search(r"[\w.]$", text[:begin]) or re.match(r"\w", after):
        return "the text begins or ends in the middle of an expression"
    opening = re.split(r"[{}]", before)[-1]
    if re.match(r" ?\{", after) and not re.search(r"\b(if|while|for|switch|catch|guard|where)\b", opening):
        return "the text ends before its trailing closure"
    return None


def rest_of_block(after):
    """Yields the characters up to the end of the enclosing block."""
    for character, depth in depths(without_strings(after)):
        if depth < 0:
            return
        yield character


def find_places(entries):
    """Returns the entries by file and by the range of their text, and the errors. Ranges can be equal."""
    faults, places = [], collections.defaultdict(lambda: collections.defaultdict(list))
    texts = {}
    for entry in entries:
        found = {form_fault(entry, text) for text in (entry.old, entry.new)} - {None}
        faults += [f"{entry.name}: {fault}" for fault in sorted(found)]
        try:
            text = texts[entry.file] = texts.get(entry.file) or read_file(entry.file)
        except OSError:
            faults.append(f"{entry.name}: {entry.file} does not exist")
            continue
        pattern = r"\n[ ]*".join(re.escape(line.strip()) for line in entry.old.split("\n"))
        found = [match.span() for match in re.finditer(pattern, text)] if entry.old.strip() else []
        if len(found) != 1:
            faults.append(f"{entry.name}: the text occurs {len(found)} times in {entry.file}")
            continue
        begin, end = found[0]
        fault = place_fault(entry, text, begin, end)
        if fault:
            faults.append(f"{entry.name}: {fault}")
        for other, others in places[entry.file].items():
            if other != (begin, end) and other[0] < end and begin < other[1]:
                faults.append(f"{entry.name}: the text overlaps with the text of another entry: {others[0].name}")
        places[entry.file][begin, end].append(entry)
    return places, faults


def test_names():
    """Returns all tests that a text search finds, as Target.Suite/function."""
    names = []
    for path in glob.glob("Tests/*Tests/**/*.swift", recursive=True):
        suite = ""
        for match in DECLARATION.finditer(read_file(path)):
            suite = match[1] or suite
            if match[2]:
                names.append(f"{path.split('/')[1]}.{suite}/{match[2]}()")
    return "\n".join(names)


def test_faults(entries):
    """Returns an error for each entry whose pattern in `tests` matches no test."""
    names, faults = test_names(), []
    for tests in sorted({entry.tests for entry in entries}):
        # Swift Testing searches for the pattern anywhere in a name.
        for part in tests.split("|") if "(" not in tests else [tests]:
            if not re.search(part, names, re.M):
                users = [entry.name for entry in entries if entry.tests == tests]
                faults.append(f"{users[0]}: no test matches `{part}`")
    return faults


def check():
    """Returns all entries with their places, and every error in the lists."""
    entries, faults = read_lists()
    places, place_faults = find_places(entries)
    return entries, places, faults + place_faults + test_faults(entries)
