#!/usr/bin/env python3
"""Every metric is declared once, with a sentence of help; docs/metrics.md lists exactly those, and tests ask for no other.
A counter is there from the start: at zero, with each value of its label.

Usage: declarations.py [--write]   reads AddCounter/AddGauge/AddHistogram calls of the sources; checks, or writes, the page.
The names that dashboards use are checked by tests/panels against a running Prometheus.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/metrics.md"
ROOMS = ("base", "coordinator-free-dht", "worker", "operator", "cli")
BEGIN, END = "<!-- declared: begin -->", "<!-- declared: end -->"
CALL = re.compile(r"\bAdd(Counter|Gauge|Histogram)\s*\(")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
# Variables that stand for labels, as the sources name them.
LABELS = {"job.labels": ["namespace", "training_job"]}
# In tests and benches; a series that is not there reads as 0, which is what many of them hope for.
READERS = ("tests", "bench")
LOGGERS = ("tests/frameworks/",)   # names in the log of a library's Trainer are no series
ASKED = re.compile(r'["\'](crowdsurf_\w*[a-z0-9])(?=["\' {])')
# Counters whose labels the API server's answers make: nobody can list their series beforehand.
OPEN = {"rest_client_requests_total", "rest_client_request_retries_total"}
COUNTED = re.compile(r"\s*\.\s*Add\(")
UNITS = {"seconds": "s", "bytes": "bytes", "ratio": "0 to 1"}


def arguments(text, at):
    """The top-level arguments of the call whose parenthesis opens before `at`, and where it ends."""
    depth, start, out, i = 1, at, [], at
    while depth:
        c = text[i]
        if c == '"':
            i = LITERAL.match(text, i).end()
            continue
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and c == ","):
            out.append(text[start:i].strip())
            start = i + 1
        i += 1
    return out, i


def labels_of(argument, text):
    if argument in LABELS:
        return LABELS[argument]
    added = re.match(r'With\((.+?), "(\w+)"', argument)
    if added:
        return LABELS[added.group(1)] + [added.group(2)]
    if re.fullmatch(r"k?\w+", argument):
        constant = re.search(r"MetricLabels " + argument + r" = (\{.*?\});", text)
        if constant is None:
            return None
        argument = constant.group(1)
    return re.findall(r'\{\s*"(\w+)"\s*,', argument)


def declarations(root=ROOT):
    """(name, kind, help, labels, file) of every call; violations as strings."""
    found, violations = [], []
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in (".h", ".cc") or name in ("base/metrics.h", "base/metrics.cc"):
                continue
            text = re.sub(r"//[^\n]*", "", path.read_text())
            for match in CALL.finditer(text):
                args, end = arguments(text, match.end())
                where = f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
                literal = ["".join(LITERAL.findall(a)) if a.startswith('"') else None for a in args[:2]]
                if None in literal:
                    violations.append(f"{where}: name and help of a metric are literals, so that they can be found")
                    continue
                if match.group(1) == "Counter" and COUNTED.match(text, end) and literal[0] not in OPEN:
                    violations.append(f"{where}: {literal[0]} is not there until it counts: keep a handle from the start")
                last = args[3:] if match.group(1) == "Histogram" else args[2:]
                labels = labels_of(last[0], text) if last else []
                if labels is None:
                    violations.append(f"{where}: the labels of {literal[0]} cannot be read")
                    continue
                found.append((literal[0], match.group(1).lower(), literal[1], labels, name))
    return found, violations


def judge(found):
    places = {}
    for name, kind, words, _, path in found:
        places.setdefault(name, []).append(path)
        if not words.endswith("."):
            yield f"{path}: the help of {name} is no sentence: {words!r}"
        if (kind == "counter") != name.endswith("_total"):
            yield f"{path}: {name}: counters, and only they, end in _total"
        if kind == "histogram" and not name.endswith(("_seconds", "_bytes")):
            yield f"{path}: {name}: a histogram's name ends in its unit"
    for name, paths in places.items():
        if len(paths) > 1:
            yield f"{name} is declared {len(paths)} times: {', '.join(paths)}"


def asked_in_vain(root, names):
    """Names that tests ask for and nobody declares, but those a test adds itself or calls no_such."""
    for room in READERS:
        for path in sorted((root / room).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix not in (".h", ".cc", ".py") or name.startswith(LOGGERS + ("tests/metrics/",)):
                continue
            text = path.read_text()
            own = CALL.search(text) is not None
            for match in ASKED.finditer(text):
                stem = re.sub(r"_(bucket|sum|count)$", "", match.group(1))
                if not own and "no_such" not in stem and not {stem, match.group(1)} & names:
                    line = text.count("\n", 0, match.start()) + 1
                    yield f"{name}:{line}: asks for {match.group(1)}, which nobody declares"


def unit(name):
    stem = name.removesuffix("_total")
    return next((u for suffix, u in UNITS.items() if stem.endswith("_" + suffix)), "")


def program(path):
    if path.startswith("base/"):
        return "both"
    return "operator" if path.startswith(("operator/", "cli/")) else "agent"


def table(found):
    lines = []
    for head, who in (("Every program", "both"), ("The operator (and `crowdsurf run`)", "operator"), ("An agent", "agent")):
        lines += [f"### {head}", "| name | type | unit | labels | meaning |", "|---|---|---|---|---|"]
        for name, kind, words, labels, path in sorted(found):
            if program(path) == who:
                lines.append(f"| `{name}` | {kind} | {unit(name)} | {', '.join(labels)} | {words} |")
        lines.append("")
    return "\n".join(lines)


def main():
    found, violations = declarations()
    violations += judge(found)
    violations += asked_in_vain(ROOT, {name for name, *_ in found})
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    wanted = f"{before}{BEGIN}\n{table(found)}{END}{after}"
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(wanted)
    elif wanted != text:
        documented = set(re.findall(r"^\| `(\w+)`", text, re.M))
        declared = {name for name, *_ in found}
        violations.append(f"docs/metrics.md is not what the sources declare (missing: {sorted(declared - documented)}; "
                          f"gone: {sorted(documented - declared)}): {pathlib.Path(__file__).name} --write")
    for violation in violations:
        print(violation)
    print(f"metrics: {len({name for name, *_ in found})} declared, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
