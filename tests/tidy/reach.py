"""Whether a file includes what it uses of the project, as far as text can tell.

A library's files are compiled eight at a time (CROWDSURF_UNITY): a name that a file has only through its neighbours in such
a batch compiles there, and not in the presets that compile each file by itself. So: a name that some file declares in a
namespace must be declared, or at least occur, in the file that uses it or in what that includes, at any remove. It knows
no types: a name that an included class has for something else passes. Of the standard library's headers it knows nothing.
"""
import re

INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.M)
MACRO = re.compile(r"^\s*#define\s+(\w+)", re.M)
ENUM = re.compile(r"\benum\b[^;{]*\{([^}]*)\}")
NAME = re.compile(r"(?<![\w~])([A-Za-z_]\w*)")
# gtest makes a class of such a name.
SUITE = re.compile(r"\b(TEST|INSTANTIATE_TEST_SUITE_P)\(\s*\w+")
# What stands before a name and makes it somebody's: an object, or a class or a foreign namespace.
OWNED = re.compile(r"(\.|->|(\w+)\s*::)\s*$")
PROJECT_NAMESPACES = {"crowdsurf", "controller", "dht", "simulator", "trainer", "worker"}
# A type before a name declares it, here or in a class of the file.
TYPE_BEFORE = re.compile(r"([\w>]+)[\s&*]*[\s&*]$")
NO_TYPES = {"return", "co_return", "case", "else", "throw", "new", "const", "constexpr", "static", "inline", "typename",
            "public", "private", "protected", "virtual", "explicit", "mutable", "friend", "do", "goto", "operator", "not",
            "and", "or"}
NO_NAMES = {"void", "bool", "char", "double", "float", "int", "auto", "delete", "default"}
LONGEST_BEFORE = 80  # characters that are looked at before a name


def statements(code):
    """What stands in a namespace before each `;` and each body, the bodies left out."""
    scopes, head = [], []  # scopes: whether each open brace is a namespace's
    for piece in re.split(r"([{};])", code):
        if piece not in ("{", "}", ";"):
            head.append(piece)
            continue
        text = "".join(head).strip()
        head = []
        if piece == "}":
            del scopes[-1:]
            continue
        is_namespace = piece == "{" and all(scopes) and re.match(r"(inline\s+)?namespace\b", text) is not None
        if scopes and all(scopes) and not is_namespace:
            yield text
        if piece == "{":
            scopes.append(is_namespace)


def after_template(text):
    """`text` without the `template <...>` that it begins with."""
    while re.match(r"template\s*<", text):
        depth = 0
        for end, character in enumerate(text):
            depth += {"<": 1, ">": -1}.get(character, 0)
            if character == ">" and depth == 0:
                break
        text = text[end + 1:].lstrip()
    return text


def declared_by(statement):
    """The name that a statement of a namespace declares; None for a member's definition and the like."""
    text = after_template(re.sub(r"\[\[.*?\]\]|\balignas\([^()]*\)", " ", statement).strip())
    if re.match(r"enum\b(?!\s+\w)", text):  # its enumerators are looked at where they are used
        return None
    match = re.match(r"(?:class|struct|union|enum(?:\s+class)?)\s+(\w+)\s*(?:final\s*)?(?::[^:].*)?$", text, re.S)
    match = match or re.match(r"using\s+(?:[\w:]*::)?(\w+)\s*(?:=.*)?$", text, re.S)
    if match:
        return match.group(1)
    # A function or a variable: the last name before its parameters, its value or its bounds, after a type.
    head = re.split(r"[(=\[]", text, maxsplit=1)[0].rstrip()
    match = re.search(r"(?<![:\w])(\w+)$", head)
    if match and head != match.group(1) and match.group(1) not in NO_NAMES and not head.startswith("using"):
        return match.group(1)
    return None


class Tree:
    """sources: path -> (text, the text without comments, strings and preprocessor lines)."""

    def __init__(self, sources):
        self.code = {path: SUITE.sub(" ", code) for path, (_, code) in sources.items()}
        self.includes = {path: [i for i in INCLUDE.findall(text) if i in sources] for path, (text, _) in sources.items()}
        self.words = {path: set(NAME.findall(code)) for path, code in self.code.items()}
        self.declares = {path: set(MACRO.findall(text)) | {declared_by(s) for s in statements(code)} - {None}
                         for path, (text, code) in sources.items()}
        self.declared_in = {}
        for path, names in self.declares.items():
            for name in names:
                self.declared_in.setdefault(name, []).append(path)

    def reach(self, path):
        seen, left = {path}, [path]
        while left:
            for include in self.includes[left.pop()]:
                if include not in seen:
                    seen.add(include)
                    left.append(include)
        return seen - {path}

    def lender(self, name, path):
        """Who could lend `path` the name in a batch: a header, or a file of its folder; None if nobody."""
        folder = path.rpartition("/")[0]
        able = [by for by in self.declared_in[name] if by.endswith(".h") or by.rpartition("/")[0] == folder]
        return min(able, key=lambda by: (not by.endswith(".h"), by), default=None)

    def missing(self, path):
        """(line, name, a file that declares it) of each name that `path` uses and has from nowhere."""
        code = self.code[path]
        wanted = {word for word in self.words[path] - self.declares[path] if word in self.declared_in}
        for reached in self.reach(path):
            wanted -= self.words[reached] | self.declares[reached]
        wanted -= {word for enum in ENUM.findall(code) for word in NAME.findall(enum)}
        uses = {}
        for match in NAME.finditer(code):
            name = match.group(1)
            if name not in wanted:
                continue
            before = code[max(0, match.start() - LONGEST_BEFORE):match.start()]
            declared = TYPE_BEFORE.search(before)
            if declared and declared.group(1) not in NO_TYPES:
                wanted.discard(name)
                uses.pop(name, None)
                continue
            owner = OWNED.search(before)
            if owner is None or owner.group(2) in PROJECT_NAMESPACES:
                uses.setdefault(name, match.start())
        for name, at in uses.items():
            lender = self.lender(name, path)
            if lender:
                yield code.count("\n", 0, at) + 1, name, lender
