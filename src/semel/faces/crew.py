"""The agents that a runtime knows, and what their runs are made of: the frozen part for the log, and the live part (a kit)."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from semel.core.effects import Send
from semel.core.guards import check_tools
from semel.core.policy import Policy
from semel.core.records import AgentRef, Delivery
from semel.core.state import Run, Session
from semel.core.values import JSON, Part
from semel.engine.kit import Kit
from semel.errors import BadAgent
from semel.faces.agent import Agent, kit_for_new_run, kit_for_open_run, refrozen_config, send_command
from semel.faces.policies import rulebook
from semel.ports.world import Clock

AgentAny = Agent[Any]
Parts = tuple[Part, ...]
AgentFinder = Callable[[AgentRef, str], AgentAny]
"""Finds the agent that the log of a session names. Raises BadAgent, whose message says what to do."""


class Crew:
    """Agents by name; `find` is asked for one that is not among them."""

    def __init__(self, agents: Sequence[AgentAny], deps: object, find: AgentFinder | None, clock: Clock) -> None:
        """`deps` are the live objects that tools get."""
        self._agents = {agent.name: agent for agent in agents}
        self._deps = deps
        self._find = find
        self._clock = clock

    @property
    def names(self) -> frozenset[str]:
        """Those that are registered."""
        return frozenset(self._agents)

    def add(self, agent: AgentAny) -> None:
        """Register an agent, unless one of that name is."""
        self._agents.setdefault(agent.name, agent)

    def agent_of(self, ref: AgentRef, session: str) -> AgentAny:
        """The agent that a log names. Raises BadAgent."""
        agent = self._agents.get(ref.name)
        if agent is None and self._find is not None:
            return self._find(ref, session)
        if agent is None:
            raise BadAgent(f"no agent {ref.name!r} is registered here; pass it in `agents`")
        return agent

    def policy_of(self, run: Run, session: str) -> Policy:
        """What rules on the calls of an open run that is not carried; where its agent is not here, only what the operator says.

        Raises BadSettings where that cannot be read.
        """
        try:
            agent = self.agent_of(run.agent, session)
        except BadAgent:
            return rulebook((), {}, None, self._clock.now_ms)
        return rulebook(agent.policy, agent.tool_ports(), None, self._clock.now_ms)

    async def new_run(
        self,
        agent: AgentAny,
        text: str,
        key: str,
        context: JSON,
        delivery: Delivery | None = None,
        *,
        parts: Parts = (),
        starts: bool = True,
    ) -> tuple[Send, Kit]:
        """What a run of this agent starts with. Raises BadAgent, BadSettings, UnknownModel.

        Where no run `starts` with it, as with a message for an open one, the agent's sources are not asked what they offer.
        """
        kit = kit_for_new_run(agent, self._deps, self._clock, await agent.offered() if starts else ())
        return replace(send_command(agent, kit, text, key, context, parts=parts), delivery=delivery), kit

    def kit_of(self, run: Run, session: str) -> Kit:
        """The live objects of an open run. Raises BadAgent, BundleRefused."""
        agent = self.agent_of(run.agent, session)
        config = refrozen_config(agent, run, self._clock)
        kit = kit_for_open_run(agent, run, self._deps, self._clock, config)
        return kit if config is None else dataclasses.replace(kit, refrozen=config)

    def check(self, run: Run, session: str) -> None:
        """Raises BadAgent where the agent of an open run is not found or has other tools, and BundleRefused."""
        kit = self.kit_of(run, session)
        check_tools(run.tools, {name: tool.spec for name, tool in kit.tools.items()}, run.agent.name)

    def output_of(self, state: Session, run_id: str | None) -> type[Any] | None:
        """The output type of a run's agent, if that is registered here."""
        ended = state.ended.get(run_id) if run_id is not None else None
        ref = ended.agent if ended is not None else state.run.agent if state.run is not None else None
        agent = self._agents.get(ref.name) if ref is not None else None
        return agent.output if agent is not None else None
