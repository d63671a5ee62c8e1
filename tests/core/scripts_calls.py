"""Legal histories of calls that wait: for a person, for their provider, for a verdict."""

from tests.core.cast import asks_for, driver
from tests.core.driver import Driver
from tests.core.machine import call, good, say, unknown


def approval() -> Driver:
    d = driver(policy=asks_for("pay"))
    d.send()
    d.answer(call("pay", "read", "pay"))
    first, second = [asked.call_key for asked in d.state.run.step.undecided]  # type: ignore[union-attr]  # it waits
    d.answer_approval(second, "denied")
    d.answer_approval(first, "approved", arguments='{"n":17}')
    d.back()
    d.answer(call("pay"))
    d.expire(9000)
    d.answer(say("done"))
    return d


def approval_cancelled() -> Driver:
    d = driver(policy=asks_for("pay"))
    d.send()
    d.answer(call("read", "pay"))
    d.cancel("step_boundary")
    d.seal()
    d.send("k2", "again")
    d.answer(say("hello again"))
    return d


def deferred() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay", "read"))
    key = d.key_of(0)
    d.back({1: good()}, deferred=[0])
    d.answer(call("read"))
    d.deliver(key, "it is paid")
    d.back()
    d.answer(say("done"))
    return d


def deferred_beyond_its_run() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay"))
    key = d.key_of(0)
    d.back(deferred=[0])
    d.answer(say("waiting for the bank"))
    d.deliver(key, "the bank said no", is_error=True)
    d.send("k2", "and?")
    d.answer(say("no"))
    return d


def held() -> Driver:
    d = driver()
    d.send()
    d.answer(call("read", "pay", "put"))
    d.back({2: good()}, held=[1])
    d.back({0: good()})
    d.deliver(d.key_of(1), "paid after all")
    d.answer(say("done"))
    return d


def held_in_sequence() -> Driver:
    d = driver()
    d.send()
    d.answer(call("deploy", "pay", "read"))
    d.back({0: good()})
    d.back(held=[1])
    d.message("s1", "still there?", "steer")
    d.deliver(d.key_of(1), "paid")
    d.back({2: good()})
    d.answer(say("done"))
    return d


def held_and_cancelled() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay", "read"))
    d.back({1: good()}, held=[0])
    key = d.key_of(0)
    d.cancel("step_boundary")
    d.seal()
    d.deliver(key, "too late")
    d.send("k2", "again")
    d.answer(say("hello again"))
    return d


def held_and_stopped() -> Driver:
    d = driver()
    d.send()
    d.answer(call("deploy", "pay"))
    d.back(held=[0])
    d.stop()
    return d


def held_beside_an_unknown() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay", "pay"))
    d.back(held=[0])
    d.back({1: unknown()})
    d.seal()
    return d


def verdict_and_continue() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay", "read"))
    d.message("q1", "next", "queue")
    d.back({0: unknown(), 1: good()})
    d.seal()
    key = d.state.unknown[0].call_key
    d.resolve(key, "happened", "paid 17")
    d.go_on(key)
    d.answer(say("so it is paid"))
    d.drain()
    d.answer(say("next"))
    return d


def late_verdict() -> Driver:
    d = driver()
    d.send()
    d.answer(call("pay"))
    d.back({0: unknown()})
    d.seal()
    key = d.state.unknown[0].call_key
    d.send("k2", "are you there?")
    d.answer(say("I do not know"))
    d.resolve(key, "did_not_happen")
    d.send("k3", "now?")
    d.answer(say("not paid"))
    return d


def reconciled() -> Driver:
    d = driver()
    d.send()
    d.answer(call("refund", "read", "refund"))
    d.die()
    d.resume()
    d.asked(good("was done"))
    d.asked(good("was done too"))
    d.back()
    d.answer(say("done"))
    return d
