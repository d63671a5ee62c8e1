"""Agent files: what they may say, and one line for every mistake; and how a log finds its agent again."""

from pathlib import Path

import pytest

from semel import wiring
from semel.core.records import AgentRef
from semel.core.values import Effect
from semel.errors import BadAgent
from semel.faces.agent import Limits
from semel.faces.agentfile import KEYS, load_agent_file
from semel.faces.agentref import default_agent, find_agent, load_agent
from semel.faces.cli.init import TEMPLATE

WHOLE = """\
name = "support"
model = "openai:gpt-5"
instructions = "file:support.md"
limits = { cost = "1.00 USD", steps = 40, tokens = 9, wall_seconds = 1.5, parallel_calls = 2 }
model_options = { max_output_tokens = 100, body = { temperature = 0 } }

[tools.refund]
description = "Refund an order."
command = ["./refund", "{order_id}", "{cents}"]
args = { order_id = "string", cents = "integer" }
effect = "once"
reconcile = ["./refund-status", "{call_key}"]
timeout = 30
sequential = true
interruptible = false
env = ["SHOP_TOKEN"]

[tools.look]
command = ["cat", "orders.txt"]
effect = "read"

[tools.double]
python = "shop_tools:double"

[tools.git]
mcp = ["mcp-server-git", "--repository", "."]
trust_hints = true
effects = { git_commit = "once" }
"""
PYTHON = "from semel import tool\n\n@tool(effect='read')\ndef double(n: int) -> int:\n    '''Twice.'''\n    return 2 * n\n"


def write(place: Path, text: str) -> Path:
    path = place / "agent.toml"
    path.write_text(text)
    return path


def test_a_file_that_says_everything(tmp_path: Path) -> None:
    (tmp_path / "support.md").write_text("Be kind.\n")
    (tmp_path / "shop_tools.py").write_text(PYTHON)
    agent = load_agent_file(write(tmp_path, WHOLE))
    assert (agent.name, agent.model, agent.instructions) == ("support", "openai:gpt-5", "Be kind.\n")
    assert agent.source == str(tmp_path / "agent.toml")
    assert agent.limits == Limits(cost="1.00 USD", steps=40, tokens=9, wall_seconds=1.5, parallel_calls=2)
    assert agent.model_options == {"max_output_tokens": 100, "body": {"temperature": 0}}
    refund, look, double = (tool.spec for tool in agent.tool_ports().values())
    assert (refund.name, refund.effect, refund.reconciles, refund.timeout_ms) == ("refund", Effect.ONCE, True, 30_000)
    assert (refund.sequential, refund.interruptible) == (True, False)
    assert (look.effect, look.timeout_ms) == (Effect.READ, None)
    assert (double.name, double.effect, double.description) == ("double", Effect.READ, "Twice.")
    assert [source.module for source in agent.sources()] == ["mcp:git"], "nothing was started for that"


def test_the_digest_is_of_the_file_and_of_what_it_reads(tmp_path: Path) -> None:
    text = 'name = "a"\nmodel = "openai:gpt-5"\ninstructions = "file:told.md"\n'
    digests = []
    for told, more in (("one", ""), ("one", "# a comment\n"), ("two", ""), ("two", "limits = { steps = 3 }\n")):
        (tmp_path / "told.md").write_text(told)
        digests.append(load_agent_file(write(tmp_path, text + more)).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_paths_start_from_the_file_wherever_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 'name = "a"\nmodel = "scripted:script.json"\n')
    monkeypatch.chdir("/")
    assert load_agent(str(tmp_path / "agent.toml")).model == f"scripted:{tmp_path}/script.json"


def test_the_file_that_init_writes_loads(tmp_path: Path) -> None:
    agent = load_agent_file(write(tmp_path, TEMPLATE.format(model="openai:gpt-5")))
    assert list(agent.tool_ports()) == ["today"]
    whole = "\n".join(
        line.removeprefix("# ") if line.startswith("# [") or " = " in line else line for line in TEMPLATE.splitlines()
    )
    assert list(load_agent_file(write(tmp_path, whole.format(model="m:x"))).tool_ports()) == ["today", "refund"]


HEAD = 'name = "a"\nmodel = "openai:gpt-5"\n'
TOOL = HEAD + '[tools.pay]\ncommand = ["pay", "{cents}"]\nargs = { cents = "integer" }\n'
MISTAKES = [
    (
        "names = 1",
        "names is no key; did you mean name? allowed are name, model, instructions, limits, model_options, policy,",
    ),
    ('name = "a"', "it lacks the required key `model`"),
    ("name = 1", "name: Expected `str`, got `int`"),
    ('name = ""\nmodel = "m"', "an agent needs a printable name"),
    (HEAD + "instructions = 3", "instructions: Expected `str`, got `int`"),
    (HEAD + 'instructions = "file:gone.md"', "gone.md cannot be read: No such file or directory"),
    (HEAD + "limits = 3", "limits: Expected `object`, got `int`"),
    (HEAD + "limits = { step = 3 }", "limits.step is no key; did you mean steps? allowed are steps, tokens, cost,"),
    (HEAD + 'limits = { steps = "3" }', "limits.steps: Expected `int`, got `str`"),
    (HEAD + "limits = { steps = 0 }", "limits: the limit steps must be a whole number of at least 1, not 0"),
    (HEAD + "limits = { cost = 1 }", "limits.cost: Expected `str | null`, got `int`"),
    (HEAD + 'limits = { cost = "1 dollar" }', "limits: '1 dollar' is not a cost limit; write it like \"1.00 USD\""),
    (HEAD + "model_options = { max_tokens = 3 }", "model_options.max_tokens is no key; did you mean max_output_tokens?"),
    (HEAD + 'model_options = { body = "x" }', "the model options cannot be used: Expected `object`, got `str` - at `$.body`"),
    (HEAD + 'mcp = ["server"]', "mcp is no key; allowed are name, model,"),
    (HEAD + "tools = 3", "tools: Expected `object`, got `int`"),
    (HEAD + "[tools]\npay = 3", "tools[...]: Expected `object`, got `int`"),
    (HEAD + "[tools.pay]", 'tools.pay.command is missing; write command = ["program", "{argument}"], or python'),
    (HEAD + "[tools.pay]\ncommand = []", "tool 'pay': a command needs a program to run"),
    (HEAD + '[tools.pay]\ncommand = "pay"', "tool 'pay': Expected `array`, got `str` - at `$.command`"),
    (HEAD + '[tools."pay it"]\ncommand = ["pay"]', "tool name 'pay it': use 1 to 64 of the letters"),
    (TOOL + 'mcp = ["server"]', "tools.pay.command is no key; allowed are mcp, trust_hints, effect, effects,"),
    (TOOL + "trust_hints = true", "tools.pay.trust_hints is no key; allowed are python, mcp, command, args,"),
    (HEAD + '[tools.git]\nmcp = "git"', "tool 'git': Expected `array`, got `str` - at `$.mcp`"),
    (HEAD + '[tools.git]\nmcp = ["git"]\ntrust_hint = true', "tools.git.trust_hint is no key; did you mean trust_hints? allowed"),
    (
        HEAD + '[tools.git]\nmcp = ["git"]\neffect = "onse"',
        "tools.git.effect is once, idempotent, read, not 'onse'; did you mean once?",
    ),
    (HEAD + '[tools.git]\nmcp = ["git"]\neffects = { push = "x" }', "tool 'git': Invalid enum value 'x' - at `$.effects[...]`"),
    (HEAD + '[tools.git]\nmcp = ["git"]\nask = "x > 5"', "tool 'git': Expected `bool`, got `str` - at `$.ask`"),
    (TOOL + 'ask = "cents >"', "tool 'pay': ask pay when cents >: the condition cannot be read: at character 8: it ends where"),
    (
        TOOL + 'ask = "cent > 5"',
        "ask pay when cent > 5: the tool pay, of which it speaks too, has no argument cent; there are cents",
    ),
    (TOOL + "ask = 5", "tool 'pay': Expected `bool | str | null`, got `int` - at `$.ask`"),
    (TOOL + "ask_expires = 5", "tool 'pay': ask_expires is for a tool that asks; add `ask`, or take it out"),
    (TOOL + "ask = true\nask_expires = 0", "tool 'pay': ask pay: only `ask` expires, after a number of seconds of at most"),
    (TOOL + '[[policy]]\ntool = "pay"', "policy rule 1: Object missing required field `decision`"),
    (TOOL + '[[policy]]\ndecision = "refuse"', "policy rule 1: Invalid enum value 'refuse' - at `$.decision`"),
    (TOOL + '[[policy]]\ndecision = "deny"\neffect = "onse"', "policy rule 1: Invalid enum value 'onse' - at `$.effect`"),
    (TOOL + '[[policy]]\ndecision = "deny"\nif = "x"', "policy rule 1: Object contains unknown field `if`"),
    (TOOL + '[[policy]]\ndecision = "deny"\nexpires = 5', "policy rule 1: deny *: only `ask` expires"),
    (
        TOOL + '[[policy]]\ndecision = "deny"\nwhen = "cent > 5"',
        "deny * when cent > 5: the tool pay, of which it",
    ),
    (TOOL + 'effects = "once"', "tools.pay.effects is no key; did you mean effect? allowed are python, mcp, command, args,"),
    (TOOL + 'effect = "onse"', "tools.pay.effect is once, idempotent, read, not 'onse'; did you mean once?"),
    (TOOL + "effect = 3", "tools.pay.effect is once, idempotent, read, not 3"),
    (TOOL + "timeout = -1", "tool 'pay': timeout is in seconds, above 0"),
    (TOOL + 'env = "X"', "tool 'pay': Expected `array`, got `str` - at `$.env`"),
    (TOOL + 'reconcile = ["ask", "{call_kex}"]', "tool 'pay': {call_kex} is not an argument; there are call_key, cents"),
    (TOOL.replace("{cents}", "{cent}"), "tool 'pay': {cent} is not an argument; there are call_key, cents"),
    (TOOL.replace('"integer"', '"int"'), "tool 'pay': 'cents' is of boolean, integer, number, string or a schema, not 'int'"),
    (TOOL + 'python = "m:f"', "tools.pay.command: a python tool says that in its own @tool(...)"),
    (HEAD + "[tools.pay]\npython = 3", 'tools.pay.python: write "module:function"'),
    (HEAD + '[tools.pay]\npython = "pay"', "tools.pay.python: 'pay' is no reference; write module:name"),
    (HEAD + '[tools.pay]\npython = "no_such:f"', "tools.pay.python: the module no_such cannot be imported: ModuleNotFoundError"),
    (HEAD + '[tools.pay]\npython = "json:nothing"', "tools.pay.python: the module json has no 'nothing'"),
    (HEAD + '[tools.sep]\npython = "os:sep"', "tools.sep.python: os:sep is a str, not a function"),
    (HEAD + 'instructions = "file:/dev/zero"', "instructions: /dev/zero cannot be read: it is no regular file"),
    ("name = \n[x", "is not TOML: Invalid value (at line 1, column 8)"),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[said[:50] for _, said in MISTAKES])
def test_a_mistake_is_one_line_that_names_the_file_the_key_and_what_is_allowed(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(BadAgent) as caught:
        load_agent_file(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert said in message
    assert "\n" not in message


def test_the_mistakes_are_as_many_as_they_were() -> None:
    assert len(MISTAKES) == 55


def test_a_python_tool_has_the_name_of_its_table(tmp_path: Path) -> None:
    (tmp_path / "twice_tools.py").write_text(PYTHON)
    text = HEAD + '[tools.double]\ncommand = ["x"]\n[tools.other]\npython = "twice_tools:double"\n'
    with pytest.raises(BadAgent, match=r"tools\.other: twice_tools:double is the tool 'double'; name the table"):
        load_agent_file(write(tmp_path, text)).tool_ports()


@pytest.mark.parametrize(("raw", "said"), [(b"\xff", "is not UTF-8 text"), (b"#" * (1 << 20) + b"#", "is larger than")])
def test_what_is_no_agent_file_is_refused(tmp_path: Path, raw: bytes, said: str) -> None:
    (tmp_path / "agent.toml").write_bytes(raw)
    with pytest.raises(BadAgent, match=said):
        load_agent_file(tmp_path / "agent.toml")


def test_a_reference_to_what_is_no_agent_is_refused() -> None:
    with pytest.raises(BadAgent, match="json:loads is a function, not an Agent"):
        load_agent("json:loads")


def test_the_agent_of_a_log_is_found_where_the_log_says(tmp_path: Path) -> None:
    path = str(write(tmp_path, HEAD))
    assert find_agent(AgentRef(name="a", source=path)).name == "a"
    assert find_agent(AgentRef(name="assistant", source="--model openai:gpt-5")).model == "openai:gpt-5"


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("b", "{place}/agent.toml", "the log needs the agent 'b', but {place}/agent.toml defines 'a'"),
        ("a", "{place}/gone.toml", "was loaded from {place}/gone.toml, which is not there any more; pass it with `--agent FILE`"),
        ("a", "gone_module:agent", "the module gone_module cannot be imported"),
        ("a", None, "was made by a program and cannot be found from here; pass it with `--agent FILE`"),
    ],
)
def test_an_agent_that_is_not_found_is_asked_for(tmp_path: Path, name: str, source: str | None, said: str) -> None:
    write(tmp_path, HEAD)
    where = None if source is None else source.format(place=tmp_path)
    with pytest.raises(BadAgent) as caught:
        find_agent(AgentRef(name=name, source=where))
    assert said.format(place=tmp_path) in str(caught.value)
    assert "--agent FILE" in str(caught.value)


def test_without_a_file_and_a_model_there_is_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadAgent, match="`semel init`, or pass `--agent FILE` or `--model NAME`"):
        default_agent(None)
    assert default_agent("openai:gpt-5").name == "assistant"
    write(tmp_path, HEAD)
    assert default_agent("ollama:x").model == "ollama:x"


def test_every_key_of_an_agent_file_is_explained() -> None:
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text().partition("## The agent file")[2]
    keys = {
        *KEYS,
        "python",
        *wiring.command_keys(),
        *wiring.mcp_keys(),
        *wiring.model_option_keys(),
        *Limits.__dataclass_fields__,
    }
    assert {key for key in keys if f"`{key}`" not in page} == set()


def test_the_agent_file_of_the_page_loads(tmp_path: Path) -> None:
    (tmp_path / "support.md").write_text("Be kind.")
    (tmp_path / "shop.py").write_text("def find_order(order_id: str) -> str:\n    return order_id\n")
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text()
    agent = load_agent_file(write(tmp_path, page.partition("```toml\n")[2].partition("```")[0]))
    assert list(agent.tool_ports()) == ["refund", "find_order"]
