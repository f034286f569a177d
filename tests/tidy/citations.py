"""Files and folders that comments and pages cite: each is in the repository.

A citation is a path that begins with a folder of the repository's root (`worker/core/round`), a name that ends like a
source or a page (`round.h`, `edge/relay.h`, `docs/round.md`), or the target of a link in a page. The last parts of a
path are enough. Code is not read: compilers and tests find a wrong path there.
"""
import pathlib
import posixpath
import re

PAGE = ".md"
HASH_COMMENTS = (".py", ".sh", ".yaml", ".txt")
SLASH_COMMENTS = (".h", ".cc", ".proto")
# What stands beside it would make it a part of an address, an option, a pattern or a system's header.
PATH = re.compile(r"(?<![\w./<>$~*{}@:-])((?:[\w-]+(?:\.[\w-]+)*/)*[\w-]+(?:\.[\w-]+)*/?)(?![\w*{}<$])")
SOURCE = re.compile(r"\.(h|cc|md|proto|py)$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
ADDRESS = re.compile(r"[a-z]+://[^\s)]*")
PLACEHOLDER = re.compile(r"(^|/)(NAME|ROOM|BOARD)\b")
GENERATED = re.compile(r"\.pb\.(h|cc)$")
# Planted faults, and a room whose comments are rewritten with its code.
PASSED_OVER = ("tests/tidy/",)


def comments(path, text):
    """(number of the line, words of its comment) of each line that has one; of a page, each line."""
    suffix, in_words = pathlib.PurePosixPath(path).suffix, False
    for number, line in enumerate(text.splitlines(), 1):
        match = None
        if suffix in SLASH_COMMENTS:
            match = re.search(r"(?<!:)//(.*)", line)
        elif suffix in HASH_COMMENTS:
            match = re.search(r"(?:^|\s)#(?!!)(.*)", line)
        if suffix == ".py":
            was, in_words = in_words, in_words != (line.count('"""') % 2 == 1)
            if was or in_words or line.count('"""') == 2:
                yield number, line
                continue
        if suffix == PAGE:
            yield number, line
        elif match:
            yield number, match.group(1)


class Tree:
    """The files of the repository, all of them, and the folders they are in."""

    def __init__(self, names):
        self.known, self.roots = set(names), {name.split("/")[0] for name in names if "/" in name}
        for name in names:
            parts = name.split("/")
            self.known.update("/".join(parts[:n]) for n in range(1, len(parts)))
        self.ends = {"/".join(name.split("/")[n:]) for name in self.known for n in range(name.count("/") + 1)}

    def missing(self, path, text):
        """(number of the line, what it cites) of each citation of what is not there."""
        if path.startswith(PASSED_OVER):
            return
        for number, line in comments(path, text):
            if path.endswith(PAGE):
                for target in (link.split("#")[0] for link in LINK.findall(line)):
                    if target and "://" not in target and not self.beside(path, target):
                        yield number, target
            for cited in PATH.findall(LINK.sub("]", ADDRESS.sub(" ", line))):
                cited = cited.rstrip("/")
                rooted = "/" in cited and cited.split("/")[0] in self.roots
                if not (rooted or SOURCE.search(cited)) or GENERATED.search(cited) or PLACEHOLDER.search(cited):
                    continue
                if cited not in self.ends and not self.beside(path, cited):
                    yield number, cited

    def beside(self, path, cited):
        return posixpath.normpath(posixpath.join(posixpath.dirname(path), cited)) in self.known
