"""What a developer declares: an agent, its limits, and how both become what a run is frozen to."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Generic, TypeVar

from msgspec import MsgspecError, convert, json
from msgspec.structs import replace

from semel import wiring
from semel.core import limits as core_limits
from semel.core.effects import Resolve, Send
from semel.core.guards import check_wire
from semel.core.keys import canonical
from semel.core.records import AgentRef, Config, Verdict
from semel.core.rules import Rule
from semel.core.state import Run
from semel.core.texts import SUBMIT_TOOL
from semel.core.turn_view import StopCondition
from semel.core.values import JSON, Bundle, Money, Part, ToolSpec, clean_json, clean_text, digest_text, finite
from semel.engine.kit import Kit
from semel.errors import BadAgent, BadSettings, SemelError
from semel.faces.output import output_schema
from semel.faces.policies import check_own_rules, rulebook
from semel.ports.hook import Hooks, NamedHook
from semel.ports.model import ModelPort
from semel.ports.source import OpenSource, ToolSource
from semel.ports.tool import ToolPort
from semel.ports.world import Clock

OutputT = TypeVar("OutputT")
NAME_CHARS_MOST = 100
KEY_CHARS_MOST = 256
WALL_SECONDS_MOST = 366 * 86_400
_DEFAULT = core_limits.Limits()
_COUNTS = ("steps", "tokens", "result_bytes", "output_retries", "parallel_calls", "model_retries", "repeated_calls")
PHASES = ("pre_user", "post_assistant", "pre_tool", "post_tool")
Hook = Callable[[Any], object]
"""A function that is given one of `PreUser`, `PostAssistant`, `PreTool`, `PostTool`, plain or async."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Where a run stops by name. `cost` is written like "1.00 USD" and needs a model with a known price; None is no limit.

    `tokens` counts input and output; `wall_seconds` counts the time in which the run was running, not the time it lay still;
    `repeated_calls` is how many turns in a row may make exactly the same calls. At 80 % of a budget the model is told, once.
    """

    steps: int = _DEFAULT.steps
    tokens: int = _DEFAULT.tokens
    cost: str | None = None
    wall_seconds: float = _DEFAULT.wall_ms / 1000
    result_bytes: int = _DEFAULT.result_bytes
    output_retries: int = _DEFAULT.output_retries
    parallel_calls: int = _DEFAULT.parallel_calls
    model_retries: int = _DEFAULT.model_retries
    repeated_calls: int = _DEFAULT.repeated_calls

    def frozen(self) -> core_limits.Limits:
        """As a run records them. Raises BadSettings for a value that makes no sense."""
        for name in _COUNTS:
            value, least = getattr(self, name), 0 if name == "model_retries" else 1
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise BadSettings(f"the limit {name} must be a whole number of at least {least}, not {value!r}")
        wall = self.wall_seconds
        if not isinstance(wall, int | float) or not 0 < wall <= WALL_SECONDS_MOST:
            raise BadSettings(f"the limit wall_seconds must be above 0 and at most {WALL_SECONDS_MOST}, not {wall!r}")
        return core_limits.Limits(
            steps=self.steps,
            tokens=self.tokens,
            cost=None if self.cost is None else parse_money(self.cost),
            wall_ms=int(self.wall_seconds * 1000),
            result_bytes=self.result_bytes,
            output_retries=self.output_retries,
            parallel_calls=self.parallel_calls,
            model_retries=self.model_retries,
            repeated_calls=self.repeated_calls,
        )


def parse_money(text: str) -> Money:
    """Money from text like 1.00 USD. Raises BadSettings."""
    amount, _, currency = str(text).strip().partition(" ")
    try:
        micros = int(Decimal(amount) * 1_000_000)
    except (InvalidOperation, ValueError, OverflowError):
        micros = -1
    if micros <= 0 or len(currency) != 3 or not currency.isalpha() or not currency.isupper():
        raise BadSettings(f'{text!r} is not a cost limit; write it like "1.00 USD"')
    return Money(micros=micros, currency=currency)


@dataclass(frozen=True)
class Agent(Generic[OutputT]):
    """An agent: a model, instructions, tools, and optionally the type of its output.

    `model` is a name like `openai:gpt-5` or `openai_chat:NAME@http://127.0.0.1:8000/v1`, or a model object. `instructions` is
    text or a function of the run's context; what it gives is frozen in `run_started`. `policy` are rules for its calls, of which
    the first that matches decides. `stop_after_turn` ends a run behind a turn of which it is true; it is pure: a resume asks it
    again. `pre_user`, `post_assistant`, `pre_tool` and `post_tool` are hooks, one or several. `source` and `digest` say where
    the agent came from, so that the command line can find it again.
    """

    name: str
    _: KW_ONLY
    model: str | ModelPort
    instructions: str | Callable[[JSON], str] = ""
    tools: Sequence[ToolPort | ToolSource | Callable[..., object]] = ()
    output: type[OutputT] | None = None
    limits: Limits = field(default_factory=Limits)
    model_options: Mapping[str, object] = field(default_factory=dict)
    policy: Sequence[Rule] = ()
    stop_after_turn: StopCondition | None = None
    pre_user: Hook | Sequence[Hook] = ()
    post_assistant: Hook | Sequence[Hook] = ()
    pre_tool: Hook | Sequence[Hook] = ()
    post_tool: Hook | Sequence[Hook] = ()
    source: str | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        if not self.name or not self.name.isprintable() or len(self.name) > NAME_CHARS_MOST:
            raise BadAgent(f"an agent needs a printable name of 1 to {NAME_CHARS_MOST} characters, not {self.name!r}")
        if any(not isinstance(rule, Rule) for rule in self.policy):
            raise BadAgent(f"the policy of agent {self.name!r} is a list of Rule")

    def tool_ports(self, provided: Iterable[ToolPort] = ()) -> dict[str, ToolPort]:
        """Its own tools by name, and those that its sources have `provided`.

        Plain functions become tools with the default effect. Raises BadAgent for a name used twice.
        """
        ports: dict[str, ToolPort] = {}
        own = (wiring.as_tool(given) for given in self.tools if not isinstance(given, ToolSource))
        for port in (*own, *provided):
            name = port.spec.name
            if name in ports or name == SUBMIT_TOOL:
                raise BadAgent(f"agent {self.name!r} has two tools called {name!r}, or one of a reserved name")
            ports[name] = port
        return ports

    def sources(self) -> list[ToolSource]:
        """Those of whom its other tools are. Raises BadAgent for one that is given twice."""
        found = [given for given in self.tools if isinstance(given, ToolSource)]
        if len({source.module for source in found}) < len(found):
            raise BadAgent(f"agent {self.name!r} has two sources of tools under one name")
        return found

    async def offered(self) -> list[ToolSpec]:
        """What its sources offer now, for a run that starts. Raises BadAgent."""
        sources = self.sources()
        if not sources:
            return []
        lists = await asyncio.gather(*(source.offered() for source in sources), return_exceptions=True)
        for found in lists:
            if isinstance(found, BadAgent):
                raise BadAgent(f"{self.source or f'agent {self.name!r}'}: {found}") from found
            if isinstance(found, BaseException):
                raise found
        return [spec for specs in lists if not isinstance(specs, BaseException) for spec in specs]

    def model_port(self, clock: Clock) -> ModelPort:
        """Its model as its name stands today. Raises UnknownModel, BadSettings."""
        return wiring.model_named(self.model, self.model_options, clock) if isinstance(self.model, str) else self.model

    def hooks(self) -> Hooks:
        """Its hooks, each phase in its order. Raises BadAgent."""
        named: dict[str, tuple[NamedHook, ...]] = {}
        for phase in PHASES:
            given: Hook | Sequence[Hook] = getattr(self, phase)
            several = [given] if callable(given) else given
            named[phase] = tuple(wiring.as_hook(hook, phase) for hook in several)
        return Hooks(**named)

    def output_schema(self) -> str | None:
        """The JSON Schema of its output, as canonical text."""
        return None if self.output is None else output_schema(self.output)


def kit_for_new_run(agent: Agent[OutputT], deps: object, clock: Clock, offered: Sequence[ToolSpec] = ()) -> Kit:
    """The live objects of a run that starts now; `offered` is what its sources have said.

    Raises BadSettings where its model lacks its key, or its limits cannot hold.
    """
    model = agent.model_port(clock)
    missing = wiring.key_missing(model.bundle, agent.model_options)
    if missing is not None:
        raise BadSettings(f"agent {agent.name!r} cannot reach its model: {missing}")
    if agent.limits.cost is not None:
        _check_cost_limit(agent, model.bundle)
    served = _served(agent, offered, None)
    return _kit(agent, model, deps, clock, served, owns_model=model is not agent.model)


def _check_cost_limit(agent: Agent[Any], bundle: Bundle) -> None:
    """Raise BadSettings for a limit that could not hold: without a price, or with one in another currency."""
    limit, currency = agent.limits.frozen().cost, wiring.cost_currency(bundle)
    what = f"agent {agent.name!r} has a cost limit"
    if currency is None:
        raise BadSettings(
            f"{what}, but no price is known for {bundle.model}; set `price` in its row of models.toml or in the model options, "
            f"or drop the limit"
        )
    if limit is not None and limit.currency != currency:
        raise BadSettings(f"{what} in {limit.currency}, but {bundle.model} is paid in {currency}; write the limit in {currency}")


def kit_for_open_run(agent: Agent[OutputT], run: Run, deps: object, clock: Clock, config: Config | None = None) -> Kit:
    """The live objects of a run that is resumed: its tools of today, its model as it was frozen (P4). Raises BadAgent.

    `config` is another one than the run has, where it goes on with that. Its sources are not asked: they serve the tools that it
    was frozen with, or refuse each call of one that changed (SOURCE-3).
    """
    config = config or run.config
    check_wire(config)
    bundle = config.bundle
    given = None if isinstance(agent.model, str) else agent.model
    own = given is not None and given.bundle == bundle
    model = given if given is not None and own else wiring.model_frozen(bundle, _options_for(agent, bundle, clock), clock)
    return _kit(agent, model, deps, clock, _served(agent, run.tools, run.run_id), owns_model=model is not given)


def refrozen_config(agent: Agent[OutputT], run: Run, clock: Clock) -> Config | None:
    """The config of a run whose key was refused before a model answered, as its door is today; None where it stays (P11).

    Only how the key is shown may be another one now: endpoint, model and the bytes of the request stay what they were (P4).
    Behind an answer that is frozen, too (P5).
    """
    if run.model_steps or run.pause is None or run.pause.reason != "auth_required":
        return None
    try:
        today = agent.model_port(clock).bundle
    except SemelError:
        return None  # what its name stands for today is nothing; the run has no need of it
    return replace(run.config, bundle=today) if wiring.opened_otherwise(run.config.bundle, today) else None


def check_policy(agent: Agent[OutputT]) -> None:
    """Raise BadAgent for rules that name an argument which no tool of theirs has; of a source's tools, only when a run starts."""
    check_own_rules(agent.policy, agent.tool_ports())
    agent.sources()


def _served(agent: Agent[OutputT], specs: Sequence[ToolSpec], run_id: str | None) -> list[OpenSource]:
    return [source.open([spec for spec in specs if spec.module == source.module], run_id) for source in agent.sources()]


def _kit(
    agent: Agent[OutputT], model: ModelPort, deps: object, clock: Clock, served: Sequence[OpenSource], *, owns_model: bool
) -> Kit:
    tools = agent.tool_ports(port for source in served for port in source.tools.values())
    try:
        policy = rulebook(agent.policy, tools, agent.stop_after_turn, clock.now_ms)
    except BadAgent as error:
        raise BadAgent(f"agent {agent.name!r}: {error}") from None
    return Kit(model=model, tools=tools, deps=deps, owns_model=owns_model, policy=policy, hooks=agent.hooks(), sources=served)


def _options_for(agent: Agent[OutputT], bundle: Bundle, clock: Clock) -> Mapping[str, object]:
    """The model options of an open run. The variable of a key holds for the endpoint it was configured with, and no other."""
    if "key_env" not in agent.model_options or not isinstance(agent.model, str):
        return agent.model_options
    if wiring.model_named(agent.model, agent.model_options, clock).bundle.endpoint == bundle.endpoint:
        return agent.model_options
    return {name: value for name, value in agent.model_options.items() if name != "key_env"}


def send_command(agent: Agent[OutputT], kit: Kit, text: str, key: str, context: JSON, *, parts: tuple[Part, ...] = ()) -> Send:
    """What a run of this agent freezes. Raises BadAgent where instructions cannot be rendered, BadSettings for a bad context."""
    return Send(
        key=key,
        text=text,
        agent=AgentRef(name=agent.name, source=agent.source, digest=agent.digest or _digest(agent, kit)),
        config=_config(agent, kit.model.bundle),
        instructions=_rendered(agent, context),
        tools=tuple(port.spec for port in kit.tools.values()),
        context=context,
        parts=parts,
    )


def _config(agent: Agent[OutputT], bundle: Bundle) -> Config:
    """What a run of this agent is frozen to. What a family keeps of its provider's state is a policy of the run (M2, M15)."""
    policies = wiring.state_policies(bundle)
    return Config(
        bundle=bundle,
        limits=agent.limits.frozen(),
        output_schema=agent.output_schema(),
        provider_text_state=policies.text_state,
        reasoning_echo=policies.reasoning_echo,
    )


def checked_delivery(text: str, key: str, context: JSON) -> tuple[str, str, JSON]:
    """A message, its key and its context as the log will hold them: clean text, and JSON as it reads back (B19).

    Raises BadSettings for what no log or no provider would take.
    """
    if not isinstance(text, str) or not text.strip():
        raise BadSettings("a message needs words; an empty one is refused by providers")
    if not isinstance(key, str) or not 0 < len(key) <= KEY_CHARS_MOST or not key.isprintable():
        raise BadSettings(f"a key is printable text of 1 to {KEY_CHARS_MOST} characters, not {key!r}")
    try:
        if not finite(context):
            raise ValueError("it holds NaN or infinity")  # noqa: TRY301  one place says what a context may be
        read_back = json.decode(json.encode(clean_json(context)))
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError, MsgspecError) as error:
        raise BadSettings(f"the context is not JSON: {error}") from None
    return clean_text(text), clean_text(key), read_back


def checked_verdict(call_key: str, verdict: Verdict, *, by: str, output: str | None, note: str | None) -> Resolve:
    """What a person found out, as the log will hold it. Raises BadSettings for another word or a wrong type."""
    cleaned = {
        "call_key": call_key,
        "verdict": verdict,
        "by": clean_text(by) if isinstance(by, str) else by,
        "output": clean_text(output) if isinstance(output, str) else output,
        "note": clean_text(note) if isinstance(note, str) else note,
    }
    try:
        return convert(cleaned, Resolve)
    except MsgspecError as error:
        raise BadSettings(f"the verdict cannot be recorded: {error}") from None


def _rendered(agent: Agent[OutputT], context: JSON) -> str:
    if isinstance(agent.instructions, str):
        return clean_text(agent.instructions)
    try:
        return clean_text(agent.instructions(context))
    except Exception as error:
        raise BadAgent(f"the instructions of agent {agent.name!r} failed: {type(error).__name__}: {error}") from error


def _digest(agent: Agent[OutputT], kit: Kit) -> str:
    """Of what decides what the agent does; instructions that are a function count as their name, sources as theirs."""
    told = agent.instructions if isinstance(agent.instructions, str) else getattr(agent.instructions, "__qualname__", "function")
    specs = json.encode([port.spec for port in kit.tools.values() if port.spec.module is None]).decode()
    rules = [[rule.told() for rule in agent.policy]] if agent.policy else []
    sources = [[source.module for source in agent.sources()]] if agent.sources() else []
    own = [agent.name, str(kit.model.bundle.model), told, specs, agent.output_schema()]
    return digest_text(canonical([*own, *rules, *sources]))
