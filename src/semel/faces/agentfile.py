"""Agent files (design 11): an agent that needs no code. `agent.toml` -> Agent; every mistake is one line that names the key.

    name = "support"
    model = "openai:gpt-5"
    instructions = "file:support.md"
    limits = { steps = 40 }

    [tools.refund]
    command = ["./refund", "{order_id}", "{cents}"]
    args = { order_id = "string", cents = "integer" }
    ask = "cents > 5000"

    [[policy]]
    decision = "deny"
    tool = "refund"
    when = "cents > 100000"

Relative paths start from the directory of the file, so that a resume from elsewhere finds the same agent.
"""

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from semel import wiring
from semel.core.keys import canonical
from semel.core.values import Effect, ToolSpec, digest_text
from semel.errors import BadAgent, BadSettings
from semel.faces.agent import Agent, Limits, check_policy
from semel.faces.importing import import_named
from semel.faces.policies import rules_of
from semel.faces.reading import read_small
from semel.ports.source import ToolSource
from semel.ports.tool import ToolPort

FILE_NAME = "agent.toml"
KEYS = ("name", "model", "instructions", "limits", "model_options", "policy", "tools")
_FILE, _SCRIPTED = "file:", "scripted:"
_LIMITS = tuple(Limits.__dataclass_fields__)


class _Top(msgspec.Struct, kw_only=True):
    """The file's own keys by type. What is inside `model_options` and a tool is checked by those who read it."""

    name: str
    model: str
    instructions: str = ""
    limits: dict[str, Any] = {}
    model_options: dict[str, Any] = {}
    policy: list[dict[str, Any]] = []
    tools: dict[str, dict[str, Any]] = {}


def load_agent_file(path: Path) -> Agent[str]:
    """Read an agent file. Raises BadAgent with the file, the key and what is allowed, in one line."""
    path = path.absolute()
    table = _parse(path, _read(path))
    _check_keys(path, "", table, KEYS)
    top = _converted(path, "", table, _Top)
    told, files = _instructions(path, top.instructions)
    try:
        agent: Agent[str] = Agent(
            top.name,
            model=_model(path, top.model),
            instructions=told,
            tools=[_tool(path, name, tool) for name, tool in top.tools.items()],
            limits=_limits(path, top.limits),
            model_options=_model_options(path, top.model_options),
            policy=rules_of(top.policy),
            source=str(path),
            digest=digest_text(canonical([table, files])),
        )
        check_policy(agent)
    except BadAgent as error:
        raise error if str(error).startswith(str(path)) else BadAgent(f"{path}: {error}") from error
    return agent


def reconcile_command(path: Path, name: str, arguments: Mapping[str, Any], key: str) -> str | None:
    """The line for a shell with which a tool of an agent file is asked what became of a call; None where it declares none.

    The rest of the file is not looked at, and nothing is imported. Raises BadAgent.
    """
    path = path.absolute()
    table = _converted(path, "", _parse(path, _read(path)), _Top).tools.get(name, {})
    return wiring.reconcile_command(name, table, path.parent, arguments, key) if "command" in table else None


def _read(path: Path) -> str:
    try:
        return read_small(path).decode()
    except OSError as error:
        raise BadAgent(f"the agent file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadAgent(f"{path} is not UTF-8 text (byte {error.start})") from None


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadAgent(f"{path} is not TOML: {error}") from None


def _check_keys(path: Path, place: str, table: Mapping[str, Any], allowed: Iterable[str]) -> None:
    """Refuse a key that nothing reads."""
    for key in table:
        if key in allowed:
            continue
        raise BadAgent(f"{path}: {place}{key} is no key; {_nearest(key, allowed)}allowed are {', '.join(allowed)}")


def _nearest(word: str, allowed: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(allowed), n=1)
    return f"did you mean {close[0]}? " if close else ""


def _converted(path: Path, place: str, table: Mapping[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise BadAgent(f"{path}: {_said(place, str(error))}") from None


def _said(place: str, text: str) -> str:
    """A conversion error in the words of the file: where, then what."""
    what, _, where = text.partition(" - at `")
    key = where.removesuffix("`").removeprefix("$").removeprefix(".")
    subject = f"{place}{key}".rstrip(".")
    return f"{subject}: {what}" if subject else what.replace("Object missing", "it lacks the").replace("field `", "key `")


def _instructions(path: Path, text: str) -> tuple[str, list[str]]:
    """The text, and what was read for it."""
    if not text.startswith(_FILE):
        return text, []
    told = path.parent / text.removeprefix(_FILE)
    try:
        found = read_small(told).decode()
    except OSError as error:
        raise BadAgent(f"{path}: instructions: {told} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadAgent(f"{path}: instructions: {told} is not UTF-8 text") from None
    return found, [found]


def _model(path: Path, model: str) -> str:
    script = model.removeprefix(_SCRIPTED)
    return f"{_SCRIPTED}{path.parent / script}" if script != model else model


def _limits(path: Path, table: Mapping[str, Any]) -> Limits:
    _check_keys(path, "limits.", table, _LIMITS)
    limits: Limits = _converted(path, "limits.", table, Limits)
    try:
        limits.frozen()
    except BadSettings as error:
        raise BadAgent(f"{path}: limits: {error}") from None
    return limits


def _model_options(path: Path, table: dict[str, Any]) -> dict[str, Any]:
    _check_keys(path, "model_options.", table, wiring.model_option_keys())
    try:
        wiring.check_model_options(table)
    except BadSettings as error:
        raise BadAgent(f"{path}: {error}") from None
    return table


def _tool(path: Path, name: str, table: Mapping[str, Any]) -> ToolPort | ToolSource:
    place = f"tools.{name}."
    if "python" in table:
        return _python_tool(path, name, table)
    if "mcp" in table:
        _check_keys(path, place, table, wiring.mcp_keys())
        _check_effect(path, place, table)
        return wiring.mcp_server(name, table, path.parent)
    allowed = ("python", "mcp", *wiring.command_keys())
    _check_keys(path, place, table, allowed)
    if "command" not in table:
        raise BadAgent(
            f'{path}: {place}command is missing; write command = ["program", "{{argument}}"], or python = "module:function", '
            f'or mcp = ["server"]'
        )
    _check_effect(path, place, table)
    return wiring.command_tool(name, table, path.parent)


def _check_effect(path: Path, place: str, table: Mapping[str, Any]) -> None:
    effects = [str(effect) for effect in Effect]
    effect = table.get("effect", Effect.ONCE)
    if effect not in effects:
        raise BadAgent(
            f"{path}: {place}effect is {', '.join(effects)}, not {effect!r}; {_nearest(str(effect), effects)}".rstrip("; ")
        )


def _python_tool(path: Path, name: str, table: Mapping[str, Any]) -> ToolPort:
    """A function of a module beside the file; what else there is to say of it, its decorator says."""
    place = f"tools.{name}."
    others = [key for key in table if key != "python"]
    if others:
        raise BadAgent(f"{path}: {place}{others[0]}: a python tool says that in its own @tool(...); take it out here")
    if not isinstance(table["python"], str):
        raise BadAgent(f'{path}: {place}python: write "module:function"')
    try:
        found = import_named(table["python"], path.parent)
        is_tool = callable(found) or isinstance(getattr(found, "spec", None), ToolSpec)
        tool = wiring.as_tool(found) if is_tool else None
    except BadAgent as error:
        raise BadAgent(f"{path}: {place}python: {error}") from error
    if tool is None:
        raise BadAgent(f"{path}: {place}python: {table['python']} is a {type(found).__name__}, not a function")
    if tool.spec.name != name:
        raise BadAgent(
            f"{path}: tools.{name}: {table['python']} is the tool {tool.spec.name!r}; name the table [tools.{tool.spec.name}]"
        )
    return tool
