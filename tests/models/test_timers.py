"""Every timer is admitted before it is made and given back after it; counting is retried within one budget (V26, X10, X17)."""

import asyncio

import pytest
from conversations import prompt
from models_support import VirtualClock, ask, in_virtual_time, outcome, virtual_model
from played import PlayedConnector, at_rest

from semel.adapters.models import redelivery
from semel.adapters.models.catalog import build_model
from semel.adapters.models.deadline import Custody, Ledger, Limits, TimerDenied, pause, timer
from semel.adapters.models.script_steps import End, Head, Send, Silence
from semel.adapters.models.transport import HttpExchange
from semel.core.values import UserMessage
from semel.ports.model import FailureClass, ModelFailed

pytestmark = pytest.mark.anyio
JSON = Head(status=200, headers={"content-type": "application/json"})


async def test_a_timer_is_claimed_once_and_given_back_when_it_rings_and_when_it_is_cancelled():
    clock, custody, rung = VirtualClock(), Custody(), []
    first = timer(clock, 5, lambda: rung.append(1), custody)
    second = timer(clock, 9, lambda: rung.append(2), custody)
    assert (custody.made, custody.alive) == (2, 2)
    second.cancel()
    await in_virtual_time(clock, first)
    await at_rest()
    assert (rung, custody.made, custody.alive, clock.monotonic()) == ([1], 2, 0, pytest.approx(5.001))


async def test_a_timer_that_is_not_admitted_is_not_made():
    clock, custody = VirtualClock(), Custody(most=0)
    before = asyncio.all_tasks()
    with pytest.raises(TimerDenied):
        timer(clock, 1, lambda: None, custody)
    with pytest.raises(TimerDenied):
        await pause(clock, 1, custody)
    assert (custody.made, custody.alive, clock._sleepers, asyncio.all_tasks()) == (0, 0, [], before)


async def test_polling_again_makes_no_new_timer():
    clock = VirtualClock()
    ledger = Ledger(Limits(), 0.0)
    exchange = HttpExchange(clock=clock, ledger=ledger, where="s", redact=str)
    exchange.start(asyncio.ensure_future(asyncio.get_running_loop().create_future()))
    exchange.headers_came(200, {})
    reading = asyncio.ensure_future(exchange.read(10_000))
    for _ in range(50):
        await at_rest()
        await exchange.push(b"x")  # each wakes the reader, which measures and waits again
    assert ledger.custody.made == 1
    reading.cancel()
    await asyncio.wait({reading})
    await exchange.end()
    await at_rest()
    assert ledger.custody.alive == 0


async def test_an_exchange_gives_all_its_timers_back_whatever_ends_it():
    for steps in ([JSON, Silence()], [JSON, Send(body=b"{}"), End()], [JSON, Send(body=b"x"), End(how="reset")]):
        clock = VirtualClock()
        model = virtual_model(clock, PlayedConnector(clock, lambda _body, steps=steps: steps))
        made: list[Ledger] = []
        original = Ledger.__init__

        def noting(self, *given, original=original, made=made):
            original(self, *given)
            made.append(self)

        Ledger.__init__ = noting
        try:
            await in_virtual_time(clock, outcome(model, ask()))
        finally:
            Ledger.__init__ = original
        await at_rest()
        assert [ledger.custody.alive for ledger in made] == [0]
        assert 1 <= made[0].custody.made <= 3


COUNTED = [JSON, Send(body=b'{"input_tokens":7}'), End()]
REFUSED = [Head(status=503, headers={}), End()]
BROKEN = [JSON, Send(body=b'{"input_'), End(how="reset")]
NONSENSE = [JSON, Send(body=b'{"input_tokens":"many"}'), End()]
SLOW_DOWN = [Head(status=429, headers={"retry-after": "3"}), End()]
TOO_LONG = [Head(status=429, headers={"retry-after": "21"}), End()]
WRONG = [Head(status=400, headers={}), End()]


async def count(*replies: list, custody: Custody | None = None):
    """What counting comes to, the sends, the seconds, and the custody of its waits."""
    clock, left = VirtualClock(), list(replies)
    connector = PlayedConnector(clock, lambda _body: left.pop(0))
    model = build_model("anthropic_messages:m@http://127.0.0.1:9/v1", clock=clock, environ={}, connector=connector)
    if custody is not None:
        model._transport.custody = custody
    try:
        result = await in_virtual_time(clock, model.count_tokens(prompt([UserMessage(text="hi")])))
    except ModelFailed as failure:
        result = failure
    await at_rest()
    return result, len(connector.requests), clock.monotonic(), model._transport.custody


async def test_v26_counting_shares_one_budget_over_refusals_and_broken_bodies():
    assert (await count(COUNTED))[:2] == (7, 1)
    for replies, sends in (
        ((REFUSED, COUNTED), 2),
        ((BROKEN, COUNTED), 2),
        ((REFUSED, BROKEN, COUNTED), 3),
        ((NONSENSE, COUNTED), 2),
    ):
        result, sent, seconds, custody = await count(*replies)
        assert (result, sent, custody.made, custody.alive) == (7, sends, sends - 1, 0)
        assert seconds >= 0.5 * (2 ** (sends - 1) - 1)
    result, sent, _, custody = await count(REFUSED, BROKEN, REFUSED)
    assert (result.failure, sent, custody.made, custody.alive) == (FailureClass.OVERLOADED, 3, 2, 0)
    assert redelivery.RETRIES == 2


async def test_v26_a_hint_is_never_shortened_and_one_beyond_the_wait_budget_declines():
    result, sent, seconds, _ = await count(SLOW_DOWN, COUNTED)
    assert (result, sent) == (7, 2)
    assert seconds >= 3
    result, sent, seconds, custody = await count(TOO_LONG)
    assert (result.failure, result.retry_after_ms, sent, seconds, custody.made) == (FailureClass.RATE_LIMIT, 21_000, 1, 0, 0)
    result, sent, _, _ = await count(WRONG)
    assert (result.failure, sent) == (FailureClass.INVALID_REQUEST, 1)


async def test_v26_where_no_timer_is_admitted_nothing_is_sent_again_and_the_cause_stays():
    result, sent, seconds, custody = await count(REFUSED, COUNTED, custody=Custody(most=0))
    assert (result.failure, sent, seconds, custody.made, custody.alive) == (FailureClass.OVERLOADED, 1, 0, 0, 0)


async def test_cancelling_ends_the_wait_between_two_counts_at_once():
    clock = VirtualClock()
    connector = PlayedConnector(clock, lambda _body: REFUSED)
    model = build_model("anthropic_messages:m@http://127.0.0.1:9/v1", clock=clock, environ={}, connector=connector)
    counting = asyncio.ensure_future(model.count_tokens(prompt([UserMessage(text="hi")])))
    await at_rest()
    assert model._transport.custody.alive == 1
    counting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await counting
    await at_rest()
    assert (model._transport.custody.alive, clock.monotonic(), len(connector.requests)) == (0, 0, 1)
