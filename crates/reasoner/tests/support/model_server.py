"""An OpenAI-compatible chat completions server that misbehaves on demand.

    python3 -I -S -B model_server.py        prints {"port": N} when it listens on 127.0.0.1

The request's `model` says how it behaves; the part after the first colon is free, or a number:

    good:ANYTHING   the plan, as the content of a proper answer
    prose           the plan in a ```json fence, with prose around it
    truncated       half of the plan, finish_reason "length"
    invented-tool   the plan with one tool renamed to one that nobody has
    claims-done     {"done": true, "result": ...} and no steps
    wrong-json      sound JSON that is no plan
    empty           content ""
    429:N           HTTP 429 with Retry-After: 1 for the first N requests (2 without N), then good
    503             HTTP 503
    slow            sends a few bytes, one at a time, then nothing; the connection stays open
    half            closes the connection in the middle of the body

Any other model is HTTP 404, as is any other path.

The plan is the JSON text in the environment variable MODEL_PLAN, or {"steps": []}.
POST /_script takes a JSON list; each chat request uses up its first entry in place of `model`.
An entry is a behaviour, or {"behaviour": ..., "plan": ...} to answer that request with that plan.
GET /_requests lists the chat requests received, oldest first, as
{"body": ..., "authorization": {"present": bool, "sha256": hex of the header's value, or null}}.

It ends when its parent does.
"""

import collections
import copy
import hashlib
import http.server
import json
import os
import sys
import threading
import time

BODY_BYTES_MAX = 8 * 1024 * 1024
REQUESTS_KEPT_MAX = 1024
SCRIPT_ENTRIES_MAX = 1024
SLOW_BYTES = 20
SLOW_PAUSE_S = 0.05
STALL_S_MAX = 600
PARENT_CHECK_S = 0.5
INVENTED_TOOL = "summon_daemon"


class State:
    """What the requests share; every method takes the lock."""

    def __init__(self, plan):
        self.plan = plan
        self.lock = threading.Lock()
        self.script = collections.deque()
        self.requests = collections.deque(maxlen=REQUESTS_KEPT_MAX)
        self.refusals = collections.Counter()
        self.answers = 0

    def received(self, body, authorization):
        """Keeps the request, and gives (number of the answer, behaviour, plan)."""
        digest = (
            None if authorization is None else hashlib.sha256(authorization.encode()).hexdigest()
        )
        kept = {"present": authorization is not None, "sha256": digest}
        with self.lock:
            self.requests.append({"body": body, "authorization": kept})
            self.answers += 1
            entry = self.script.popleft() if self.script else model_of(body)
            if isinstance(entry, dict):
                return self.answers, entry["behaviour"], entry.get("plan", self.plan)
            return self.answers, entry, self.plan

    def refuses(self, behaviour, times):
        """True for the first `times` requests with this behaviour."""
        with self.lock:
            self.refusals[behaviour] += 1
            return self.refusals[behaviour] <= times

    def set_script(self, entries):
        with self.lock:
            self.script = collections.deque(entries)

    def list_requests(self):
        with self.lock:
            return list(self.requests)


def model_of(body):
    model = body.get("model") if isinstance(body, dict) else None
    return model if isinstance(model, str) else ""


def is_script(entries):
    return (
        isinstance(entries, list)
        and len(entries) <= SCRIPT_ENTRIES_MAX
        and all(isinstance(e.get("behaviour") if isinstance(e, dict) else e, str) for e in entries)
    )


def with_invented_tool(plan):
    """The plan with the tool of its last step renamed; a plan without steps gets one."""
    plan = copy.deepcopy(plan) if isinstance(plan, dict) else {}
    steps = plan.get("steps")
    if isinstance(steps, list) and steps and isinstance(steps[-1], dict):
        steps[-1]["tool"] = INVENTED_TOOL
    else:
        plan["steps"] = [{"id": "s1", "tool": INVENTED_TOOL, "args": {}}]
    return plan


def prose(text):
    return (
        f"Sure! Here is the plan you asked for:\n\n```json\n{text}\n```\n\nLet me know how it goes."
    )


# Behaviours that are a proper HTTP answer: plan -> (content, finish_reason).
CONTENTS = {
    "good": lambda plan: (json.dumps(plan), "stop"),
    "prose": lambda plan: (prose(json.dumps(plan, indent=2)), "stop"),
    "truncated": lambda plan: (json.dumps(plan)[: len(json.dumps(plan)) // 2], "length"),
    "invented-tool": lambda plan: (json.dumps(with_invented_tool(plan)), "stop"),
    "claims-done": lambda plan: (
        json.dumps({"done": True, "result": {"status": "all done"}}),
        "stop",
    ),
    "wrong-json": lambda plan: (json.dumps({"weather": "fine", "degrees": [21, 23]}), "stop"),
    "empty": lambda plan: ("", "stop"),
}


def completion(number, body, content, finish_reason):
    """The shape of an OpenAI answer. A token is taken to be four characters."""
    prompt_tokens = len(json.dumps(body.get("messages", []))) // 4
    completion_tokens = -(-len(content) // 4)
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": body["model"],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": finish_reason,
            }
        ],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


def error(message, kind, code=None):
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/_requests":
            self.answer(200, self.server.state.list_requests())
        else:
            self.answer(404, error("unknown path", "invalid_request_error"))

    def do_POST(self):
        known, body = self.read_json()
        if not known:
            self.close_connection = True
            self.answer(
                400, error("the body must be JSON with a Content-Length", "invalid_request_error")
            )
        elif self.path == "/v1/chat/completions":
            self.chat(body)
        elif self.path == "/_script":
            self.take_script(body)
        else:
            self.answer(404, error("unknown path", "invalid_request_error"))

    def read_json(self):
        """(True, value), or (False, None) when there is no JSON to read."""
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()) or int(length) > BODY_BYTES_MAX:
            return False, None
        try:
            return True, json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            return False, None

    def take_script(self, entries):
        if not is_script(entries):
            self.answer(
                400, error("the script must be a list of behaviours", "invalid_request_error")
            )
            return
        self.server.state.set_script(entries)
        self.answer(200, {"entries": len(entries)})

    def chat(self, body):
        number, behaviour, plan = self.server.state.received(
            body, self.headers.get("Authorization")
        )
        if not model_of(body) or not isinstance(body.get("messages"), list) or body.get("stream"):
            message = "needs 'model' and 'messages', and does not stream"
            self.answer(400, error(message, "invalid_request_error"))
            return
        kind, _, detail = behaviour.partition(":")
        good = completion(number, body, *CONTENTS["good"](plan))
        if kind in CONTENTS:
            self.answer(200, completion(number, body, *CONTENTS[kind](plan)))
        elif kind == "429":
            self.too_many(behaviour, int(detail) if detail.isdigit() else 2, good)
        elif kind == "503":
            self.answer(503, error("the model is overloaded", "server_error"))
        elif kind == "slow":
            self.drip_then_stall(good)
        elif kind == "half":
            self.half(good)
        else:
            self.answer(
                404, error(f"no model {behaviour!r}", "invalid_request_error", "model_not_found")
            )

    def too_many(self, behaviour, times, good):
        if self.server.state.refuses(behaviour, times):
            refusal = error("rate limit reached", "requests", "rate_limit_exceeded")
            self.answer(429, refusal, {"Retry-After": "1"})
        else:
            self.answer(200, good)

    def drip_then_stall(self, value):
        content = json.dumps(value).encode()
        self.start(200, len(content))
        self.close_connection = True
        try:
            for index in range(min(SLOW_BYTES, len(content) - 1)):
                self.wfile.write(content[index : index + 1])
                time.sleep(SLOW_PAUSE_S)
            # Ends as soon as the client hangs up.
            self.connection.settimeout(STALL_S_MAX)
            self.connection.recv(1)
        except OSError:
            pass

    def half(self, value):
        content = json.dumps(value).encode()
        self.start(200, len(content))
        self.wfile.write(content[: len(content) // 2])
        self.close_connection = True

    def answer(self, status, value, headers=None):
        content = json.dumps(value).encode()
        self.start(status, len(content), headers)
        self.wfile.write(content)

    def start(self, status, length, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_):
        """Silence: stderr belongs to real errors."""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        """A client that hangs up is what the tests are about; anything else is a bug to be seen."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def end_with(parent):
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(0)


def main():
    parent = os.getppid()
    server = Server(("127.0.0.1", 0), Handler)
    server.state = State(json.loads(os.environ.get("MODEL_PLAN", '{"steps": []}')))
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    print(json.dumps({"port": server.server_port}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
