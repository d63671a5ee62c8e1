"""The scripted model in this process: the replies of `script_steps`, decoded as if they had come over a socket."""

import hashlib
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

from semel.adapters.models.deadline import Limits
from semel.adapters.models.decoding import Undecodable
from semel.adapters.models.openai_chat.decode import chat_decoder
from semel.adapters.models.openai_chat.options import OPENAI_CHAT, ChatOptions
from semel.adapters.models.openai_chat.render import ChatForm
from semel.adapters.models.openai_errors import OPENAI_ERRORS, refusal
from semel.adapters.models.rendering import Renderer
from semel.adapters.models.script import Script, parse_script
from semel.adapters.models.script_chat import ChatFormat
from semel.adapters.models.script_steps import End, Head, HoldHere, Pause, ScriptServer, Send, Silence, Step
from semel.adapters.models.server_error import ServerError, failed
from semel.core.values import Bundle, Prompt
from semel.errors import UnknownModel
from semel.ports.model import Answer, Delta, Exchange, FailureClass, ModelFailed, Rendered, Request
from semel.ports.world import Clock

FAMILY = "scripted"
SPOKEN = OPENAI_CHAT.name  # the family whose words it understands
_POLL_SECONDS = 0.01


def load_script(path: str) -> Script:
    """Read a script file. Raises UnknownModel if there is none, BadSettings if it cannot be read as one."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise UnknownModel(f"the scripted model {path} cannot be opened: {error.strerror}") from None
    return parse_script(text, path)


def scripted_bundle(path: str) -> Bundle:
    """What a run with this script freezes: the file's absolute path is its endpoint."""
    return Bundle(family=FAMILY, model=Path(path).name, endpoint=str(Path(path).absolute()), renderer=OPENAI_CHAT.renderer)


class ScriptedModel:
    """A model whose answers are written down. Implements ports.model.ModelPort."""

    def __init__(self, *, bundle: Bundle, script: Script, clock: Clock, limits: Limits | None = None) -> None:
        """`limits` decide when a silent reply is given up, as over HTTP."""
        self._bundle, self._clock, self._limits = bundle, clock, limits or Limits()
        self._options = ChatOptions()
        self._renderer = Renderer(ChatForm(bundle, self._options), bundle)
        self._script = ScriptServer(script, ChatFormat())

    @property
    def bundle(self) -> Bundle:
        """What is frozen into the run."""
        return self._bundle

    def render(self, prompt: Prompt) -> Request:
        """The request that a generic chat completions server would get."""
        return self._renderer.render(prompt)

    def rendered(self) -> Renderer:
        """What it has rendered so far."""
        return self._renderer

    def go_on_from(self, rendered: Rendered) -> None:
        """Take up what a model of an equal bundle rendered: that decides all bytes."""
        if isinstance(rendered, Renderer) and rendered.bundle == self._bundle:
            self._renderer = rendered

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """Play the reply to `request`. Raises ModelFailed as the HTTP adapter would."""
        decoder, received, head = chat_decoder(self._options), bytearray(), Head(status=200, headers={})
        try:
            for step in self._script.reply(request.body):
                if isinstance(step, Head):
                    head = step
                elif isinstance(step, Send):
                    received += step.body
                    for text in decoder.feed(step.body) if head.status == 200 else ():
                        yield Delta(text=text)
                elif isinstance(step, End) and head.status != 200:
                    error = refusal(head.status, head.headers, bytes(received))
                    raise self._failed(error, _facts(head, received), head.headers)
                else:
                    await self._wait(step, _facts(head, received))
            decoded = decoder.result()
        except Undecodable as problem:
            raise self._unusable(problem, _facts(head, received), head.headers) from None
        yield Answer(
            blocks=decoded.blocks,
            stop=decoded.stop,
            usage=decoded.usage,
            exchange=_facts(head, received),
            raw_stop=decoded.raw_stop,
        )

    async def close(self) -> None:
        """Nothing is open."""

    async def _wait(self, step: Step, facts: Exchange) -> None:
        if isinstance(step, Pause):
            await self._clock.sleep(step.ms / 1000)
        elif isinstance(step, HoldHere):
            await self._hold(step)
        elif isinstance(step, Silence):
            limit = self._limits.idle_ms if step.ping_ms is None else self._limits.progress_ms
            await self._clock.sleep((limit or 0) / 1000)
            raise ModelFailed(FailureClass.TIMEOUT, "the script fell silent", exchange=facts)
        elif isinstance(step, End) and step.how != "complete":
            raise ModelFailed(FailureClass.INTERRUPTED, "the script cut its reply", exchange=facts)

    async def _hold(self, step: HoldHere) -> None:
        _touch(step.reached)
        while not _exists(step.release):
            await self._clock.sleep(_POLL_SECONDS)

    def _unusable(self, problem: Undecodable, facts: Exchange, headers: Mapping[str, str]) -> ModelFailed:
        if problem.error is not None:
            return self._failed(problem.error, facts, headers)
        return ModelFailed(problem.failure or FailureClass.MALFORMED_OUTPUT, f"the script: {problem}", exchange=facts)

    def _failed(self, error: ServerError, facts: Exchange, headers: Mapping[str, str]) -> ModelFailed:
        now_ms = self._clock.now_ms()
        return failed(error, facts, table=OPENAI_ERRORS, where="the script", headers=headers, now_ms=now_ms)


def _touch(path: str | None) -> None:
    if path is not None:
        Path(path).touch()


def _exists(path: str | None) -> bool:
    return path is None or Path(path).exists()


def _facts(head: Head, received: bytearray) -> Exchange:
    return Exchange(
        response_body_len=len(received),
        response_body_sha256=hashlib.sha256(received).hexdigest(),
        http_status=head.status,
        content_type=head.headers.get("content-type"),
    )
