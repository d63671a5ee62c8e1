"""A process of its own that asks a peer in every family: `python -m tests.judges.programs.asking URL [broken]`.

With `broken` it renders what no provider takes once a conversation holds the result of a call.
"""

import asyncio
import json
import sys

from semel import Agent, Completed, Runtime, tool
from semel.adapters.models.families import FAMILIES
from semel.adapters.models.rendering import Renderer
from semel.testing.ground import memory_ground
from tests.judges.broken import BREAK


@tool(effect="read")
def look(city: str = "") -> str:
    """Look."""
    if not city:
        raise ValueError("no city")
    return f"rain in {city}"


async def ask(url: str) -> None:
    for family in sorted(FAMILIES):
        agent = Agent("asking", model=f"{family}:m@{url}", instructions="Work.", tools=[look])
        async with Runtime(agents=[agent], ground=memory_ground()) as runtime:
            result = await (await runtime.session("s", agent=agent).send("Go. 🌧")).result()
        assert isinstance(result, Completed), result


def break_what_is_rendered() -> None:
    """Plant the fault."""
    render = Renderer.render

    def broken(self, prompt):
        request = render(self, prompt)
        body = json.loads(request.body)
        if len(prompt.messages) < 2:
            return request
        BREAK[self._form._bundle.family](body)
        return type(request)(body=json.dumps(body).encode(), sha256=request.sha256)

    Renderer.render = broken


if __name__ == "__main__":
    if sys.argv[2:] == ["broken"]:
        break_what_is_rendered()
    asyncio.run(ask(sys.argv[1]))
