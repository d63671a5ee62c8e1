"""One figure of the bench: what was measured, beside what, and whether it holds what the table of design 13 asks for."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from semel.core.values import Frozen


class Bound(Frozen, frozen=True, kw_only=True):
    """A line of the table. `least` says that more is better; where it is false, less is."""

    key: str
    what: str
    unit: str
    must: float
    goal: float
    least: bool = False


TABLE = {
    bound.key: bound
    for bound in (
        Bound(key="S", what="one run", unit="x floor", must=2.5, goal=1.5),
        Bound(key="cpu", what="CPU of a turn", unit="ms", must=0.6, goal=0.35),
        Bound(key="syncs", what="syncs of a turn", unit="", must=2, goal=2),
        Bound(key="C", what="runs at once", unit="of the floor's turns/s", must=0.6, goal=0.9, least=True),
        Bound(key="G", what="a late turn against an early one", unit="x", must=1.1, goal=1.05),
        Bound(key="R", what="open, verify and fold", unit="x floor", must=2, goal=1.2),
        Bound(key="Sz", what="bytes of a turn", unit="x content", must=1.8, goal=1.4),
    )
}


class Figure(Frozen, frozen=True, kw_only=True):
    """A figure over all rounds: `rounds` has one value each, in order, and the median counts. `facts` are what it is made of."""

    key: str
    rounds: tuple[float, ...]
    facts: dict[str, float]

    @property
    def median(self) -> float:
        """The value that counts."""
        return statistics.median(self.rounds)

    @property
    def verdict(self) -> Literal["goal", "ok", "missed"]:
        """Whether the goal is reached, or at least the must holds."""
        bound = TABLE[self.key]
        reached = [self.median >= asked if bound.least else self.median <= asked for asked in (bound.goal, bound.must)]
        return "goal" if reached[0] else "ok" if reached[1] else "missed"

    def as_json(self) -> dict[str, object]:
        """One object for `--json`."""
        bound = TABLE[self.key]
        return {
            "figure": self.key,
            "what": bound.what,
            "unit": bound.unit,
            "median": round(self.median, 4),
            "least": round(min(self.rounds), 4),
            "most": round(max(self.rounds), 4),
            "rounds": len(self.rounds),
            "must": bound.must,
            "goal": bound.goal,
            "verdict": self.verdict,
            "facts": {name: round(value, 4) for name, value in self.facts.items()},
        }

    def as_row(self) -> Sequence[str]:
        """The cells of a table for people, in the order of COLUMNS."""
        bound = TABLE[self.key]
        sign = "at least" if bound.least else "at most"
        spread = f"{min(self.rounds):.2f} to {max(self.rounds):.2f}"
        facts = ", ".join(f"{name.replace('_', ' ')} {value:,.2f}".rstrip("0").rstrip(".") for name, value in self.facts.items())
        figure = f"{self.median:.2f} {bound.unit}".rstrip()
        return (self.key, bound.what, figure, spread, f"{sign} {bound.must:g}", f"{bound.goal:g}", self.verdict, facts)


COLUMNS = ("", "what", "median", "rounds", "must", "goal", "", "made of")


def figure(key: str, rounds: Sequence[float], facts: Mapping[str, float]) -> Figure:
    """A figure from the values of its rounds."""
    return Figure(key=key, rounds=tuple(rounds), facts=dict(facts))
