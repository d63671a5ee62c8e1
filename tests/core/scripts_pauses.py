"""Legal histories of runs that are paused for another key, handed over by their process, or stopped while they are at work."""

from tests.core.cast import driver
from tests.core.driver import Driver
from tests.core.machine import call, say
from tests.core.pausing import leave, refuse_key


def key_refused() -> Driver:
    d = driver()
    d.send()
    refuse_key(d)
    d.message("q1", "and then?", "queue")
    d.resume()
    refuse_key(d)
    d.resume()
    d.answer(call("read"))
    d.back()
    refuse_key(d)
    d.message("s1", "hurry", "steer")
    d.resume()
    d.answer(say("done"))
    d.answer(say("really done"))
    return d


def handed_over() -> Driver:
    d = driver()
    d.send()
    leave(d)
    d.resume()
    d.answer(call("read"))
    d.back()
    leave(d)
    d.resume()
    d.answer(say("done"))
    return d


def stopped_at_work() -> Driver:
    d = driver()
    d.send()
    d.answer(call("read", "read"))
    d.stop()
    d.message("q1", "and this?", "steer")
    d.back()
    return d


def stopped_and_died() -> Driver:
    d = driver()
    d.send()
    d.answer(call("read"))
    d.back()
    d.stop()
    d.die()
    d.resume()
    return d
