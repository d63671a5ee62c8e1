"""The tools and the session that the scripts play with."""

from typing import Any

from semel.core.policy import Allow, Ask, Policy, Ruling
from semel.core.values import JSON, Effect, ToolSpec
from tests.core.driver import Driver
from tests.core.machine import tool

READ, PUT, PAY = tool("read", Effect.READ), tool("put", Effect.IDEMPOTENT), tool("pay")
ASKED, DEPLOY, DEAF = tool("refund", reconciles=True), tool("deploy", sequential=True), tool("wire", interruptible=False)
TOOLS = (READ, PUT, PAY, ASKED, DEPLOY, DEAF)


def asks_for(*names: str) -> Policy:
    """A policy that asks a person about these tools."""

    def ruling(spec: ToolSpec, _arguments: dict[str, JSON]) -> Ruling:
        return Ask(rule=f"ask {spec.name}", expires_at_ms=9000) if spec.name in names else Allow()

    return ruling


def driver(**options: Any) -> Driver:
    return Driver(tools=TOOLS, **options)
