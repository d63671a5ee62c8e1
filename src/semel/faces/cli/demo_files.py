"""The files of the demo: an agent that pays invoices, its model's script, and the same agent as a plain retry loop."""

AGENT = '''\
import os
import time

from semel import Agent, Call, tool


@tool  # effect="once", the default: after a crash nobody runs it again by themselves
def pay_invoice(invoice: int, cents: int, *, call: Call[None]) -> str:
    """Pay an invoice."""
    with open("ledger.txt", "a") as ledger:
        ledger.write(f"invoice {{invoice}}: {{cents}} cents, key {{call.key}}\\n")
        ledger.flush()
        os.fsync(ledger.fileno())
    time.sleep(float(os.environ.get("BANK_SECONDS", "0")))  # the bank takes its time to answer
    return f"paid {{cents}} cents for invoice {{invoice}}"


agent = Agent("clerk", model="openai_chat:scripted@{url}", instructions="You pay invoices.", tools=[pay_invoice])
'''

RETRY_LOOP = '''\
"""The same agent without a log: on any failure it is started again, as a supervisor would."""
import json
import os
import time
import urllib.request

direct = urllib.request.build_opener(urllib.request.ProxyHandler({{}}))
messages = [{{"role": "user", "content": "Pay invoice 17."}}]
while True:
    body = json.dumps({{"model": "scripted", "messages": messages, "stream": True}}).encode()
    request = urllib.request.Request("{url}/chat/completions", body, {{"content-type": "application/json"}})
    text, calls = "", {{}}
    for line in direct.open(request):
        if not line.startswith(b"data: {{"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            text += choice["delta"].get("content") or ""
            for piece in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault(piece["index"], {{"id": "", "name": "", "arguments": ""}})
                call["id"] += piece.get("id") or ""
                for part in ("name", "arguments"):
                    call[part] += piece["function"].get(part) or ""
    if not calls:
        break
    asked = []
    for call in calls.values():
        function = {{"name": call["name"], "arguments": call["arguments"]}}
        asked.append({{"id": call["id"], "type": "function", "function": function}})
    messages.append({{"role": "assistant", "content": None, "tool_calls": asked}})
    for call in calls.values():
        order = json.loads(call["arguments"])
        with open("retry-ledger.txt", "a") as ledger:
            ledger.write(f"invoice {{order['invoice']}}: {{order['cents']}} cents\\n")
            ledger.flush()
            os.fsync(ledger.fileno())
        time.sleep(float(os.environ.get("BANK_SECONDS", "0")))
        messages.append({{"role": "tool", "tool_call_id": call["id"], "content": "paid"}})
'''


def script(asked: str) -> dict[str, object]:
    """The model's answers. It stops in the middle of the first until its client is dead; `asked` is the file that says so."""
    pay = {"name": "pay_invoice", "args": {"invoice": 17, "cents": 12500}}
    return {
        "answers": [
            {"text": "I will pay it.", "calls": [pay], "fault": {"kind": "hold", "reached": asked}},
            {"text": "Invoice 17 is paid."},
        ]
    }
