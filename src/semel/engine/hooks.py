"""Ask the hooks of an agent, and let nothing of them into the run but what they answered (A14, F18, FACT20).

A hook is foreign code: it may raise anything, return anything, or never return. Each way has one meaning for each phase, and what
was done stands as a note in the record of the content, so that a resume reads it there and asks no hook again (P35).
"""

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import MsgspecError, json
from msgspec.structs import replace

from semel.core.arguments import check_arguments, parse_arguments
from semel.core.effects import Answered
from semel.core.hook_notes import CHANGED, DENIED, FAILED, HookNote, ToolOutput
from semel.core.outcomes import Outcome, Refusal, Settlement, describe
from semel.core.plan import CUT, refusal
from semel.core.texts import HOOK_HID_RESULT, SUBMIT_TOOL
from semel.core.values import (
    JSON,
    STATE_OF_TEXT,
    AssistantMessage,
    Block,
    Opaque,
    Part,
    Text,
    ToolCall,
    ToolSpec,
    UserMessage,
    clean_json,
    clean_text,
    finite,
    printable,
)
from semel.engine.deaf import abandon
from semel.errors import HookRefused
from semel.ports.hook import Hooks, NamedHook, PostAssistant, PostTool, PreTool, PreUser, Refuse
from semel.ports.world import Clock

HOOK_SECONDS = 30.0
"""How long one hook may take to answer."""
MESSAGE_CHARS_MOST = 500
POST_TOOL_UNAVAILABLE = "post_tool_unavailable"
"""The reason of a result that a failing post-tool hook hides; for people."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A hook gave no answer that can be used; `why` is one bounded line."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Asker:
    """Asks the hooks of one agent about what happens in one session. `run_id` is empty before a run has begun."""

    hooks: Hooks
    clock: Clock
    session: str
    context: JSON
    run_id: str = ""
    step_id: int = 0

    async def message(self, text: str, parts: tuple[Part, ...] = ()) -> tuple[str, tuple[HookNote, ...]]:
        """The message as the pre-user hooks leave it, and what they did. Raises HookRefused: then nothing was accepted."""
        notes: list[HookNote] = []
        for hook in self.hooks.pre_user:
            answer = await self._ask(hook, PreUser(session=self.session, text=text, context=copy.deepcopy(self.context)))
            if isinstance(answer, Refuse):
                raise HookRefused(f"the hook {hook.name} did not let the message through: {_why(answer)}. Nothing was accepted.")
            found = _text(answer)
            if isinstance(found, str) and not found.strip():
                found = Failed(why="it returned a text without words")
            if isinstance(found, Failed):
                raise HookRefused(f"the hook {hook.name} failed, so the message was not accepted: {found.why}")
            if found is not None and found != text:
                was = UserMessage(text=text, parts=parts)
                notes.append(HookNote(phase="pre_user", hook=hook.name, verdict=CHANGED, messages=(was,)))
                text = found
        return text, tuple(notes)

    async def answer(self, answered: Answered, offered: Sequence[ToolSpec]) -> Answered:
        """The answer as the post-assistant hooks leave it, with what the pre-tool hooks say of its calls."""
        blocks, notes = await self._said(answered.blocks)
        tools = {spec.name: spec for spec in offered}
        calls = [block for block in blocks if isinstance(block, ToolCall)]
        for ordinal, call in enumerate(calls if answered.stop not in CUT else ()):
            if refusal(tools, call) is None and call.name != SUBMIT_TOOL:
                notes += await self._call(ordinal, call, tools[call.name].parameters)
        return replace(answered, blocks=tuple(blocks), hooks=tuple(notes))

    async def result(self, ordinal: int, tool: str, arguments: str, settled: Settlement) -> Settlement:
        """The result as the post-tool hooks leave it. Only a known outcome is shown to them; an unknown one no model sees (P3).

        A hook that fails hides the result: the call ran, and what it gave is kept in the note (T2, T19).
        """
        parsed = parse_arguments(arguments)
        given = {} if isinstance(parsed, Refusal) else parsed
        for hook in self.hooks.post_tool if settled.outcome is Outcome.COMPLETED else ():
            place = self._place(ordinal, tool, given)
            told = PostTool(**place, text=_shown(settled), is_error=settled.is_error)
            found = _text(await self._ask(hook, told))
            if found is None or found == told.text:
                continue
            was = ToolOutput(text=settled.text, parts=settled.parts)
            if isinstance(found, Failed):
                note = HookNote(phase="post_tool", hook=hook.name, verdict=FAILED, output=was, message=found.why)
                hidden = f"{HOOK_HID_RESULT} {hook.name}: {found.why}"
                notes = (*settled.hooks, note)
                return replace(settled, is_error=True, text=hidden, parts=(), reason=POST_TOOL_UNAVAILABLE, hooks=notes)
            note = HookNote(phase="post_tool", hook=hook.name, verdict=CHANGED, output=was)
            settled = replace(settled, text=found, parts=(), hooks=(*settled.hooks, note))
        return settled

    async def _said(self, blocks: Sequence[Block]) -> tuple[Sequence[Block], list[HookNote]]:
        """What the model said, as the hooks leave it. One that fails leaves it as it was, and its note says so (F18)."""
        notes: list[HookNote] = []
        for hook in self.hooks.post_assistant:
            message = AssistantMessage(blocks=tuple(blocks))
            told = PostAssistant(
                session=self.session,
                run_id=self.run_id,
                step_id=self.step_id,
                text=message.text,
                tools=tuple(call.name for call in message.calls),
                context=copy.deepcopy(self.context),
            )
            found = _text(await self._ask(hook, told))
            if isinstance(found, Failed):
                notes.append(HookNote(phase="post_assistant", hook=hook.name, verdict=FAILED, message=found.why))
            elif found is not None and found != message.text:
                notes.append(HookNote(phase="post_assistant", hook=hook.name, verdict=CHANGED, answer=message))
                blocks = with_text(blocks, found)
        return blocks, notes

    async def _call(self, ordinal: int, call: ToolCall, schema: str) -> list[HookNote]:
        """What the pre-tool hooks make of one call. The first that denies it, or fails, is the last that is asked."""
        notes: list[HookNote] = []
        arguments = parse_arguments(call.arguments)
        for hook in self.hooks.pre_tool:
            if isinstance(arguments, Refusal):
                break  # it is refused for that already
            answer = await self._ask(hook, PreTool(**self._place(ordinal, call.name, arguments)))
            if answer is None:
                continue
            if isinstance(answer, Refuse):
                return [*notes, _about(ordinal, hook, DENIED, message=_why(answer))]
            changed = answer if isinstance(answer, Failed) else _changed(answer, schema)
            if isinstance(changed, Failed):
                return [*notes, _about(ordinal, hook, FAILED, message=changed.why)]
            parsed = parse_arguments(changed)
            if parsed != arguments:
                notes.append(_about(ordinal, hook, CHANGED, changed=changed))
                arguments = parsed
        return notes

    async def _ask(self, hook: NamedHook, told: object) -> object:
        """What the hook answers, or Failed. It runs in a task of its own; a caller that is cancelled takes it along."""
        timer = asyncio.ensure_future(self.clock.sleep(HOOK_SECONDS))  # first, so that the hook's own time counts from its start
        asking = asyncio.ensure_future(_guarded(hook, told))
        try:
            await asyncio.wait([asking, timer], return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else Failed(why=f"it did not answer within {HOOK_SECONDS:.0f} s")
        finally:
            asking.cancel()
            timer.cancel()
            abandon(asking, f"hook {hook.name}")

    def _place(self, ordinal: int, tool: str, arguments: dict[str, JSON]) -> dict[str, Any]:
        return {
            "session": self.session,
            "run_id": self.run_id,
            "step_id": self.step_id,
            "ordinal": ordinal,
            "tool": tool,
            "arguments": copy.deepcopy(arguments),
            "context": copy.deepcopy(self.context),
        }


async def _guarded(hook: NamedHook, told: object) -> object:
    try:
        return await hook.act(told)
    except BaseException as error:  # noqa: BLE001  whatever a hook raises is its answer, and none of it may end the loop
        return Failed(why=printable(describe(error), limit=MESSAGE_CHARS_MOST))


def _text(answer: object) -> str | Failed | None:
    """A text that a hook put in the place of another; None where it left it."""
    if answer is None or isinstance(answer, Failed):
        return answer
    return clean_text(answer) if isinstance(answer, str) else Failed(why=f"it returned {type(answer).__name__}, no text or None")


def with_text(blocks: Sequence[Block], text: str) -> list[Block]:
    """The blocks with this text in the place of theirs. State that belongs to the old text goes with it; other state stays."""
    kept: list[Block] = []
    placed = False
    for block in blocks:
        old = isinstance(block, Text) or (isinstance(block, Opaque) and block.format in STATE_OF_TEXT)
        if not placed and (old or isinstance(block, ToolCall)):
            kept.append(Text(text=text))
            placed = True
        if not old:
            kept.append(block)
    return kept if placed else [*kept, Text(text=text)]


def _changed(answer: object, schema: str) -> str | Failed:
    """Other arguments as JSON text. They are held to the tool's schema like those of the model."""
    if not isinstance(answer, dict):
        return Failed(why=f"it returned {type(answer).__name__}, not arguments, Refuse or None")
    try:
        text = json.encode(clean_json(answer)).decode() if finite(answer) else ""
    except (TypeError, ValueError, OverflowError, RecursionError, AttributeError, MsgspecError) as error:
        return Failed(why=printable(f"it returned arguments that are not JSON: {describe(error)}", limit=MESSAGE_CHARS_MOST))
    if not text:
        return Failed(why="it returned arguments that hold NaN or infinity")
    parsed = parse_arguments(text)
    refused = parsed if isinstance(parsed, Refusal) else check_arguments(schema, parsed)
    if refused is not None:
        return Failed(why=printable(f"it returned arguments that cannot be used. {refused.message}", limit=MESSAGE_CHARS_MOST))
    return text


def _shown(settled: Settlement) -> str:
    return "\n".join(part.text for part in settled.parts if isinstance(part, Text)) if settled.parts else settled.text


def _about(ordinal: int, hook: NamedHook, verdict: str, *, changed: str | None = None, message: str | None = None) -> HookNote:
    return HookNote(phase="pre_tool", hook=hook.name, verdict=verdict, ordinal=ordinal, changed=changed, message=message)


def _why(refuse: Refuse) -> str:
    return printable(refuse.why, limit=MESSAGE_CHARS_MOST) if isinstance(refuse.why, str) else "it did not say why"
