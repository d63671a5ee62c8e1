"""A model behind a wire family.

MODEL-1  `render` is deterministic: equal bundle and prompt give equal bytes, in any process (P4).
MODEL-2  `stream` yields any number of Delta and then exactly one Answer, or raises ModelFailed; never both, never neither.
MODEL-3  A stream without its terminal event is `interrupted`, however complete it looks (wire 0.1).
MODEL-4  Each `stream` is one HTTP exchange: it never repeats a request by itself. Retrying is decided above, and recorded.
MODEL-5  Cancelling the consumer ends the exchange at once.
MODEL-6  No error text carries a key, a header or a request body.
"""

import enum
from collections.abc import AsyncGenerator
from typing import Protocol, runtime_checkable

from semel.core.values import JSON, Block, Bundle, Frozen, Prompt, Stop, Usage
from semel.errors import SemelError


class FailureClass(enum.StrEnum):
    """What kind of failure an exchange met (wire 0.6)."""

    RATE_LIMIT = "rate_limit"
    QUOTA_EXHAUSTED = "quota_exhausted"
    OVERLOADED = "overloaded"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    INTERRUPTED = "interrupted"
    CONTEXT_EXCEEDED = "context_exceeded"
    INVALID_REQUEST = "invalid_request"
    OPAQUE_STATE_REJECTED = "opaque_state_rejected"
    AUTH = "auth"
    PERMISSION = "permission"
    REQUEST_TOO_LARGE = "request_too_large"
    CONTENT_FILTER = "content_filter"
    MALFORMED_OUTPUT = "malformed_output"


RETRYABLE = frozenset(
    {
        FailureClass.RATE_LIMIT,
        FailureClass.OVERLOADED,
        FailureClass.SERVER_ERROR,
        FailureClass.TIMEOUT,
        FailureClass.UNREACHABLE,
        FailureClass.INTERRUPTED,
        FailureClass.MALFORMED_OUTPUT,
    }
)


class Request(Frozen, frozen=True, kw_only=True):
    """A rendered request; `body` is what travels."""

    body: bytes
    sha256: str


class Exchange(Frozen, frozen=True, kw_only=True):
    """What one HTTP exchange looked like, for `model_attempt_finished` (R6). Lengths in bytes; None is "never got that far"."""

    response_body_len: int = 0
    response_body_sha256: str | None = None
    http_status: int | None = None
    content_type: str | None = None
    request_id: str | None = None


class Delta(Frozen, frozen=True, kw_only=True):
    """Text as it arrives; live only, never stored (W9)."""

    text: str


class Answer(Frozen, frozen=True, kw_only=True):
    """A complete answer. `truncated` marks one that hit its output limit, whose calls must not run (A10)."""

    blocks: tuple[Block, ...]
    stop: Stop
    usage: Usage
    exchange: Exchange
    raw_stop: str | None = None

    @property
    def truncated(self) -> bool:
        """Whether the output limit cut this answer."""
        return self.stop is Stop.MAX_TOKENS


class ModelFailed(SemelError):
    """An exchange that gave no answer. `retry_after_ms` is the server's own word, None if it gave none."""

    code = "model_failed"

    def __init__(
        self,
        failure: FailureClass,
        message: str,
        *,
        exchange: Exchange | None = None,
        retry_after_ms: int | None = None,
        retryable: bool | None = None,
        provider_code: str | None = None,
        details: tuple[JSON, ...] = (),
    ) -> None:
        """`retryable` overrides the class's default, where a server said so; `details` are google.rpc error details (R25)."""
        super().__init__(message)
        self.failure = failure
        self.exchange = exchange or Exchange()
        self.retry_after_ms = retry_after_ms
        self.retryable = failure in RETRYABLE if retryable is None else retryable
        self.provider_code = provider_code
        self.details = details


class BundleRefused(SemelError):
    """A run's frozen render bundle cannot be rendered by this build as it was (P7 to P9). Permanent; no model was called."""

    code = "bundle_refused"

    def __init__(self, reason: str, detail: str) -> None:
        """`reason` is renderer_version_drift, frozen_render_config_unverifiable or frozen_render_config_drift."""
        super().__init__(f"{reason}: {detail}. No request was sent. Resume the run with the version of semel that started it.")
        self.reason, self.detail = reason, detail


class ModelPort(Protocol):
    """One model, bound to its endpoint and credentials."""

    @property
    def bundle(self) -> Bundle:
        """What is frozen into the run (P4)."""

    def render(self, prompt: Prompt) -> Request:
        """Render the prompt into one request."""

    def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """Send it once and yield what comes back."""

    async def close(self) -> None:
        """End all connections."""


class Rendered(Protocol):
    """The start of a conversation as a model rendered it, for the next model of the same bundle."""

    @property
    def size_bytes(self) -> int:
        """What keeping it costs."""


@runtime_checkable
class GoesOn(Protocol):
    """A model that takes up what an equal one rendered before, instead of reading the conversation again; beside ModelPort.

    Its requests stay those that MODEL-1 promises.
    """

    def rendered(self) -> Rendered:
        """What it has rendered so far."""

    def go_on_from(self, rendered: Rendered) -> None:
        """Take it up, if it is of an equal bundle; else do nothing."""


class TokenCounter(Protocol):
    """A model whose server counts the tokens of a request without answering it; some models are one beside ModelPort."""

    @property
    def counts(self) -> bool:
        """Whether it does."""

    async def count_tokens(self, prompt: Prompt) -> int:
        """How many tokens the request for `prompt` has. Raises ModelFailed; nothing is recorded."""
