"""Where an agent comes from, and how it is found again (design 14, "Agent reference").

A reference is the path of an agent file, `module:name`, or `--model NAME` for an agent that is nothing but a model. A log
holds it, so it says what a resume loads and runs: that is trusted as far as the log is. The store opens no log that belongs
to somebody else, and nothing else brings one from elsewhere.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from semel.core.records import AgentRef
from semel.errors import BadAgent
from semel.faces.agent import Agent
from semel.faces.agentfile import FILE_NAME, load_agent_file
from semel.faces.importing import REFERENCE, import_named

_MODEL_ONLY = "--model "
_REMEDY = "pass it with `--agent FILE`; nothing was written"


def load_agent(reference: str) -> Agent[Any]:
    """The agent behind a path or `module:name`; relative to the working directory. Raises BadAgent."""
    if REFERENCE.fullmatch(reference) and not Path(reference).exists():
        found = import_named(reference, Path.cwd())
        if not isinstance(found, Agent):
            raise BadAgent(f"{reference} is a {type(found).__name__}, not an Agent")
        return replace(found, source=reference)
    return load_agent_file(Path(reference))


def default_agent(model: str | None) -> Agent[Any]:
    """The agent of this directory; without a file, one that is nothing but the model. Raises BadAgent if there is neither."""
    if Path(FILE_NAME).exists():
        return with_model(load_agent_file(Path(FILE_NAME)), model)
    if model is None:
        raise BadAgent(f"there is no {FILE_NAME} here; write one with `semel init`, or pass `--agent FILE` or `--model NAME`")
    return _model_only(model)


def with_model(agent: Agent[Any], model: str | None) -> Agent[Any]:
    """The agent, asking another model where one is given."""
    if model is None:
        return agent
    # A key that the agent's own model was configured with goes to no other host.
    options = {name: value for name, value in agent.model_options.items() if name != "key_env"}
    return replace(agent, model=model, model_options=options)


def find_agent(ref: AgentRef) -> Agent[Any]:
    """The agent that a log names. Raises BadAgent, which says what to pass instead."""
    source = ref.source
    if source is None:
        raise BadAgent(f"the agent {ref.name!r} was made by a program and cannot be found from here; {_REMEDY}")
    if source.startswith(_MODEL_ONLY):
        return _model_only(source.removeprefix(_MODEL_ONLY))
    if not REFERENCE.fullmatch(source) and not Path(source).is_file():
        raise BadAgent(f"the agent {ref.name!r} was loaded from {source}, which is not there any more; {_REMEDY}")
    try:
        return named(load_agent(source), ref)
    except BadAgent as error:
        raise BadAgent(f"the agent {ref.name!r} of the log cannot be loaded: {error}; {_REMEDY}") from error


def named(agent: Agent[Any], ref: AgentRef) -> Agent[Any]:
    """The agent, if it is the one that the log means. Raises BadAgent."""
    if agent.name != ref.name:
        raise BadAgent(f"the log needs the agent {ref.name!r}, but {agent.source} defines {agent.name!r}")
    return agent


def _model_only(model: str) -> Agent[Any]:
    return Agent("assistant", model=model, source=f"{_MODEL_ONLY}{model}")
