"""endpoint.py PORT_FILE ASKED_FILE : an OpenAI-compatible server at /v1, and at /FAULT/v1 one with that fault.

What a fault is stands in `once` (a prompt meets it at its first request only), in `answers` (status 200 and that body), in
`statuses`, in `raw` (bytes instead of HTTP) or as a method of its name. NAME-models gives what NAME would answer for the list of
models. ASKED_FILE has a line for each request for an answer, its fault."""
import gzip
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

once = {"once-429", "once-503", "once-cut", "once-stall"}
seen = set()
lock = threading.Lock()


def answer(content, reason="stop", **message):
    return json.dumps({"choices": [{"finish_reason": reason, "message": {"content": content, **message}}]}).encode()


answers = {
    "empty": b"", "null": b"null", "list": b"[]", "text": b'"hello"', "number": b"5", "object": b"{}",
    "html": b"<!DOCTYPE html><title>Log in\x1b[2J</title>", "sse": b'data: {"choices": []}\n\ndata: [DONE]\n\n',
    "half": b'{"choices": [{"message": {"content": "x', "two": answer("x") * 2, "nul": b"\0" + answer("x"),
    "deep": b"[" * 100000, "deep-object": b'{"choices":' * 5000, "error-200": b'{"error": {"message": "no capacity"}}',
    "choices-null": b'{"choices": null}', "choices-none": b'{"choices": []}', "choices-object": b'{"choices": {"0": 1}}',
    "choice-null": b'{"choices": [null]}', "choice-list": b'{"choices": [[1]]}', "message-null": b'{"choices": [{"message": null}]}',
    "message-text": b'{"choices": [{"message": "x"}]}', "content-null": answer(None, "length"), "content-number": answer(7),
    "content-list": answer([{"type": "text", "text": "x"}]), "content-empty": answer("", "length"), "no-content": b'{"choices": [{"message": {}}]}',
    "gzip": gzip.compress(answer("x")), "long": answer("x" * 1000000),
    # These are answers.
    "reason-null": answer("fine", None), "reason-number": answer("fine", 3), "escapes": answer("a\0b\x1b\x7f\u2028\ud800"),
    "no-utf8": answer("fine").replace(b"fine", b"f\xff\xc0\xafe"), "thinks": answer("fine", reasoning_content="hm\0m"),
    "thinks-too": answer("fine", reasoning="hm", reasoning_content=None), "thinks-only": answer(None, "length", reasoning_content="hmm"),
    "full": answer("x" * 500000), "data-null": b'{"data": null}', "data-none": b'{"data": []}', "data-list": b'{"data": [[]]}',
    "id-null": b'{"data": [{"id": null}]}', "id-number": b'{"data": [{"id": 5}]}',
}
statuses = {
    "400": b'{"error": {"message": "prompt is too long"}}', "400-null": b'{"error": {"message": null}}', "400-nothing": b'{"error": null}',
    "400-list": b'{"error": {"message": ["x"]}, "detail": 3}', "401": b'{"error": {"message": "no such key"}}', "403": b"", "404": b"<html>",
    "422": b'{"detail": [{"msg": "field required"}]}', "429": b'{"message": "busy"}', "500": b"Internal Server Error", "503": b"\xff\0\x1b[31m",
    "204": b"", "304": b"", "302": b"", "307": b"", "999": b"odd",
}
raw = {
    "silent": b"", "no-http": b"SSH-2.0-OpenSSH_9.2\r\n", "status-line": b"HTTP/1.1 banana\r\n\r\n", "header-only": b"HTTP/1.1 200 OK\r\nContent-",
    "bad-chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx", "bad-length": b"HTTP/1.1 200 OK\r\nContent-Length: -7\r\n\r\n{}",
    "huge-length": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
    "huge-header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000000 + b"\r\n\r\n{}", "continues": b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
    "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + answer("x")[:30],
}


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send(self, status, body, promised=None):
        self.send_response(status)
        self.send_header("Content-Length", str(promised or len(body)))
        if status in (302, 307):
            self.send_header("Location", "/elsewhere/v1")
        self.end_headers()
        self.wfile.write(body)

    def misbehave(self, fault):
        """@return whether this was a fault that is an answer to anything."""
        if fault in answers:
            self.send(200, answers[fault])
        elif fault in statuses:
            self.send(int(fault[:3]), statuses[fault])
        elif fault in raw:
            self.wfile.write(raw[fault])
        elif fault in ("endless", "endless_header", "drip"):
            getattr(self, fault)()
        else:
            return False
        return True

    def endless(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            self.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")

    def endless_header(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            self.wfile.write(b"X: " + b"x" * 65536 + b"\r\n")

    def drip(self):
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            self.wfile.write(b" ")
            time.sleep(0.05)

    def fault(self, end):
        head, found, tail = self.path.partition("/v1/")
        return head.strip("/") if found and tail == end else None

    def do_GET(self):
        fault = self.fault("models")
        if fault is None or "/" in fault or fault == "nowhere":
            self.send(404, b'{"error": "no such path"}')
        elif not fault.endswith("-models") or not self.misbehave(fault[:-7]):
            self.send(200, b'{"data": [{"id": "served-model"}]}')

    def do_POST(self):
        fault = self.fault("chat/completions")
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = asked["messages"][-1]["content"]
        with lock:
            first = (fault, prompt) not in seen
            seen.add((fault, prompt))
            with open(sys.argv[2], "a") as file:
                file.write(f"{fault}\n")
        if fault in once and first:
            if fault in ("once-429", "once-503"):
                self.send(int(fault[5:]), b'{"error": {"message": "busy"}}')
                return
            if fault == "once-cut":
                self.send(200, answer("cut")[:9], 1000)
                return
            time.sleep(5)
        if fault == "slow":
            time.sleep(0.2)
        if not self.misbehave(fault):
            self.send(200, answer(f"To {prompt!r} {asked['model']} says:\n\"yes\" \\ {self.headers.get('Authorization')}"))


class Server(ThreadingHTTPServer):
    request_queue_size = 1024

    def handle_error(self, *_):  # a client that has gone
        pass


server = Server(("127.0.0.1", 0), Handler)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
