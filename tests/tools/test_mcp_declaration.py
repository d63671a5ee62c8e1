"""What an operator declares of an MCP server, and what becomes of what the server says of itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp_support import ACT, server
from tool_support import DATA, SystemClock, alive

from semel import Agent, mcp_server
from semel.adapters.tools.mcp.handshake import Hints, Listed
from semel.adapters.tools.mcp.messages import parse
from semel.adapters.tools.mcp.source import McpDeclaration, McpServer, offered_name, server_of_table
from semel.core.guards import check_tools
from semel.core.values import Effect
from semel.errors import BadAgent
from semel.faces.agent import check_policy

SCHEMA = {"type": "object"}


@pytest.mark.anyio
async def test_what_a_server_lists_is_offered_under_its_name() -> None:
    act, echo = await server("answers", timeout=3, sequential=True).offered()
    assert (act.name, act.description, act.module) == (ACT, "Acts.", "mcp:box")
    assert act.parameters == '{"properties":{},"type":"object"}'
    assert (act.timeout_ms, act.sequential, act.reconciles) == (3000, True, False)
    assert (echo.name, echo.description) == ("mcp__box__echo", "")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("declared", "effects"),
    [
        ({}, (Effect.ONCE, Effect.ONCE)),
        ({"trust_hints": True}, (Effect.READ, Effect.ONCE)),
        ({"effect": Effect.IDEMPOTENT}, (Effect.IDEMPOTENT, Effect.IDEMPOTENT)),
        ({"effect": Effect.READ, "effects": {"act": Effect.ONCE}}, (Effect.ONCE, Effect.READ)),
        ({"trust_hints": True, "effects": {"echo": Effect.READ}}, (Effect.READ, Effect.READ)),
    ],
)
async def test_hints_count_only_where_the_operator_trusts_them(declared: dict[str, Any], effects: tuple[Effect, ...]) -> None:
    assert tuple([spec.effect for spec in await server("answers", **declared).offered()]) == effects


def test_a_hint_of_idempotence_is_one() -> None:
    found = server("answers", trust_hints=True).specs([Listed("a", SCHEMA, annotations=Hints(idempotentHint=True))])
    assert found["mcp__box__a"][1].effect is Effect.IDEMPOTENT


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("then", "today", "refused"),
    [
        ({"effect": Effect.READ}, {}, True),
        ({"trust_hints": True}, {}, True),
        ({"trust_hints": True}, {"trust_hints": True}, False),
        ({}, {"effect": Effect.READ}, True),
        ({"effects": {"act": Effect.READ}}, {"effects": {"act": Effect.READ}}, False),
    ],
)
async def test_a_run_does_not_go_on_where_the_operator_states_another_effect(
    then: dict[str, Any], today: dict[str, Any], *, refused: bool
) -> None:
    frozen = tuple(await server("answers", **then).offered())
    found = {name: tool.spec for name, tool in server("answers", **today).open(frozen, "r1").tools.items()}
    if not refused:
        assert check_tools(frozen, found, "a") == ()
        return
    with pytest.raises(BadAgent, match="has another effect than its open run was started with"):
        check_tools(frozen, found, "a")


def test_a_name_fits_every_provider_and_stays_its_own() -> None:
    assert offered_name("fs", "read_file") == "mcp__fs__read_file"
    assert offered_name("fs", "dir/read.file") == "mcp__fs__dir_read_file"
    long, longer = offered_name("fs", "x" * 60), offered_name("fs", "x" * 61)
    assert len(long) == len(longer) == 64
    assert long != longer
    assert offered_name("fs", "x" * (64 - len("mcp__fs__"))) == "mcp__fs__" + "x" * 55


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ([Listed("a.b", SCHEMA), Listed("a/b", SCHEMA)], "the server lists 'a/b' twice, or two tools that come to be"),
        ([Listed("a", {"type": "nonsense"})], "tool name|schema"),
    ],
)
def test_a_list_that_cannot_be_offered_is_refused_by_name(listed: list[Listed], said: str) -> None:
    with pytest.raises(BadAgent, match=said):
        server("answers").specs(listed)


def test_what_a_server_says_of_itself_is_bounded_and_free_of_controls() -> None:
    told = server("answers").specs([Listed("a", SCHEMA, description="\x1b]52;x\x07" + "y" * 100_000)])
    description = told["mcp__box__a"][1].description
    assert description.startswith(" ]52;x yyy")
    assert len(description) == 8192


def test_an_effect_of_a_tool_that_the_server_does_not_have_is_refused() -> None:
    with pytest.raises(BadAgent, match=r"tools\.box\.effects: the server has no tool 'pay'; take it out"):
        server("answers", effects={"pay": Effect.READ}).specs([Listed("act", SCHEMA)])


@pytest.mark.parametrize(
    ("name", "table", "said"),
    [
        ("a__b", {"mcp": ["x"]}, "an MCP server has a name of 1 to 30 letters, digits, '-' and single '_'"),
        ("a" * 31, {"mcp": ["x"]}, "an MCP server has a name of 1 to 30"),
        ("box", {"mcp": []}, "mcp needs a program to run"),
        ("box", {"mcp": "x"}, r"tool 'box': Expected `array`, got `str` - at `\$.mcp`"),
        ("box", {"mcp": ["x"], "start_timeout": 0}, "start_timeout is in seconds, above 0 and at most 600"),
        ("box", {"mcp": ["x"], "message_bytes_max": 10}, r"Expected `int` >= 65536 - at `\$.message_bytes_max`"),
        ("box", {"mcp": ["x"], "ask_expires": 5}, "ask_expires is for a tool that asks"),
    ],
)
def test_a_table_that_cannot_hold_is_refused(name: str, table: dict[str, Any], said: str) -> None:
    with pytest.raises(BadAgent, match=said):
        server_of_table(name, table, directory=DATA, clock=SystemClock())


def test_a_server_is_declared_in_python_as_in_a_file(tmp_path: Path) -> None:
    found = mcp_server("git", ["git-mcp"], directory=tmp_path, effects={"push": "once"}, env=["TOKEN"])
    assert found.declaration == McpDeclaration(mcp=("git-mcp",), effects={"push": Effect.ONCE}, env=("TOKEN",))
    with pytest.raises(BadAgent, match="tool 'git': Object contains unknown field `trust`"):
        mcp_server("git", ["git-mcp"], trust=True)  # type: ignore[call-arg]  # that is the point
    with pytest.raises(BadAgent, match="agent 'a' has two sources of tools under one name"):
        check_policy(Agent("a", model="openai:gpt-5", tools=[found, found]))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("start: exits", "it ended with exit code 2; it had said: no token: set BANK_TOKEN. Start it by hand"),
        ("start: says nothing", "it did not say within 0.5 s which tools it has. Start it by hand"),
        ("start: is no MCP server", "it sent 1000 things that fit no request; it had sent 1000 x a line that is no message."),
        ("start: an old version", "it speaks MCP of 1999-01-01; known are 2024-11-05, 2025-03-26,"),
    ],
)
async def test_a_server_that_cannot_be_used_says_why_in_one_line(mode: str, said: str) -> None:
    short = 0.5 if "0.5" in said else 30
    with pytest.raises(BadAgent) as caught:
        await server(mode, start_timeout=short).offered()
    assert said in str(caught.value)
    assert str(caught.value).startswith("tools.box: the MCP server ")
    assert "\n" not in str(caught.value)


@pytest.mark.anyio
async def test_a_server_that_is_not_there_says_so() -> None:
    gone = McpServer("box", McpDeclaration(mcp=("no-such-mcp-server",)), directory=Path.cwd(), clock=SystemClock())
    with pytest.raises(BadAgent, match=r"'no-such-mcp-server' cannot be used: it could not be started: FileNotFoundError"):
        await gone.offered()


@pytest.mark.anyio
async def test_a_question_that_is_cancelled_leaves_no_server_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    markers: list[str] = []
    found = server("start: says nothing")
    whole = found.command

    def noted(marker: str) -> Any:
        markers.append(marker)
        return whole(marker)

    monkeypatch.setattr(found, "command", noted)
    asking = asyncio.ensure_future(found.offered())
    while not (markers and alive(markers[0])):
        await asyncio.sleep(0.005)
    asking.cancel()
    with pytest.raises((asyncio.CancelledError, BadAgent)):
        await asking
    assert alive(markers[0]) == {}


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (rb'{"id":1,"result":"\ud83d"}', rb'"\ufffd"'),
        (rb'{"id":1,"result":"\ud83d\ude00"}', rb'"\ud83d\ude00"'),
        (rb'{"id":1,"result":"\\ud83d \udc00"}', rb'"\\ud83d \ufffd"'),
        (b'{"id":1,"result":"\xff"}', '"\ufffd"'.encode()),
    ],
)
def test_half_a_pair_and_a_broken_byte_are_replaced_and_nothing_else_is(line: bytes, kept: bytes) -> None:
    message = parse(line)
    assert message is not None
    assert bytes(message.result) == kept


@pytest.mark.parametrize("line", [b"", b"x", b"[1]", b"1", b'{"id":1', b'{"method":1}', b"[" * 100_000, rb'"\ud83d"'])
def test_what_is_no_message_is_none(line: bytes) -> None:
    assert parse(line) is None
