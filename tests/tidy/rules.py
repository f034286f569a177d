"""Rules that a page of docs/ numbers, and the tests that cite them: none without a test, no citation of none.

A rule is a list item of docs/pod-lifecycle.md that begins with its number; a citation is `pod-lifecycle 3.1, 3.4` anywhere
in a file of tests/.
"""
import re

PAGE = "docs/pod-lifecycle.md"
RULE = re.compile(r"- (\d+\.\d+) ")
CITATION = re.compile(r"pod-lifecycle ((?:\d+\.\d+(?:, | and )?)+)")
NUMBER = re.compile(r"\d+\.\d+")


def rules(page):
    """(number of the line, rule) of each rule of the page."""
    for number, line in enumerate(page.splitlines(), 1):
        if match := RULE.match(line):
            yield number, match.group(1)


def citations(text):
    """(number of the line, rule) of each citation."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in CITATION.finditer(line):
            for rule in NUMBER.findall(match.group(1)):
                yield number, rule


def check(page, tests):
    """tests: path -> text. Yields (path, line, what is wrong)."""
    known, cited = list(rules(page)), set()
    names = [rule for _, rule in known]
    for path, text in tests.items():
        for number, rule in citations(text):
            cited.add(rule)
            if rule not in names:
                yield path, number, f"cites rule {rule}, which {PAGE} does not have"
    for number, rule in known:
        if rule not in cited:
            yield PAGE, number, f"no test cites rule {rule}"
        if names.count(rule) > 1:
            yield PAGE, number, f"rule {rule} is there twice"
