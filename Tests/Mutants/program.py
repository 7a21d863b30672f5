"""Builds the tests with all mutants in the libraries. An environment variable activates mutants.

Mutants change only the bodies of functions, so the interfaces of the libraries stay the same. Therefore, only the
libraries are recompiled, with the commands of the ordinary build, and then linked with the test objects of that build.
"""
import json
import os
import re
import shlex
import subprocess
import sys

FOLDER = ".build/mutants"
PROGRAM = f"{FOLDER}/AsyncSocketsPackageTests.xctest"
LOG = f"{FOLDER}/log"
# Options of the ordinary build that test programs do not need: options followed by a path, and options without a value.
DROPPED_PAIRS = {"-emit-module-path", "-output-file-map", "-index-store-path", "-emit-objc-header-path"}
DROPPED = {
    "-emit-module", "-emit-objc-header", "-warnings-as-errors", "-parseable-output", "-g", "-serialize-diagnostics"}
SWITCH = """import Glibc

/// The numbers of the active mutants, separated by commas; see Scripts/mutants.
private let setting = getenv("MUTANT").map { String(cString: $0) } ?? ""
private let activeMutants = setting.split(separator: ",").compactMap { Int($0) }
private let firstMutant = activeMutants.first ?? 0
private let otherMutants = Set(activeMutants.dropFirst())
private let hasOthers = !otherMutants.isEmpty

@usableFromInline
@inline(never)
func isMutant(_ number: Int) -> Bool { number == firstMutant || hasOthers && otherMutants.contains(number) }
"""


def run(command, what):
    """Runs a command whose output goes to the log, and exits with its errors if it fails."""
    with open(LOG, "a", encoding="utf-8") as log:
        log.write(f"\n{what}\n")
        log.flush()
        begin = log.tell()
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    if status != 0:
        with open(LOG, encoding="utf-8", errors="replace") as log:
            log.seek(begin)
            output = log.read()
        errors = list(dict.fromkeys(re.findall(r"(?m)^.*error: .*$", output))) or output.split("\n")[-20:]
        sys.exit(f"mutants: {what} failed:\n" + "\n".join(errors[:40]))


def write_if_changed(path, text):
    """Leaves an unchanged file alone, so that its modification time does not cause recompilation."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def switched(entry, right):
    if entry.is_statement:
        return f"if isMutant({entry.number}) {{\n{entry.new}\n}} else {{\n{right}\n}}"
    return f"(isMutant({entry.number}) ? ({entry.new}) : ({right}))"


def mutated(text, spans):
    for (begin, end), entries in sorted(spans.items(), reverse=True):
        changed = text[begin:end]
        for entry in entries:
            changed = switched(entry, changed)
        text = text[:begin] + changed + text[end:]
    return text


def command_of(name, kind):
    """Returns the command with which the ordinary build creates a module (`module`) or a program (`test`, `exe`)."""
    with open(".build/debug.yaml", encoding="utf-8") as file:
        found = re.search(rf'  "C\.{name}-[\w-]+-debug\.{kind}":\n(?:    .*\n)*?    args: (\[.*\])\n', file.read())
    if not found:
        sys.exit(f"mutants: the ordinary build has no command for {name}")
    return json.loads(found[1])


def paths_in(command):
    """Returns the paths in the file list that is an argument of the command."""
    path = next(argument for argument in command if argument.startswith("@"))[1:]
    with open(path, encoding="utf-8") as file:
        return shlex.split(file.read())


def without_outputs(arguments):
    kept, previous = [], ""
    for argument in arguments:
        is_value = previous == "-Xcc"
        dropped = argument in DROPPED | DROPPED_PAIRS or argument.startswith("@") or previous in DROPPED_PAIRS
        if is_value or not dropped:
            kept.append(argument)
        previous = argument
    return kept


def compile_library(library, places):
    """Compiles a library with its mutants. Returns its object files, keyed by their names in the ordinary build."""
    folder = os.path.abspath(f"{FOLDER}/{library}")
    sources, files = [], {}
    command = command_of(library, "module")
    ordinary = paths_in(command)
    for path in [*ordinary, "ActiveMutant.swift"]:
        relative = os.path.relpath(path) if os.path.isabs(path) else f"Sources/{library}/{path}"
        if relative in places or path not in ordinary:
            text = mutated(open(path, encoding="utf-8").read(), places[relative]) if path in ordinary else SWITCH
            path = f"{folder}/Sources/{os.path.basename(path)}"
            write_if_changed(path, text)
        sources.append(path)
        stem = f"{folder}/{os.path.basename(path)}"
        files[path] = {"object": f"{stem}.o", "swift-dependencies": f"{stem.removesuffix('.swift')}.swiftdeps"}
    files[""] = {"swift-dependencies": f"{folder}/whole.swiftdeps"}
    write_if_changed(f"{folder}/files.json", json.dumps(files, indent=1))
    run([*without_outputs(command), *sources, "-output-file-map", f"{folder}/files.json", "-suppress-warnings"],
        f"compiling {library}")
    objects = [outputs["object"] for outputs in files.values() if "object" in outputs]
    return {f"{library}.build/{os.path.basename(path)}": path for path in objects}


def link(name, kind, objects):
    """Links a program of the ordinary build with the object files that contain the mutants."""
    command = command_of(name, kind)
    paths = paths_in(command)
    linked = {"/".join(path.split("/")[-2:]) for path in paths}
    paths = [objects.get("/".join(path.split("/")[-2:]), path) for path in paths]
    added = [path for key, path in objects.items() if key.endswith("/ActiveMutant.swift.o") and
             any(other.startswith(key.split("/")[0]) for other in linked)]
    target = f"{FOLDER}/{name}.LinkFileList"
    write_if_changed(target, "\n".join(map(shlex.quote, [*paths, *added])) + "\n")
    command[command.index("-o") + 1] = f"{FOLDER}/{os.path.basename(command[command.index('-o') + 1])}"
    run([*without_outputs(command), f"@{target}"], f"linking {name}")


def build(places):
    """Builds the ordinary tests, then the libraries with all mutants, then the programs with these libraries."""
    os.makedirs(FOLDER, exist_ok=True)
    open(LOG, "w", encoding="utf-8").close()
    run(["swift", "build", "--build-tests"], "the ordinary build")
    objects = {}
    for library in sorted({path.split("/")[1] for path in places}):
        objects.update(compile_library(library, places))
    link("AsyncSocketsPackageTests", "test", objects)
    link("EngineProbe", "exe", objects)
    link("Simulation", "exe", objects)
