"""The prompt of the next request, from the state alone (P1): whole or repaired turns, in the order of the log.

A steer, follow-up, late result or verdict stands where the step drained it that first rendered it, so never between a call and
its result; results stand in the order of their calls; an unknown outcome says that it is one until a verdict takes its place.
"""

from collections.abc import Mapping

from semel.core.places import FindRecord
from semel.core.plan import offered
from semel.core.state import Run, Session
from semel.core.transcript import messages_of
from semel.core.values import NO_MEDIA, AssistantMessage, Prompt
from semel.core.wire_ids import IdRule, wire_ids


def prompt_of(state: Session, run: Run, find: FindRecord, media: Mapping[str, bytes] = NO_MEDIA) -> Prompt:
    """What the open step renders. Equal states give equal prompts, and a prompt names nothing that a log assigned.

    Each message is read from the log when it is taken, so a renderer that keeps what it rendered reads only what is new. `media`
    holds the bytes of the files that the conversation names.
    """
    return Prompt(instructions=run.instructions, tools=offered(run), messages=messages_of(state, find), media=media)


def call_ids_of(prompt: Prompt, rule: IdRule) -> dict[str, str]:
    """The ids of the prompt's calls as a provider with this rule takes them; results name the same ids (B10)."""
    answers = (message for message in prompt.messages if isinstance(message, AssistantMessage))
    return wire_ids((call.id for answer in answers for call in answer.calls), rule)
