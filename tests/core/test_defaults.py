"""A call that leaves an argument out is the call that names its default: rules judge it so, and so it is shown."""

import json
from typing import Any

import pytest

from semel.core import open_calls as opening
from semel.core import plan
from semel.core.defaults import TooEntangled, with_defaults
from semel.core.open_calls import open_calls
from semel.core.plan import ruling_on
from semel.core.policy import Undecidable
from semel.core.records import ToolNoDispatch
from semel.core.rules import Rule, Rulebook
from semel.core.values import JSON, Effect, ToolCall, ToolSpec
from tests.core.driver import Driver
from tests.core.machine import tool

ORDER = {
    "type": "object",
    "properties": {"cents": {"type": "integer", "default": 9000}, "note": {"type": "string"}},
}


def _tagged(tag: str, *, force: bool) -> dict[str, Any]:
    properties = {"type": {"enum": [tag]}, "force": {"type": "boolean", "default": force}}
    return {"type": "object", "properties": properties}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"Order": ORDER, "Again": {"$ref": "#/$defs/Order"}},
    "properties": {
        "branch": {"type": "string", "default": "main"},
        "order": {"$ref": "#/$defs/Again"},
        "orders": {"type": "array", "items": {"$ref": "#/$defs/Order"}},
        "perhaps": {"anyOf": [{"$ref": "#/$defs/Order"}, {"type": "null"}], "default": None},
        "either": {"oneOf": [{"$ref": "#/$defs/Order"}, {"type": "object"}]},
        "far": {"$ref": "https://localhost/far"},
        "any": True,
        "union": {"anyOf": [_tagged("a", force=True), _tagged("b", force=False)]},
        "both": {"allOf": [{"$ref": "#/$defs/Order"}, {"properties": {"by": {"default": "ann"}}}]},
        "whole": {"$ref": "#/$defs/Order", "default": {}},
    },
}
BARE: dict[str, JSON] = {"branch": "main", "perhaps": None, "whole": {"cents": 9000}}


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({}, {}),
        ({"branch": "x", "perhaps": None}, {"branch": "x"}),
        ({"order": {}}, {"order": {"cents": 9000}}),
        ({"order": {"cents": 1, "note": "n"}}, {"order": {"cents": 1, "note": "n"}}),
        ({"orders": [{}, {"cents": 2}]}, {"orders": [{"cents": 9000}, {"cents": 2}]}),
        ({"perhaps": {}}, {"perhaps": {"cents": 9000}}),
        ({"either": {}}, {"either": {}}),
        ({"far": {}, "any": {}}, {"far": {}, "any": {}}),
        ({"orders": [{}] * 1000}, {"orders": [{"cents": 9000}] * 1000}),
        ({"more": [1]}, {"more": [1]}),
        ({"union": {"type": "a"}}, {"union": {"type": "a", "force": True}}),
        ({"union": {"type": "b"}}, {"union": {"type": "b", "force": False}}),
        ({"union": {}}, {"union": {}}),
        ({"both": {"cents": 3}}, {"both": {"cents": 3, "by": "ann"}}),
        ({"whole": {"cents": 1}}, {"whole": {"cents": 1}}),
    ],
)
def test_what_was_left_out_has_the_default_of_the_schema(given: dict[str, JSON], filled: dict[str, JSON]) -> None:
    before = json.dumps(given)
    assert with_defaults(json.dumps(SCHEMA), given) == BARE | filled
    assert json.dumps(given) == before, "what the model wrote stays as it is"


TREE = {"type": "object", "properties": {side: {"$ref": "#/$defs/Tree", "default": {}} for side in ("left", "right")}}
KNOT = {"allOf": [{"$ref": "#/$defs/Knot"}, {"$ref": "#/$defs/Knot"}]}


@pytest.mark.parametrize("shape", ["Tree", "Knot", "Loop"])
def test_a_schema_that_names_itself_without_end_is_told_by_name_and_its_calls_are_not_decided(shape: str) -> None:
    definitions = {"Tree": TREE, "Knot": KNOT, "Loop": {"$ref": "#/$defs/Loop"}}
    of_self = {"type": "object", "$defs": definitions, "properties": {"x": {"$ref": f"#/$defs/{shape}"}}}
    spec = ToolSpec(name="t", description="t", parameters=json.dumps(of_self), effect=Effect.ONCE)
    with pytest.raises(TooEntangled):
        with_defaults(spec.parameters, {"x": {}})
    ruling = ruling_on(spec, {"x": {}}, Rulebook())
    assert isinstance(ruling, Undecidable)
    assert "too entangled" in ruling.why


def test_a_default_is_never_shared_between_calls() -> None:
    schema = json.dumps({"type": "object", "properties": {"to": {"type": "array", "default": ["ann"]}}})
    first = with_defaults(schema, {})
    assert isinstance(first["to"], list)
    first["to"].append("bob")
    assert with_defaults(schema, {}) == {"to": ["ann"]}


PUSH = ToolSpec(
    name="push",
    description="push",
    parameters='{"type":"object","properties":{"branch":{"type":"string","default":"main"}}}',
    effect=Effect.ONCE,
)


def pushed(rule: Rule, arguments: str) -> Driver:
    d = Driver(tools=(PUSH, tool("pay")), policy=Rulebook(agent=[rule]))
    d.send()
    d.answer([ToolCall(id="1", name="push", arguments=arguments)])
    return d


@pytest.mark.parametrize("arguments", ["{}", "", '{"branch":"main"}'])
def test_no_rule_is_passed_by_leaving_an_argument_out(arguments: str) -> None:
    asked = pushed(Rule("ask", "push", when="branch == 'main'"), arguments)
    (waiting,) = open_calls(asked.state)
    assert json.loads(waiting.arguments) == {"branch": "main"}, "a person sees what will be used"
    denied = pushed(Rule("deny", "push", when="branch in ['main', 'release']"), arguments)
    refused = [record.reason for write in denied.writes for record in write.records if isinstance(record, ToolNoDispatch)]
    assert refused == ["policy_blocked"]


def test_an_argument_with_another_value_is_judged_by_that() -> None:
    free = pushed(Rule("ask", "push", when="branch == 'main'"), '{"branch":"mine"}')
    assert not open_calls(free.state)


def test_canary_rules_that_see_what_the_model_wrote_and_no_more_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "with_defaults", lambda _schema, arguments: arguments)
    monkeypatch.setattr(opening, "with_defaults", lambda _schema, arguments: arguments)
    assert not open_calls(pushed(Rule("ask", "push", when="branch == 'main'"), "{}").state)
