#!/usr/bin/env python3
"""Holds the generated dashboards to the rules of Grafana's dashboard linter, and to docs/metrics.md.

Usage: check.py [BOARD.json ...]   prints one line a violation and exits 1 if there is any. Needs nothing but Python.
Departures from the linter: the Job board's queries match namespace and training_job in place of job and instance, because a
user looks for a training job and not for a scrape; both boards have their own pair of such variables, which every query matches.
"""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
UNITS = {"short", "none", "s", "bytes", "Bps", "ops", "reqps", "percentunit"}
WINDOWS = {"$__rate_interval", "$__range"}
METRIC = re.compile(r"\b([a-z_]+)\{([^}]*)\}")


def declared():
    """Names that Prometheus will know: those of docs/metrics.md with the series that a histogram makes, and `up`."""
    names = {"up"}
    page = (HERE.parents[1] / "docs/metrics.md").read_text()
    for name, kind in re.findall(r"^\| `(\w+)` \| (\w+)", page, re.M):
        names.update({name + s for s in ("_bucket", "_sum", "_count")} if kind == "histogram" else {name})
    return names


def queries_of(board):
    for panel in board.get("panels", []):
        for target in panel.get("targets", []):
            yield panel.get("title", "?"), target.get("expr", "")
    for annotation in (board.get("annotations") or {}).get("list", []):
        yield "annotation " + annotation["name"], annotation.get("expr", "")


def check_query(where, expr, matchers, names):
    if not expr:
        yield f"{where}: an empty query"
        return
    if any(expr.count(a) != expr.count(b) for a, b in ("()", "[]", "{}")):
        yield f"{where}: brackets do not match: {expr}"
    selectors = METRIC.findall(expr)
    if not selectors:
        yield f"{where}: no selector: {expr}"
    for name, labels in selectors:
        if name not in names:
            yield f"{where}: {name} is not in docs/metrics.md"
        for matcher in matchers:
            if matcher not in labels:
                yield f"{where}: {name} lacks {matcher}"
    for window in re.findall(r"\[([^\]]*)\]", expr):
        if window not in WINDOWS:
            yield f"{where}: the window {window} is not $__rate_interval"
    for name in re.findall(r"\b(\w+_(?:total|bucket))\{", expr):
        if not re.search(r"\b(rate|increase)\(" + name + r"\{", expr):
            yield f"{where}: {name} counts up for ever: use rate or increase"


def check_panel(panel):
    where = panel.get("title") or f"panel {panel.get('id')}"
    for field in ("title", "description"):
        if not panel.get(field):
            yield f"{where}: no {field}"
    if (panel.get("datasource") or {}).get("uid") != "${datasource}":
        yield f"{where}: not on the datasource variable"
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
    if unit not in UNITS:
        yield f"{where}: the unit {unit} is none of ours"
    if not panel.get("targets"):
        yield f"{where}: no query"
    for target in panel.get("targets", []):
        if (target.get("datasource") or {}).get("uid") != "${datasource}":
            yield f"{where}: a query that is not on the datasource variable"
        if not target.get("legendFormat"):
            yield f"{where}: a query without a legend"


def check_variables(board):
    variables = (board.get("templating") or {}).get("list", [])
    sources = [v for v in variables if v["type"] == "datasource"]
    if [v["name"] for v in sources] != ["datasource"] or sources[0].get("label") != "Data Source":
        yield "exactly one datasource variable, named datasource, labelled Data Source"
    texts = [expr for _, expr in queries_of(board)] + [str(v.get("query")) for v in variables]
    for variable in variables:
        if variable["type"] != "query":
            continue
        name = variable["name"]
        if not variable.get("label"):
            yield f"variable {name}: no label"
        if variable.get("refresh") != 2:
            yield f"variable {name}: is not read again when the time range changes"
        if (variable.get("datasource") or {}).get("uid") != "${datasource}":
            yield f"variable {name}: not on the datasource variable"
        if not any(re.search(r"\$" + name + r"\b", text) for text in texts):
            yield f"variable {name}: nothing uses it"
    known = {v["name"] for v in variables} | {"__rate_interval", "__range"}
    for text in texts:
        for name in re.findall(r"\$\{?(\w+)", text):
            if name not in known:
                yield f"${name} is no variable: {text}"


def check_layout(board):
    taken, ids, titles = {}, set(), set()
    for panel in board["panels"]:
        if panel["id"] in ids:
            yield f"{panel['title']}: id {panel['id']} twice"
        ids.add(panel["id"])
        if (panel["type"], panel["title"]) in titles:
            yield f"{panel['title']}: this title twice"
        titles.add((panel["type"], panel["title"]))
        grid = panel["gridPos"]
        if grid["x"] + grid["w"] > 24:
            yield f"{panel['title']}: wider than the board"
        for x in range(grid["x"], grid["x"] + grid["w"]):
            for y in range(grid["y"], grid["y"] + grid["h"]):
                if (x, y) in taken:
                    yield f"{panel['title']}: lies over {taken[x, y]}"
                    return
                taken[x, y] = panel["title"]


def check(board, names):
    """Violations of one board, as sentences."""
    if board.get("editable") is not False:
        yield "a board made from code is not editable"
    for field in ("title", "uid", "description"):
        if not board.get(field):
            yield f"no {field}"
    yield from check_variables(board)
    yield from check_layout(board)
    queried = {v["name"] for v in (board.get("templating") or {}).get("list", []) if v["type"] == "query"}
    matchers = ['job=~"$job"', 'instance=~"$instance"'] if "instance" in queried else [
        'namespace="$namespace"', 'training_job="$training_job"']
    for panel in board["panels"]:
        if panel["type"] != "row":
            yield from check_panel(panel)
    for where, expr in queries_of(board):
        yield from check_query(where, expr, matchers, names)


def main():
    paths = [pathlib.Path(p) for p in sys.argv[1:]] or sorted(HERE.glob("*.json"))
    names, bad, panels = declared(), 0, 0
    for path in paths:
        board = json.loads(path.read_text())
        panels += sum(p["type"] != "row" for p in board["panels"])
        for violation in check(board, names):
            print(f"{path.name}: {violation}")
            bad += 1
    print(f"dashboards: {len(paths)} boards, {panels} panels, {bad} violations")
    return 1 if bad or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
