"""Rules for calls: allow, deny or ask, by the name of the tool, its effect and the arguments (design 6, CON4). Pure.

Within a list the first rule that matches decides. The operator's list comes first, so that no agent can loosen it; then the
agent's; then what a tool says of itself, which an `allow` of the agent's own list does not silence. What nothing decides is
allowed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import json

from semel.core.condition import BadCondition, CannotTell, Node, arguments_of, holds, like, parse_condition
from semel.core.outcomes import describe
from semel.core.policy import Allow, Ask, Deny, Ruling, Undecidable, Unfit
from semel.core.turn_view import StopCondition
from semel.core.values import JSON, Effect, ToolSpec, clean_json, printable
from semel.errors import BadAgent

Verdict = Literal["allow", "deny", "ask"]
VERDICTS: tuple[Verdict, ...] = ("allow", "deny", "ask")
WHY_CHARS_MOST = 500
EXPIRES_SECONDS_MOST = 366 * 86_400.0
Predicate = Callable[[dict[str, JSON]], bool]


class UnfitArguments(ValueError):
    """Raised by a function of a condition for arguments that do not become what its tool takes; its message says why."""


@dataclass(frozen=True)
class Rule:
    """One rule. `decision` is `allow`, `deny` or `ask`; `tool` is a name, in which `*` and `?` stand for any characters.

    `when` is a condition over the arguments: text (`core.condition`) or a function of them that returns a bool; it gets a copy.
    `why` is told to the model by a `deny`, and to the person by an `ask`. `expires` is after how many seconds without an answer
    an `ask` becomes a no. Raises BadAgent.
    """

    decision: Verdict
    tool: str = "*"
    effect: Effect | Literal["once", "idempotent", "read"] | None = None
    when: str | Predicate | None = None
    why: str = ""
    expires: float | None = None
    condition: Node | Predicate | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.decision not in VERDICTS:
            raise BadAgent(f"a rule is {', '.join(VERDICTS)}, not {self.decision!r}")
        if not isinstance(self.tool, str) or not self.tool:
            raise BadAgent(f"a rule names a tool, or a pattern like 'git_*', not {self.tool!r}")
        if self.effect is not None and self.effect not in list(Effect):
            raise BadAgent(f"{self.told()}: effect is {', '.join(Effect)}, not {self.effect!r}")
        if not isinstance(self.why, str) or len(self.why) > WHY_CHARS_MOST:
            raise BadAgent(f"{self.told()}: why is a text of at most {WHY_CHARS_MOST} characters")
        if self.expires is not None:
            self._check_expires(self.expires)
        try:
            parsed = parse_condition(self.when) if isinstance(self.when, str) else self.when
        except BadCondition as error:
            raise BadAgent(f"{self.told()}: the condition cannot be read: {error}") from None
        if parsed is not None and not (isinstance(self.when, str) or callable(parsed)):
            raise BadAgent(f"{self.told()}: a condition is a text or a function of the arguments, not {self.when!r}")
        object.__setattr__(self, "condition", parsed)

    def _check_expires(self, seconds: Any) -> None:
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if self.decision != "ask" or not number or not 0 < seconds <= EXPIRES_SECONDS_MOST:
            raise BadAgent(
                f"{self.told()}: only `ask` expires, after a number of seconds of at most {EXPIRES_SECONDS_MOST:.0f}, "
                f"not {seconds!r}"
            )

    def told(self) -> str:
        """The rule in one line, for people."""
        effect = "" if self.effect is None else f" with effect {self.effect}"
        named = getattr(self.when, "__name__", "a function")
        when = "" if self.when is None else f" when {self.when if isinstance(self.when, str) else named}"
        return printable(f"{self.decision} {self.tool}{effect}{when}", limit=300)

    def names(self, spec: ToolSpec) -> bool:
        """Whether it speaks of this tool."""
        return like(spec.name, self.tool) and self.effect in (None, spec.effect)

    def matches(self, spec: ToolSpec, arguments: dict[str, JSON]) -> bool:
        """Whether it speaks of this call. Raises CannotTell, and UnfitArguments for a call that its tool would not take."""
        if not self.names(spec):
            return False
        if self.condition is None:
            return True
        if not callable(self.condition):
            return holds(self.condition, arguments)
        return _asked(self.condition, clean_json(arguments))

    def ruling(self, now_ms: Callable[[], int]) -> Ruling:
        """What it decides where it matches."""
        if self.decision == "deny":
            return Deny(why=self.why or f"The rule is: {self.told()}.")
        if self.decision == "allow":
            return Allow()
        until = None if self.expires is None else now_ms() + max(1, round(self.expires * 1000))
        return Ask(rule=f"{self.told()}: {self.why}" if self.why else self.told(), expires_at_ms=until)


def ask_rule(tool: str, *, ask: bool | str | Predicate | None, expires: float | None) -> Rule | None:
    """What a tool says of itself: `True` asks about every call, a condition about those of which it is true. Raises BadAgent."""
    if ask is None or ask is False:
        if expires is not None:
            raise BadAgent(f"tool {tool!r}: ask_expires is for a tool that asks; add `ask`, or take it out")
        return None
    try:
        return Rule("ask", tool, when=None if ask is True else ask, expires=expires)
    except BadAgent as error:
        raise BadAgent(f"tool {tool!r}: {error}") from None


def _never() -> int:
    return 0


@dataclass(frozen=True, kw_only=True)
class Rulebook:
    """A policy made of rules: what the operator says, what the agent says, what its tools say of themselves.

    `now_ms` gives the time from which an `ask` counts; it is the caller's clock. `stop_after_turn` is the agent's own condition
    to end a run behind a turn (A7), which `core.stopping` asks.
    """

    operator: Sequence[Rule] = ()
    agent: Sequence[Rule] = ()
    tools: Sequence[Rule] = ()
    now_ms: Callable[[], int] = _never
    stop_after_turn: StopCondition | None = None

    def __call__(self, spec: ToolSpec, arguments: dict[str, JSON]) -> Ruling:
        """The ruling on one call; Undecidable where the first rule that may match can be neither applied nor passed over."""
        found = self._first("operator", self.operator, spec, arguments)
        if found is None:
            found = self._first("agent", self.agent, spec, arguments)
            if found is None or isinstance(found, Allow):
                found = self._first("tool", self.tools, spec, arguments) or found
        return found or Allow()

    def _first(self, whose: str, rules: Sequence[Rule], spec: ToolSpec, arguments: dict[str, JSON]) -> Ruling | None:
        for number, rule in enumerate(rules, start=1):
            try:
                if rule.matches(spec, arguments):
                    return rule.ruling(self.now_ms)
            except UnfitArguments as error:
                return Unfit(why=f"They do not convert: {error}")
            except CannotTell as error:
                why = printable(str(error), limit=WHY_CHARS_MOST)
                return Undecidable(why=f"rule {number} of the {whose} ({rule.told()}) cannot be evaluated: {why}")
        return None


def check_rules(rules: Sequence[Rule], specs: Sequence[ToolSpec]) -> None:
    """Refuse a condition on an argument that a tool of its rule does not have: it could never be told. Raises BadAgent."""
    for rule in rules:
        condition = rule.condition
        if condition is None or callable(condition):
            continue
        named = {argument.path[0] for argument in arguments_of(condition)}
        for spec in specs:
            known = json.decode(spec.parameters).get("properties", {}).keys() if rule.names(spec) else ()
            absent = sorted(named - known) if known else []
            if absent:
                raise BadAgent(
                    f"{rule.told()}: the tool {spec.name}, of which it speaks too, has no argument {absent[0]}; "
                    f"there are {', '.join(sorted(known))}. Name the tools that the rule is for"
                )


def _asked(predicate: Predicate, arguments: dict[str, JSON]) -> bool:
    """A function of somebody else: whatever it raises, and whatever it returns but a bool, is no answer (CON4)."""
    try:
        found = predicate(arguments)
    except UnfitArguments:
        raise
    except (Exception, SystemExit) as error:
        raise CannotTell(describe(error)) from error
    if not isinstance(found, bool):
        raise CannotTell(f"it returned {type(found).__name__}, not a bool")
    return found
