"""An MCP server that speaks JSON-RPC over stdio and misbehaves as its first argument says. The standard library alone.

Every mode answers `initialize` and `tools/list` as it should, unless it is one of those that begin with `start:`, and offers the
tools `act`, without arguments, and `echo`. What a mode does, it does when `act` is called.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

MODE, NOTE = sys.argv[1], (sys.argv[2] if len(sys.argv) > 2 else "")
SCHEMA = {"type": "object", "properties": {}}
OUT = sys.stdout.buffer


def write(data: bytes) -> None:
    OUT.write(data)
    OUT.flush()


def send(**message: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def told(text: str, **more: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], **more}


def receive() -> dict[str, object]:
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def for_ever() -> None:
    while True:
        time.sleep(60)


def cancelled() -> None:
    while receive().get("method") != "notifications/cancelled":
        pass


def sleeper(*before: str) -> None:
    """A child that outlives its parent."""
    subprocess.Popen([*before, "sleep", "300"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ignore_sigterm(key: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for_ever()


def ignore_cancel(key: object) -> None:
    while True:
        receive()


def daemon(key: object) -> None:
    subprocess.run(["sh", "-c", "setsid sleep 300 >/dev/null 2>&1 </dev/null &"], check=True)
    for_ever()


def hold_output(key: object) -> None:
    sleeper()
    os._exit(0)


def one_long_line(key: object) -> None:
    for _ in range(1 << 14):
        write(b"x" * (1 << 16))
    write(b"\n")


def many_lines(key: object) -> None:
    for _ in range(10 << 14):
        write((b"y" * 63 + b"\n") * (1 << 10))


def many_notifications(key: object) -> None:
    line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "z" * 900}}).encode() + b"\n"
    for _ in range(64):
        write(line * 64)
    send(id=key, result=told("done"))


def stderr_flood(key: object) -> None:
    for _ in range(64):
        os.write(2, b"err\n" * (1 << 14))
    send(id=key, result=told("done"))


def pings(key: object) -> None:
    for number in range(10_000):
        send(id=f"s{number}", method="ping")
    for_ever()


def unknown_id(key: object) -> None:
    for other in (4711, -1, "4711", str(key), {"id": key}, 10**40):
        send(id=other, result=told("not this one"))
    send(id=key, result=told("this one"))


def reply_twice(key: object) -> None:
    send(id=key, result=told("first"))
    send(id=key, result=told("second"))


def reply_after_cancel(key: object) -> None:
    cancelled()
    send(id=key, result=told("too late"))
    serve()


def change(key: object) -> None:
    SCHEMA["properties"] = {"cents": {"type": "integer"}}
    send(method="notifications/tools/list_changed")
    send(id=key, result=told("changed"))


def ping_first(key: object) -> None:
    send(id="p", method="ping")
    send(id="r", method="roots/list")
    pong, refused = receive(), receive()
    send(id=key, result=told(f"{pong['result']} {refused['error']['code']}"))


def everything(key: object) -> None:
    blob = "iVBORw0KGgo="
    content = [
        {"type": "text", "text": "a\x00b"},
        {"type": "image", "data": blob, "mimeType": "image/png"},
        {"type": "audio", "data": "not base64", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///b", "blob": blob}},
        {"type": "resource_link", "uri": "file:///c"},
        {"type": "hologram"},
    ]
    send(id=key, result={"content": content, "structuredContent": {"a": 1}})


def progress(key: object) -> None:
    for token, text in ((key, "half \x1b[31mdone"), (999, "of nobody"), (key, "nearly")):
        send(method="notifications/progress", params={"progressToken": token, "progress": 1, "message": text})
    send(id=key, result=told("done"))


def wait_for_other(key: object) -> None:
    """Two calls are out: the first is never answered, the second when the first was cancelled."""
    other = receive()
    cancelled()
    time.sleep(0.2)
    send(id=other["id"], result=told("the other one"))
    for_ever()


def hang_at(time: int) -> Callable[[object], None]:
    def act(key: object) -> None:
        with open(NOTE) as note:
            if len(note.readlines()) == time:
                for_ever()
        send(id=key, result=told("done"))

    return act


ACTS = {
    "ignores SIGTERM": ignore_sigterm,
    "ignores the cancel message": ignore_cancel,
    "double-forks a daemon": daemon,
    "holds its output open after its exit": hold_output,
    "never reads its input": lambda key: for_ever(),
    "1 GiB on one line": one_long_line,
    "10 GiB in many lines": many_lines,
    "what is not UTF-8": lambda key: write(
        b'{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"a\xff\xfeb"}]}}\n' % key
    ),
    "JSON that is broken": lambda key: (write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[\n' % key), for_ever()),
    "a reply with an unknown id": unknown_id,
    "two replies to one id": reply_twice,
    "a reply after the cancel": reply_after_cancel,
    "exits before the reply": lambda key: os._exit(3),
    "is killed before the reply": lambda key: os.kill(os.getpid(), signal.SIGKILL),
    "stops itself": lambda key: os.kill(os.getpid(), signal.SIGSTOP),
    "floods its error output": stderr_flood,
    "floods with notifications": many_notifications,
    "pings and does not read": pings,
    "changes its tools": change,
    "changes its tools and is silent": change,
    "pings and waits": ping_first,
    "gives everything": everything,
    "says how far it is": progress,
    "waits for the other call": wait_for_other,
    "an error reply": lambda key: send(id=key, error={"code": -32602, "message": "no such order"}),
    "an error result": lambda key: send(id=key, result=told("no such order", isError=True)),
    "a result that is none": lambda key: send(id=key, result=[1]),
    "closes its input": lambda key: (os.close(0), send(id=key, result=told("done")), for_ever()),
    "closes its output": lambda key: (OUT.close(), os.close(1), for_ever()),
    "an environment": lambda key: send(id=key, result=told(json.dumps(dict(os.environ)))),
    "open files": lambda key: send(id=key, result=told(" ".join(sorted(os.listdir("/proc/self/fd"))))),
    "lives on, idle": lambda key: (send(id=key, result=told("done")), for_ever()),
    "lives on without its input": lambda key: for_ever(),
    "hangs the first time": hang_at(1),
    "hangs the second time": hang_at(2),
    "leaves a child behind": lambda key: (sleeper("setsid"), receive()),
    "starts twice": lambda key: send(id=key, result=told("done")),
    "prints its token and exits": lambda key: (print("bad token:", os.environ["SHOP_TOKEN"], file=sys.stderr), os._exit(3)),
    "answers": lambda key: send(id=key, result=told("done")),
}


def listed() -> list[dict[str, object]]:
    hints = {"readOnlyHint": True}
    return [
        {"name": "act", "description": "Acts.", "inputSchema": SCHEMA, "annotations": hints},
        {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}},
    ]


def call(key: object, params: dict[str, object]) -> None:
    if params["name"] == "echo":
        send(id=key, result=told(str(params["arguments"].get("text"))))
    else:
        if NOTE:
            with open(NOTE, "a") as note:
                note.write(f"{os.getpid()}\n")
        ACTS[MODE](key)


def begin() -> None:
    """What goes wrong before there is a list."""
    if MODE == "start: exits":
        print("no token: set BANK_TOKEN", file=sys.stderr)
        sys.exit(2)
    if MODE == "start: says nothing":
        for_ever()
    if MODE == "start: is no MCP server":
        write(b"Welcome to the shop.\n" * 1000)
        for_ever()
    if MODE == "starts twice":
        with open(NOTE, "a+") as note:
            note.seek(0)
            starts = note.read().count("started")
            note.write("started\n")
        if starts == 2:
            for_ever()
    if MODE == "changes between starts":
        if os.path.exists(NOTE):
            SCHEMA["properties"] = {"cents": {"type": "integer"}}
        with open(NOTE, "a") as note:
            note.write("started\n")


def serve() -> None:
    while True:
        message = receive()
        method, key, params = message.get("method"), message.get("id"), message.get("params")
        if method == "initialize":
            version = "1999-01-01" if MODE == "start: an old version" else "2025-11-25"
            send(id=key, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "hostile"}})
        elif method == "tools/list" and MODE == "changes its tools and is silent" and SCHEMA["properties"]:
            pass
        elif method == "tools/list":
            send(id=key, result={"tools": listed()})
        elif method == "tools/call":
            call(key, params)


begin()
serve()
