"""A server of the official package, for tests: it counts, shows a picture, fails, tells progress, and waits to be cancelled."""

import asyncio
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.types import ToolAnnotations

app = MCPServer("official")
seen: list[str] = []


@app.tool(annotations=ToolAnnotations(read_only_hint=True))
def count(word: str, times: int = 1) -> str:
    """Count the words so far."""
    seen.extend([word] * times)
    return f"{len(seen)} words, the last is {word}"


@app.tool()
def picture() -> Image:
    return Image(data=b"\x89PNG\r\n\x1a\n", format="png")


@app.tool()
def fail() -> str:
    raise ValueError("no such order")


@app.tool()
async def work(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half of it")
    return "all of it"


@app.tool()
async def wait() -> str:
    note = Path(sys.argv[1])
    note.write_text("waiting")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        note.write_text("cancelled")
        raise
    return "never"


app.run()
