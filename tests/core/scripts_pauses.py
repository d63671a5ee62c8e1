"""Legal histories of runs that are paused for another key, handed over by their process, or stopped while they are at work."""

from tests.core.cast import driver
from tests.core.driver import Driver
from tests.core.machine import call, say


def key_refused() -> Driver:
    d = driver()
    d.send()
    d.refuse_key()
    d.message("q1", "and then?", "queue")
    d.resume()
    d.refuse_key()
    d.resume()
    d.answer(call("read"))
    d.back()
    d.refuse_key()
    d.message("s1", "hurry", "steer")
    d.resume()
    d.answer(say("done"))
    d.answer(say("really done"))
    return d


def handed_over() -> Driver:
    d = driver()
    d.send()
    d.leave()
    d.resume()
    d.answer(call("read"))
    d.back()
    d.leave()
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
