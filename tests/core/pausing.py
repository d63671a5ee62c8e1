"""A driver whose run is paused: for a key that its provider refuses, or because its process leaves in good order."""

from semel.core.effects import AUTH_REFUSED, Decision, ExchangeFailed
from semel.core.leaving import handed_over
from tests.core.driver import Driver
from tests.core.machine import attempt

WORDS = "the server answered 401 (the key came from SHOP_KEY)"


def refuse_key(d: Driver) -> None:
    """The provider does not know the key: the run is paused, and given back."""
    effect = d._asked()
    facts = attempt(effect, AUTH_REFUSED)
    d._decide(ExchangeFailed(attempt=facts, failure=AUTH_REFUSED, message=WORDS, retryable=False, used=effect.used))
    if d.state.run is not None:
        d.die()


def leave(d: Driver) -> None:
    """The process stops while its model is asked: the request is given up, and the run handed over."""
    d.asking = None
    d._do(Decision(records=handed_over(d.state)))
    d.die()
