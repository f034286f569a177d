"""Finds the places of a C++ file where a small fault can be planted. Reads text only: no compiler, no file.

The sources are formatted by clang-format, so spaces tell `a * b` from `T* p` and `a < b` from `Vec<T>`.
"""
import bisect
import dataclasses
import hashlib
import re

KINDS = ("comparison", "arithmetic", "constant", "statement", "condition")

COMPARISONS = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "|": "&", "&": "|", "^": "&", "<<": ">>", ">>": "<<",
              "+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "^=": "&="}
CONNECTIVES = {"&&": "||", "||": "&&"}

OPERATOR = re.compile(r"(?<=\s)(<=|>=|==|!=|<<|>>|&&|\|\||[-+*/|&^]=|[-+*/%|&^<>])(?=\s)")
STEP = re.compile(r"\+\+|--")
NUMBER = re.compile(r"(?<![\w.'])(?:0[xX][0-9a-fA-F']+|\d[\d']*(?:\.\d*)?(?:[eE][-+]?\d+)?)(?:[uU]?[lL]{0,2}|[fF])(?![\w.'])")
BOOL = re.compile(r"\b(?:true|false)\b")
# Comments, strings and characters; a quote between two digits is none.
HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
# Calls whose arguments are no part of what the program decides, or which change nothing but its speed.
SKIPPED_CALLS = re.compile(
    r"\b(?:CHECK\w*|static_assert|\w*[lL]og\w*(?:\.|->)(?:Debug|Info|Warning|Error)|Add(?:Counter|Gauge|Histogram)"
    r"|[\w.>\-]*\b(?:reserve|shrink_to_fit))\s*\(")
CONTROL = re.compile(r"\s*(?:if(?:\s+constexpr)?|for|while|switch)\s*(?=\()")
LABEL = re.compile(r"\s*(?:else\b|do\b|case\b[^;{}?]*?(?<!:):(?!:)|default\s*:(?!:))")
TYPE_HEAD = re.compile(r"^\s*(?:\[\[[^\]]*\]\]\s*)?(?:typedef\s+)?(class|struct|union|enum)\b")
ASSIGNMENT = re.compile(r"(?<![=<>!])(?:[-+*/%|&^]|<<|>>)?=(?!=)")


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    start: int  # the characters [start, end) of the file become `after`
    end: int
    after: str
    kind: str
    line: int
    before: str
    id: str  # the same as long as the file stays the same

    def plant(self, text):
        return text[:self.start] + self.after + text[self.end:]


def find(file, text):
    """Every mutant of a file's text, in the order of the text."""
    return _Finder(file, text).find()


def _blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def _masked(text):
    """The text with comments, preprocessor lines and the insides of literals as blanks: every offset stays."""
    def hide(match):
        found = match.group(0)
        if found.startswith("/"):
            return _blank(match)
        return found[0] + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1]
    return PREPROCESSOR.sub(_blank, HIDDEN.sub(hide, text))


def _closing(text, opening):
    """The offset of the bracket that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(text)):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
            if depth == 0:
                return at
    return len(text) - 1


class _Finder:
    def __init__(self, file, text):
        self.file, self.text = file, text
        self.masked = _masked(text)
        self.digest = hashlib.sha256(text.encode()).hexdigest()
        self.newlines = [at for at, character in enumerate(text) if character == "\n"]
        self.skipped = self._skipped()
        self.in_code = bytearray(len(text))      # inside a function's body
        self.in_value = bytearray(len(text))     # inside the initial value of a constant or field
        self.statements = []                     # [start, end) in bodies, the semicolon included
        self._read_scopes()
        self.found = []

    def _skipped(self):
        skipped = bytearray(len(self.text))
        for match in SKIPPED_CALLS.finditer(self.masked):
            end = _closing(self.masked, match.end() - 1)
            skipped[match.start():end + 1] = b"\1" * (end + 1 - match.start())
        return skipped

    def _scope_of(self, head):
        """What the brace after `head` opens outside of functions."""
        head = re.sub(r"template\s*<(?:[^<>]|<[^<>]*>)*>", " ", head)
        if re.search(r"\bnamespace\b|\bextern\b", head):
            return "namespace"
        match = TYPE_HEAD.match(head)
        if match:
            return "enum" if match.group(1) == "enum" else "type"
        return "code"

    def _read_scopes(self):
        scopes = [("namespace", 0)]  # (kind, where its present statement began); "(" for a parenthesis
        text = self.masked
        value_from = None
        for at, character in enumerate(text):
            kind, begun = scopes[-1]
            code = any(scope == "code" for scope, _ in scopes)
            self.in_code[at] = code
            if not code and kind in ("namespace", "type"):
                if character == "=" and text[at - 1] == " " and text[at + 1] in " \n":
                    value_from = at
                elif character in ";{}":
                    value_from = None
            if value_from is not None and not code:
                self.in_value[at] = 1
            if character == "(":
                scopes.append(("(", at))
            elif character == ")" and kind == "(":
                scopes.pop()
            elif character == "{":
                if code:
                    scopes.append(("code" if self._opens_block(at) else "value", at + 1))
                else:
                    scopes.append((self._scope_of(text[begun:at]), at + 1))
            elif character == "}" and len(scopes) > 1:
                scopes.pop()
                if kind != "value" and scopes[-1][0] not in ("(", "value"):
                    scopes[-1] = (scopes[-1][0], at + 1)
            elif character == ";" and kind != "(":
                if code and kind == "code":
                    self.statements.append((begun, at + 1))
                scopes[-1] = (kind, at + 1)

    def _opens_block(self, at):
        before = self.masked[:at].rstrip()
        return before.endswith((")", ";", "{", "}", "]", ":")) or re.search(
            r"(?:\b(?:else|do|try|const|override|noexcept|mutable)|->\s*[\w:<>&*, ]+)$", before[-80:]) is not None

    def _add(self, start, end, after, kind):
        if any(self.skipped[start:end]) and (kind != "statement" or self.skipped[start]):
            return
        before = " ".join(self.text[start:end].split())
        line = bisect.bisect_left(self.newlines, start) + 1
        name = f"{self.file} {self.digest} {start} {end} {after}"
        self.found.append(Mutant(self.file, start, end, after, kind, line, before,
                                 hashlib.sha256(name.encode()).hexdigest()[:16]))

    def find(self):
        self._operators()
        self._constants()
        self._statements()
        self._conditions()
        return sorted(self.found, key=lambda mutant: (mutant.start, mutant.end, mutant.after))

    def _operators(self):
        for match in OPERATOR.finditer(self.masked):
            start, end = match.span(1)
            sign = match.group(1)
            if not self.in_code[start]:
                continue
            if sign in COMPARISONS:
                for other in COMPARISONS[sign]:
                    self._add(start, end, other, "comparison")
            elif sign in CONNECTIVES:
                self._add(start, end, CONNECTIVES[sign], "condition")
            elif not re.search(r'"\s*$', self.masked[:start][-200:]) and not self.masked[end:].lstrip().startswith('"'):
                self._add(start, end, ARITHMETIC[sign], "arithmetic")  # text is added, never subtracted
        for match in STEP.finditer(self.masked):
            if self.in_code[match.start()] and not self._in_loop_header(match.start()):
                self._add(match.start(), match.end(), "--" if match.group(0) == "++" else "++", "arithmetic")

    def _in_loop_header(self, at):
        """A loop that counts the wrong way only hangs."""
        depth = 0
        for back in range(at - 1, max(0, at - 400), -1):
            if self.masked[back] in ")]}":
                depth += 1
            elif self.masked[back] in "([{":
                if depth == 0:
                    return re.search(r"\bfor\s*$", self.masked[max(0, back - 8):back]) is not None
                depth -= 1
        return False

    def _constants(self):
        for match in NUMBER.finditer(self.masked):
            start, end = match.span()
            in_angles = self.masked[start - 1] == "<" or self.masked[end:end + 1] == ">"
            pure = re.search(r"\)[\w\s]*=\s*$", self.masked[max(0, start - 60):start]) is not None
            if in_angles or not (self.in_code[start] or self.in_value[start] and not pure):
                continue
            for other in numbers_instead_of(match.group(0)):
                self._add(start, end, other, "constant")
        for match in BOOL.finditer(self.masked):
            if self.in_code[match.start()] or self.in_value[match.start()]:
                self._add(match.start(), match.end(), "false" if match.group(0) == "true" else "true", "constant")

    def _statements(self):
        for start, end in self.statements:
            start = self._after_headers(start, end)
            text = self.masked[start:end - 1]
            start += len(text) - len(text.lstrip())
            if is_expression(text.strip()):
                self._add(start, end, "{}", "statement")

    def _after_headers(self, start, end):
        while True:
            if match := LABEL.match(self.masked, start, end):
                start = match.end()
            elif match := CONTROL.match(self.masked, start, end):
                start = _closing(self.masked, match.end()) + 1
            else:
                return start

    def _conditions(self):
        for match in re.finditer(r"\b(?:if|while)\s*\(", self.masked):
            if not self.in_code[match.start()]:
                continue
            start, end = match.end(), _closing(self.masked, match.end() - 1)
            if ";" in self.masked[start:end]:
                start = self.masked.rindex(";", start, end) + 1
                start += len(self.masked[start:end]) - len(self.masked[start:end].lstrip())
            condition = self.masked[start:end]
            signs = OPERATOR.findall(condition)
            alone = len(signs) == 1 and signs[0] in COMPARISONS  # then a comparison mutant is the same
            if alone or ASSIGNMENT.search(condition) or "{" in condition:
                continue
            self._add(start, end, f"!({self.text[start:end]})", "condition")


def is_expression(statement):
    """Is this statement a call, an assignment, a step or a jump, so that it compiles without it? No declaration is."""
    if statement in ("break", "continue", "return"):
        return True
    if re.match(r"(?:\+\+|--)", statement):
        return True
    head = re.split(r"[({]|(?<![=<>!])(?:[-+*/%|&^]|<<|>>)?=(?!=)", statement, maxsplit=1)[0]
    if head == statement and not statement.endswith(("++", "--")):
        return False
    if re.match(r"\s*(?:return|using|typedef|delete|throw|goto|co_\w+|static|const|constexpr|auto|template)\b", head):
        return False
    # `Type name`, `Type& name`, `Type<A> name`, `auto [a, b]`: two words are a declaration.
    return bool(re.match(r"[*(]?[\w:]", statement)) and not re.search(r"[\w>&*\]]\s+[\w&*\[(]", head.strip())


def numbers_instead_of(literal):
    """The neighbours of a small number, half and twice a large one: an off-by-one of a time-out is no fault."""
    match = re.fullmatch(r"(0[xX][0-9a-fA-F']+|[\d'.]+(?:[eE][-+]?\d+)?)(\w*)", literal)
    body, suffix = match.group(1).replace("'", ""), match.group(2)
    hexadecimal = body[:2].lower() == "0x"
    if not hexadecimal and (any(sign in body for sign in ".eE") or suffix.lower() == "f"):
        value = float(body)
        others = (1.0,) if value == 0 else (value * 2, value / 2)
        return tuple(repr(other) + suffix for other in others)
    value = int(body, 0) if hexadecimal or not body.startswith("0") else int(body, 8)
    if value == 0:
        others = (1,)
    elif value < 16:
        others = (value + 1, value - 1)
    else:
        others = (value * 2, value // 2)
    return tuple((hex(other) if hexadecimal else str(other)) + suffix for other in others)
