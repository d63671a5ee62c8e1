"""Rules as people write them: tables of an agent file, and the operator's own file; and the policy that a run gets of them.

    [[policy]]
    decision = "deny"
    tool = "git_*"
    when = "branch in ['main', 'release']"
    why = "Push to a branch of your own."

The operator's file is named by SEMEL_POLICY. It is read whenever a run starts or is resumed, its rules come before those of any
agent, and one that cannot be read refuses the run.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from semel.core.rules import Rule, Rulebook, Verdict, check_rules
from semel.core.turn_view import StopCondition
from semel.core.values import Effect
from semel.errors import BadAgent, BadSettings
from semel.faces.reading import read_small
from semel.ports.tool import ToolPort

POLICY_VARIABLE = "SEMEL_POLICY"
RULES_MOST = 1000


class _Table(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One `[[policy]]` table."""

    decision: Verdict
    tool: str = "*"
    effect: Effect | None = None
    when: str | None = None
    why: str = ""
    expires: float | None = None


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    policy: list[_Table] = []


def rules_of(tables: Sequence[Mapping[str, Any]]) -> list[Rule]:
    """The rules of `[[policy]]` tables. Raises BadAgent, which names the rule by its number."""
    rules: list[Rule] = []
    for number, table in enumerate(tables, start=1):
        try:
            found = msgspec.convert(table, _Table)
            rules.append(_rule(found))
        except (msgspec.ValidationError, BadAgent) as error:
            raise BadAgent(f"policy rule {number}: {error}") from None
    return rules


def _rule(table: _Table) -> Rule:
    return Rule(table.decision, table.tool, effect=table.effect, when=table.when, why=table.why, expires=table.expires)


def operator_rules(environ: Mapping[str, str] | None = None) -> list[Rule]:
    """The rules of the file that SEMEL_POLICY names; none without it. Raises BadSettings, and then no run starts or goes on."""
    named = (os.environ if environ is None else environ).get(POLICY_VARIABLE)
    if not named:
        return []
    import tomllib  # most runs have no such file, and start-up is quick

    try:
        table = tomllib.loads(read_small(Path(named)).decode())
        found = msgspec.convert(table, _File)
        return rules_of([msgspec.structs.asdict(one) for one in found.policy])
    except OSError as error:
        raise BadSettings(f"{POLICY_VARIABLE}: {named} cannot be read: {error.strerror}; no run starts without it") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError, BadAgent) as error:
        raise BadSettings(f"{POLICY_VARIABLE}: {named}: {error}") from None


def check_own_rules(agent: Sequence[Rule], ports: Mapping[str, ToolPort]) -> list[Rule]:
    """What the tools say of themselves. Raises BadAgent where a rule names an argument that no tool of its has."""
    own = [rule for port in ports.values() if (rule := getattr(port, "ask_rule", None)) is not None]
    check_rules([*agent, *own], [port.spec for port in ports.values()])
    return own


def rulebook(
    agent: Sequence[Rule], ports: Mapping[str, ToolPort], stop_after_turn: StopCondition | None, now_ms: Callable[[], int]
) -> Rulebook:
    """The policy of a run that starts or goes on now. Raises BadAgent for rules that cannot hold, BadSettings."""
    own = check_own_rules(agent, ports)
    return Rulebook(operator=operator_rules(), agent=agent, tools=own, now_ms=now_ms, stop_after_turn=stop_after_turn)
