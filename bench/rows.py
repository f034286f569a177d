"""The rows of a bench: each has a figure, what it must be, and whether the machine was quiet enough to judge it."""
import dataclasses
import json
import statistics

QUIET = .05   # share of all processors that programs outside of the bench may use while a row is measured
APART = .1    # share of the turns in which the processors may be further apart than their kernel says (cores.py)


@dataclasses.dataclass(frozen=True)
class Wanted:
    must: float
    aim: float
    way: str = "above"   # which way is good

    def fine(self, figure):
        return figure <= self.must if self.way == "below" else figure >= self.must


@dataclasses.dataclass
class Row:
    figure: float
    each: list
    foreign: float        # share of all processors; nan: nobody has looked
    wanted: Wanted | None
    apart: int = 0        # turns in which the processors were

    @property
    def why_not_judged(self):
        if not self.foreign < QUIET:
            return f"others used {self.foreign:.0%} of the processors"
        if self.apart > APART * len(self.each):
            return f"the processors were apart in {self.apart} of {len(self.each)} turns"
        return None

    @property
    def verdict(self):
        if self.wanted is None:
            return "told"
        if self.why_not_judged:
            return "not judged"
        return "ok" if self.wanted.fine(self.figure) else "MISSED"


class Rows:
    """`wanted`: name of a row -> Wanted; other rows are told and not judged. `quiet`: nothing is printed before the end."""

    def __init__(self, wanted, quiet):
        self.wanted, self.quiet, self.rows = wanted, quiet, {}

    def give(self, name, each, foreign, figure=None, apart=0):
        """`each`: the figure of every cycle. The row has their median, where `figure` is not given."""
        figure = statistics.median(each) if figure is None else figure
        row = self.rows[name] = Row(figure, list(each), foreign, self.wanted.get(name), apart)
        if self.quiet:
            return
        words = f"{name:32} {figure:.4g}"
        if row.wanted is not None:
            words += f"   must be {row.wanted.way} {row.wanted.must}, aim {row.wanted.aim}; {row.verdict}"
            if row.verdict == "not judged":
                words += f": {row.why_not_judged}"
        print(words, flush=True)

    def missed(self):
        return [name for name, row in self.rows.items() if row.verdict == "MISSED"]

    def json(self):
        return json.dumps({name: {"figure": row.figure, "each": row.each, "foreign_cpu": row.foreign, "apart": row.apart,
                                  "verdict": row.verdict}
                           | (dataclasses.asdict(row.wanted) if row.wanted else {}) for name, row in self.rows.items()}, indent=1)
