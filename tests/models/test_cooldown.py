"""64 runs at a limited account send one request when it may be free again, not 64 (issue: no stampede)."""

import asyncio
import threading

import pytest
from models_support import VirtualClock, ask, in_virtual_time, outcome
from played import PlayedConnector, at_rest

from semel.adapters.models import cooldown, transport
from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.cooldown import Cooldown, cooldown_of
from semel.adapters.models.deadline import Limits
from semel.adapters.models.script import parse_script
from semel.adapters.models.script_steps import End, Head, Pause, Send
from semel.adapters.system import SystemClock
from semel.ports.model import Answer, FailureClass, ModelFailed
from semel.testing.formats import FORMATS

pytestmark = pytest.mark.anyio
RUNS = 64
CHAT = FORMATS["openai_chat"].format
SAID = parse_script('{"answers":[{"text":"ok"}]}', "s").answers[0]
ANSWER = [
    Head(status=200, headers={"content-type": "text/event-stream"}),
    Pause(ms=100),
    *(Send(body=event) for event in CHAT.events(SAID, 0, "m")),
    End(),
]


def slow_down(seconds: int) -> list:
    return [Head(status=429, headers={"retry-after": str(seconds)} if seconds else {}), Pause(ms=50), End()]


class Account:
    """A server that refuses everybody until a moment, and says to come back every ten seconds."""

    def __init__(self, clock: VirtualClock, *, free_at: float) -> None:
        self.clock, self.free_at = clock, free_at
        self.refused = self.served = self.together = self.most = 0

    def reply(self, _body: bytes):
        if self.clock.monotonic() < self.free_at:
            self.refused += 1
            return iter(slow_down(10))
        self.served += 1
        return iter(ANSWER)


def model_of(clock, connector, port: int = 9, options: ModelOptions | None = None):
    return build_model(f"openai_chat:m@http://127.0.0.1:{port}/v1", clock=clock, environ={}, options=options, connector=connector)


async def run(model, clock) -> int:
    """Ask until there is an answer, waiting as long as the server says, as the engine does; the refusals on the way."""
    refusals = 0
    while True:
        _, end = await outcome(model, ask())
        if isinstance(end, Answer):
            return refusals
        assert end.failure is FailureClass.RATE_LIMIT
        refusals += 1
        await clock.sleep(max(500, end.retry_after_ms or 0) / 1000)


async def storm(*, free_at: float, apart: float = 0.0) -> tuple[Account, list[int], float]:
    clock = VirtualClock()
    account = Account(clock, free_at=free_at)

    async def later(n: int) -> int:
        await clock.sleep(n * apart)
        return await run(model_of(clock, PlayedConnector(clock, account.reply)), clock)

    refusals = await in_virtual_time(clock, asyncio.gather(*(later(n) for n in range(RUNS))))
    return account, refusals, clock.monotonic()


async def test_a_limited_account_is_tried_by_one_run_and_the_others_wait_without_using_their_redeliveries():
    account, refusals, seconds = await storm(free_at=35)
    print(f"{account.refused} refused, {account.served} served, {sum(refusals)} redeliveries, {seconds:.1f} s")
    assert (account.served, account.refused) == (RUNS, RUNS + 3)  # all at once before anybody knew, then one every ten seconds
    assert sum(refusals) == RUNS + 3
    assert 40 < seconds < 42


async def test_runs_that_start_after_the_first_refusal_send_nothing_until_it_is_over():
    account, refusals, _ = await storm(free_at=35, apart=0.15)
    assert (account.served, account.refused, sum(refusals)) == (RUNS, 4, 4)


async def test_without_the_cooldown_every_run_storms_the_account(monkeypatch):
    """Negative control: the same storm where nobody tells the others."""
    monkeypatch.setattr(transport, "cooldown_of", lambda *_: Cooldown())
    account, _, _ = await storm(free_at=35)
    print(f"without a cooldown: {account.refused} refused")
    assert account.refused == 4 * RUNS


async def test_the_first_ones_through_let_more_and_more_others_go():
    clock = VirtualClock()
    shared = Cooldown()
    shared.refused(0.0, 0, tried=False)
    clock.jump(2)
    waiting = [asyncio.ensure_future(shared.admitted(clock, where="s", most_ms=None)) for _ in range(20)]
    await at_rest()
    sizes = []
    while not all(task.done() for task in waiting):
        out = shared.out
        sizes.append(out)
        for _ in range(out):
            shared.passed(tried=True)
        await at_rest()
    assert sizes[:4] == [1, 2, 4, 8]
    assert all(task.result() is True for task in waiting)


async def test_a_wait_that_is_too_long_for_here_is_the_engines_and_nothing_is_sent():
    clock = VirtualClock()
    account = Account(clock, free_at=1e9)
    options = ModelOptions(limits=Limits(cooldown_ms=5_000))
    model = model_of(clock, PlayedConnector(clock, account.reply), options=options)
    _, first = await in_virtual_time(clock, outcome(model, ask()))
    _, second = await in_virtual_time(clock, outcome(model, ask()))
    assert (first.exchange.http_status, second.exchange.http_status) == (429, None)
    assert (second.failure, second.retryable, account.refused) == (FailureClass.RATE_LIMIT, True, 1)
    assert 9_000 < second.retry_after_ms <= 10_000
    assert "not asked" in str(second)


def slow_answer(seconds: int) -> list:
    """A healthy answer that takes long, with a word of the model every twenty seconds."""
    word = Send(body=b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
    return [ANSWER[0], *[Pause(ms=20_000), word] * (seconds // 20), *ANSWER[1:]]


async def behind_a_refusal(clock: VirtualClock, reply, runs: int, **limits) -> tuple[list, list[float]]:
    """What requests come to that start together after one was refused for a second, each sent once; when they left."""
    starts: list[float] = []

    def noting(body: bytes):
        starts.append(clock.monotonic())
        return reply(body) if len(starts) > 1 else slow_down(1)

    options = ModelOptions(limits=Limits(**limits))

    async def one():
        return await outcome(model_of(clock, PlayedConnector(clock, noting), options=options), ask())

    await in_virtual_time(clock, one())
    ends = await in_virtual_time(clock, asyncio.gather(*(one() for _ in range(runs))))
    return [end for _, end in ends], starts


async def test_answers_that_take_minutes_hold_back_nobody_once_their_headers_are_there():
    clock = VirtualClock()
    ends, starts = await behind_a_refusal(clock, lambda _body: slow_answer(240), RUNS)
    print(f"{len(starts)} requests from {starts[1]:.2f} to {starts[-1]:.2f} s")
    assert all(isinstance(end, Answer) for end in ends)
    assert len(starts) == RUNS + 1
    assert 1 < starts[1] <= starts[-1] < 2


async def test_a_try_that_hangs_holds_back_the_others_no_longer_than_they_said():
    clock = VirtualClock()
    hanging = [Pause(ms=290_000), *ANSWER]
    ends, starts = await behind_a_refusal(clock, lambda _body: hanging, 4, cooldown_ms=30_000)
    assert len(starts) == 2
    assert [type(end) for end in ends].count(Answer) == 1
    for end in (end for end in ends if isinstance(end, ModelFailed)):
        assert (end.failure, end.retryable, end.retry_after_ms) == (FailureClass.RATE_LIMIT, True, None)
        assert "has not answered the one that tries" in str(end)


async def test_a_wait_is_bounded_as_a_whole_however_often_it_is_made_longer():
    clock = VirtualClock()
    shared = Cooldown()
    shared.refused(0.0, 40_000, tried=False)
    waiting = asyncio.ensure_future(shared.admitted(clock, where="s", most_ms=60_000))
    await at_rest()
    clock.jump(39)
    shared.refused(39.0, 30_000, tried=False)
    shared.left(tried=False)
    with pytest.raises(ModelFailed, match=r"said to wait 30\.0 s more"):
        await waiting
    assert shared.waiting == []


async def test_a_refusal_inside_an_answer_holds_back_the_others_too_and_longer_each_time():
    clock = VirtualClock()
    error = CHAT.error_event({"type": "rate_limit_error", "message": "Rate limit reached", "code": "rate_limit_exceeded"})
    refusing = [ANSWER[0], Send(body=error), End()]
    connector = PlayedConnector(clock, lambda _body: refusing)
    shared = cooldown_of(clock, "127.0.0.1:9", model_of(clock, connector)._transport._key.name)
    waits = []
    for _ in range(4):
        shared.waiting.append(lambda: None)  # somebody else waits as well, so that it has not recovered
        _, end = await in_virtual_time(clock, outcome(model_of(clock, connector), ask()))
        assert (end.failure, end.exchange.http_status, shared.out) == (FailureClass.RATE_LIMIT, 200, 0)
        waits.append(round(shared.until - clock.monotonic()))
    assert waits == [1, 2, 4, 8]


async def test_another_key_or_host_is_not_held_up_and_neither_is_one_whose_quota_is_gone():
    clock = VirtualClock()
    account = Account(clock, free_at=1e9)
    _, refused = await in_virtual_time(clock, outcome(model_of(clock, PlayedConnector(clock, account.reply), 9), ask()))
    assert refused.failure is FailureClass.RATE_LIMIT
    before = clock.monotonic()
    other = PlayedConnector(clock, lambda _body: ANSWER)
    _, end = await in_virtual_time(clock, outcome(model_of(clock, other, 10), ask()))
    assert isinstance(end, Answer)
    mine = ModelOptions(key_env="MINE")
    _, end = await in_virtual_time(clock, outcome(model_of(clock, other, 9, mine), ask()))
    assert isinstance(end, Answer)
    assert clock.monotonic() - before < 1
    gone = PlayedConnector(clock, lambda _body: [Head(status=402, headers={}), End()])
    for _ in range(2):
        _, end = await in_virtual_time(clock, outcome(model_of(clock, gone, 11), ask()))
        assert (end.failure, end.exchange.http_status) == (FailureClass.QUOTA_EXHAUSTED, 402)


async def test_a_try_that_tells_nothing_lets_the_next_one_try():
    clock = VirtualClock()
    shared = Cooldown()
    shared.refused(0.0, 0, tried=False)
    clock.jump(2)
    assert await shared.admitted(clock, where="s", most_ms=None)
    waiting = asyncio.ensure_future(shared.admitted(clock, where="s", most_ms=None))
    await at_rest()
    assert not waiting.done()
    shared.left(tried=True)  # cancelled, or its connection broke
    assert await waiting


async def test_cancelling_a_wait_ends_it_at_once_and_leaves_nothing():
    clock = VirtualClock()
    shared = Cooldown()
    shared.refused(0.0, 60_000, tried=False)
    waiting = asyncio.ensure_future(shared.admitted(clock, where="s", most_ms=None))
    await at_rest()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (shared.waiting, shared.out, clock.monotonic()) == ([], 0, 0)


async def test_a_hint_is_never_shortened_by_a_later_and_shorter_one():
    shared = Cooldown()
    shared.refused(0.0, 30_000, tried=False)
    shared.refused(1.0, 2_000, tried=False)
    assert shared.until == 30.0


async def test_a_jump_of_the_wall_clock_changes_no_wait():
    """The wait is on the monotonic clock; the wall clock may go where it likes (CON16)."""

    class Jumping(VirtualClock):
        def now_ms(self) -> int:
            return super().now_ms() + (3_600_000 if self._now < 5 else -3_600_000)

    clock = Jumping()
    shared = Cooldown()
    shared.refused(0.0, 10_000, tried=False)
    await in_virtual_time(clock, shared.admitted(clock, where="s", most_ms=None))
    assert 10 <= clock.monotonic() < 10.01


def test_loops_in_other_threads_share_the_cooldown_of_the_real_clock():
    shared = cooldown_of(SystemClock(), "host.example", "KEY")
    assert shared is cooldown_of(SystemClock(), "host.example", "KEY")
    assert shared is not cooldown_of(SystemClock(), "host.example", "OTHER")
    shared.refused(SystemClock().monotonic(), 0, tried=False)
    admitted = []

    def wait() -> None:
        async def one() -> None:
            admitted.append(await shared.admitted(SystemClock(), where="s", most_ms=None))
            shared.passed(tried=True)

        asyncio.run(one())

    threads = [threading.Thread(target=wait) for _ in range(4)]
    shared.until = SystemClock().monotonic()  # the moment has come; nobody sleeps in this test
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(admitted) == 4
    assert shared.until is None
    cooldown._of_system.pop(("host.example", "KEY"))


async def test_a_failed_wait_is_a_failure_like_any_other():
    shared = Cooldown()
    shared.refused(0.0, 90_000, tried=False)
    with pytest.raises(ModelFailed, match=r"said to wait 90\.0 s more"):
        await shared.admitted(VirtualClock(), where="s", most_ms=1000)
