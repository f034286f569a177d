#!/usr/bin/env python3
"""Holds the rules of the house: who may include whom and who must, what cores may not use, lengths, header comments, words,
and that what comments and pages cite is there.

Usage: tidy.py [ROOT]   prints one line a violation, `file:line: rule`, and exits 1 if there is any.
"""
import collections
import pathlib
import re
import sys

import citations
import reach
import rules

MOST_FILE_LINES = 500
MOST_FUNCTION_LINES = 70
MOST_FOLDER_FILES = 35  # C++ files; a folder with more of them is given rooms

# House -> the houses it may include (itself always).
HOUSES = {
    "base": set(),
    "base/edge": {"base"},
    "base/manifest": {"base"},
    "coordinator-free-dht/core": {"base"},
    "coordinator-free-dht/edge": {"base", "base/edge", "coordinator-free-dht/core"},
    "worker/core": {"base", "base/manifest", "coordinator-free-dht/core"},
    "worker/edge": {"base", "base/edge", "base/manifest", "coordinator-free-dht/core", "coordinator-free-dht/edge",
                    "worker/core"},
    "worker/trainer": {"base", "base/edge", "worker/core", "worker/edge"},
    "operator/core": {"base", "base/manifest"},
    "operator/edge": {"base", "base/edge", "base/manifest", "operator/core"},
    "simulator": {"base", "coordinator-free-dht/core", "worker/core"},
    "cli": {"base", "base/edge", "base/manifest", "coordinator-free-dht/core", "coordinator-free-dht/edge", "worker/core",
            "worker/edge", "operator/core", "operator/edge", "simulator"},
}
# House -> its rooms, each with the rooms of the house that it may include. Files beside the rooms may include all of them.
ROOMS = {
    "worker/trainer": {
        "data": set(),
    },
    "coordinator-free-dht/core": {
        "wire": set(),
        "port": {"wire"},
        "clock": {"wire", "port"},
        "routing": {"wire", "port"},
        "store": {"wire", "port", "routing"},
        "relay": {"wire"},
        "node": {"wire", "port", "clock", "routing", "store"},
    },
    "worker/core": {
        "view": set(),
        "vector": {"view"},
        "shard": {"view"},
        "round": {"view", "vector", "shard"},
        "reduce": {"view", "vector", "round", "subnet"},
        "subnet": {"view", "vector", "round"},
        "power": {"vector"},
        "strategy": {"view", "vector", "power", "round", "subnet"},
        "port": {"view", "vector", "shard", "round", "power", "strategy", "subnet"},
        "averaging": {"view", "vector", "shard", "round", "power", "strategy", "port", "subnet"},
        "membership": {"view", "port", "averaging"},
        "state": {"view", "vector"},
        "link": {"subnet"},
        "peer": {"view", "vector", "shard", "round", "strategy", "port", "averaging", "membership"},
    },
    "worker/edge": {
        "metrics": set(),
        "link": set(),
        "state": {"metrics", "link"},
        "tensor": {"metrics"},
        "agent": {"metrics", "link", "state", "tensor"},
    },
    "operator/core": {
        "job": set(),
        "port": {"job"},
        "pods": {"job", "port"},
        "observe": {"job", "port", "pods"},
        "decide": {"job", "port", "observe"},
    },
    "operator/edge": {
        "reconcile": set(),
        "kube": {"reconcile"},
        "sign": {"kube"},
        "serve": {"kube", "sign"},
        "local": {"reconcile", "sign"},
    },
    "simulator": {
        "engine": set(),
        "host": {"engine"},
        "lock_step": {"engine"},
        "baselines": set(),
        "round": {"engine", "host"},
        "chaos": {"engine", "host", "round"},
        "descent": {"engine", "host"},
    },
    "cli": {
        "screen": set(),
        "report": {"screen"},
        "run": {"screen", "report"},
        "logs": {"screen", "run"},
    },
}
CORES = {"base/manifest", "coordinator-free-dht/core", "worker/core", "operator/core", "simulator"}
# The trainer is the user's side of the link: of worker/ it may use only the link's layout and client, and what a
# sub-network is.
TRAINER_MAY_USE = re.compile(r"worker/(core/link/(link_layout|safetensors)|core/subnet/(unit_schema|subnet)|edge/link/link_client)\.h$")

CORE_BANNED_INCLUDES = re.compile(
    r"<(grpc.*|google/protobuf.*|httplib\.h|openssl/.*|prometheus/.*|yaml-cpp/.*|asio.*|boost/.*|spdlog/.*|thread|mutex|"
    r"shared_mutex|condition_variable|future|chrono|random|iostream|fstream|filesystem|ctime|unistd\.h|sys/.*)>")
CORE_BANNED_CALLS = re.compile(
    r"\b(std::thread|std::mutex|std::chrono|std::random_device|std::mt19937|std::shuffle|getenv|gettimeofday|"
    r"clock_gettime|std::cout|std::cerr|rand\(\)|time\(nullptr\)|sleep_for)")
# The simulator's command runs seeds on threads; its worlds do not.
THREADS_ALLOWED = {"simulator/seeds.cc", "simulator/engine/seeds.h"}
BANNED_NAMES = re.compile(r"(^|/)(util|utils|common|helpers?|manager|misc)(\.|/|$)")
# In two pieces, so that no search for left-overs stops here.
WORDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
PATHS = re.compile(r"/home/[a-z]\w*/|/Users/\w+/")


def house_of(path):
    parts = path.split("/")
    for n in (2, 1):
        if "/".join(parts[:n]) in HOUSES:
            return "/".join(parts[:n])
    return None


def room_of(path):
    """The room of a house's file; None beside the rooms, and in a house without rooms."""
    house = house_of(path)
    rest = path[len(house) + 1:].split("/") if house else []
    return rest[0] if len(rest) > 1 and rest[0] in ROOMS.get(house, {}) else None


def forbidden(path, included):
    """Why `path` may not include `included`; None if it may."""
    house, target = house_of(path), house_of(included)
    if house is None or target is None:
        return None
    if target != house:
        return None if target in HOUSES[house] else f"{house} may not include {target}"
    room, other = room_of(path), room_of(included)
    if room is None or other in ({room} | ROOMS[house][room]):
        return None
    return f"{house}/{room} may not include {house}/{other or included.rpartition('/')[2]}"


def strip_code(text):
    """The text with comments, strings and preprocessor lines blanked, line structure kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    text = re.sub(r'R"(\w*)\((.|\n)*?\)\1"', blank, text)
    text = re.sub(r"//[^\n]*|/\*(.|\n)*?\*/|\"(\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(\\.|[^'\\\n])+'", blank, text)
    return re.sub(r"^[ \t]*#(.*\\\n)*.*$", blank, text, flags=re.M)


def functions(text):
    """(first line, length, head) of every function body: a brace at namespace or class scope that follows ')'."""
    code = strip_code(text)
    stack, start, line = [], 0, 1
    for i, c in enumerate(code):
        if c == "\n":
            line += 1
        elif c == ";" or c == ":" and code[max(0, i - 9):i].strip().endswith(("public", "private", "protected")):
            if not stack or stack[-1][0] != "body":
                start = i + 1
        elif c == "{":
            head = code[start:i].strip()
            scope = stack[-1][0] if stack else "namespace"
            if scope in ("body", "function"):
                kind = "body"
            elif re.search(r"\bnamespace\b", head):
                kind = "namespace"
            elif re.match(r"(template\s*<.*>\s*)?(class|struct|union|enum)\b", head, re.S):
                kind = "namespace"
            elif "(" in head and not re.search(r"=\s*$", head):
                kind = "function"
            else:
                kind = "body"
            first = line - head.count("\n") if kind == "function" else line
            stack.append((kind, first, head))
            start = i + 1
        elif c == "}":
            if stack:
                kind, first, head = stack.pop()
                if kind == "function":
                    yield first, line - first + 1, head
            start = i + 1


def check_includes(path, text):
    house = house_of(path)
    for number, line in enumerate(text.splitlines(), 1):
        if house in CORES and path not in THREADS_ALLOWED and CORE_BANNED_INCLUDES.search(line) and "#include" in line:
            yield number, f"a core may not include {line.split()[-1]}"
        match = re.match(r'\s*#include "([^"]+)"', line)
        if not match:
            continue
        if "/" not in match.group(1):
            yield number, "include from the repository root"
        reason = forbidden(path, match.group(1))
        if reason:
            yield number, reason
        elif house == "worker/trainer" and match.group(1).startswith("worker/") and house_of(match.group(1)) != house:
            if not TRAINER_MAY_USE.search(match.group(1)):
                yield number, "the trainer may use only the link's layout and client, and sub-networks"


def check_source(path, text):
    lines = text.splitlines()
    yield from check_includes(path, text)
    if len(lines) > MOST_FILE_LINES:
        yield 1, f"file has {len(lines)} lines, most is {MOST_FILE_LINES}"
    for first, length, head in functions(text):
        if length > MOST_FUNCTION_LINES:
            name = re.sub(r"\s+", " ", head)[:60]
            yield first, f"function has {length} lines, most is {MOST_FUNCTION_LINES}: {name}"
    if path.endswith(".h"):
        comment = 0
        while comment < len(lines) and lines[comment].startswith("//"):
            comment += 1
        if comment < 3:
            yield 1, "a header opens with a comment of 3 to 10 lines: purpose, owner, threads, bounds, source"
        if "#pragma once" not in text:
            yield 1, "a header has #pragma once"
    if house_of(path) in CORES and path not in THREADS_ALLOWED:
        code = strip_code(text)
        for number, line in enumerate(code.splitlines(), 1):
            match = CORE_BANNED_CALLS.search(line)
            if match:
                yield number, f"a core may not use {match.group(0)}"


def check_reach(sources):
    """sources: path -> text, of the whole tree."""
    tree = reach.Tree({path: (text, strip_code(text)) for path, text in sources.items()})
    for path in sources:
        for number, name, declared_in in tree.missing(path):
            yield path, number, f"uses {name} and does not include {declared_in}, where it is declared"


def check(root):
    sources, tests, texts, names = {}, {}, {}, []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if not path.is_file() or name.split("/")[0] in ("build", ".git", ".cache") or "__pycache__" in name:
            continue
        names.append(name)
        if BANNED_NAMES.search(name):
            yield name, 1, "no util, common, helpers, manager"
        if path.suffix not in (".h", ".cc", ".py", ".sh", ".md", ".yaml", ".proto", ".txt") and path.name != "dev":
            continue
        text = texts[name] = path.read_text(errors="replace")
        if name != "tests/tidy/tidy.py":
            for number, line in enumerate(text.splitlines(), 1):
                if WORDS.search(line) and path.suffix != ".md":
                    yield name, number, "finish it or say why not: " + WORDS.search(line).group(0)
                if PATHS.search(line):
                    yield name, number, "names a path of one machine"
        if name.startswith("tests/") and not name.startswith("tests/tidy/"):
            tests[name] = text
        if path.suffix in (".h", ".cc"):
            sources[name] = text
            for number, rule in check_source(name, text):
                yield name, number, rule
    for folder, files in collections.Counter(name.rpartition("/")[0] for name in sources).items():
        if files > MOST_FOLDER_FILES:
            yield folder, 1, f"folder has {files} C++ files, most is {MOST_FOLDER_FILES}"
    yield from check_reach(sources)
    tree = citations.Tree(names)
    for name, text in texts.items():
        for number, cited in tree.missing(name, text):
            yield name, number, f"cites {cited}, which is not there"
    if (root / rules.PAGE).is_file():
        yield from rules.check((root / rules.PAGE).read_text(), tests)
    inner = [f"{house}/{room}" for house, rooms in ROOMS.items() for room in rooms]
    for room in ("base", "coordinator-free-dht", "worker", "operator", "cli", "simulator", "python", "deploy", "tests",
                 "bench", *inner):
        if (root / room).is_dir() and not (root / room / "README.md").is_file():
            yield room, 1, "a room has a README.md: what for, what it may use"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    violations = list(check(root))
    for name, number, rule in violations:
        print(f"{name}:{number}: {rule}")
    print(f"tidy: {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
