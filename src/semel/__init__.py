"""semel: a runtime for LLM agents whose tools do real things. A crash neither repeats an action nor loses a word.

The public names. They are loaded when first used, so that `import semel` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semel.adapters.tools.function import tool
    from semel.adapters.tools.mcp.source import mcp_server
    from semel.core.rules import Rule
    from semel.core.turn_view import TurnView
    from semel.core.values import Usage
    from semel.errors import CallNotSent, OutcomeUnknown, SemelError, ToolFailed
    from semel.faces.agent import Agent, Limits
    from semel.faces.api import Runtime
    from semel.faces.results import Cancelled, Completed, Failed, Interrupted, Paused
    from semel.faces.sync import run_sync
    from semel.ports.hook import PostAssistant, PostTool, PreTool, PreUser, Refuse
    from semel.ports.tool import Call, Deferred, Done, File, Happened, Held, Never, StillUnknown

_HOMES = {
    "Agent": "semel.faces.agent",
    "Call": "semel.ports.tool",
    "CallNotSent": "semel.errors",
    "Cancelled": "semel.faces.results",
    "Completed": "semel.faces.results",
    "Deferred": "semel.ports.tool",
    "Done": "semel.ports.tool",
    "Failed": "semel.faces.results",
    "File": "semel.ports.tool",
    "Happened": "semel.ports.tool",
    "Held": "semel.ports.tool",
    "Interrupted": "semel.faces.results",
    "Limits": "semel.faces.agent",
    "Never": "semel.ports.tool",
    "OutcomeUnknown": "semel.errors",
    "Paused": "semel.faces.results",
    "PostAssistant": "semel.ports.hook",
    "PostTool": "semel.ports.hook",
    "PreTool": "semel.ports.hook",
    "PreUser": "semel.ports.hook",
    "Refuse": "semel.ports.hook",
    "Rule": "semel.core.rules",
    "Runtime": "semel.faces.api",
    "SemelError": "semel.errors",
    "StillUnknown": "semel.ports.tool",
    "ToolFailed": "semel.errors",
    "TurnView": "semel.core.turn_view",
    "Usage": "semel.core.values",
    "mcp_server": "semel.adapters.tools.mcp.source",
    "run_sync": "semel.faces.sync",
    "tool": "semel.adapters.tools.function",
}

__all__ = [
    "Agent",
    "Call",
    "CallNotSent",
    "Cancelled",
    "Completed",
    "Deferred",
    "Done",
    "Failed",
    "File",
    "Happened",
    "Held",
    "Interrupted",
    "Limits",
    "Never",
    "OutcomeUnknown",
    "Paused",
    "PostAssistant",
    "PostTool",
    "PreTool",
    "PreUser",
    "Refuse",
    "Rule",
    "Runtime",
    "SemelError",
    "StillUnknown",
    "ToolFailed",
    "TurnView",
    "Usage",
    "mcp_server",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'semel' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
