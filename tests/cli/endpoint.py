"""endpoint.py PORT_FILE FAULT : an OpenAI-compatible server that meets every prompt once with FAULT before it answers.

FAULT: none, 429, 500, json (text that is no JSON), cut (a body shorter than it says), stall (no answer for 5 s),
shape (JSON without an answer), 401 (always)."""
import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULT = sys.argv[2]
seen = set()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def send(self, status, body, promised=None):
        self.send_response(status)
        self.send_header("Content-Length", str(promised or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path != "/v1/models":
            self.send(404, b'{"error": "no such path"}')
            return
        self.send(200, json.dumps({"data": [{"id": "served-model"}]}).encode())

    def do_POST(self):
        if self.path != "/v1/chat/completions":
            self.send(404, b'{"detail": "no such path"}')
            return
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = asked["messages"][-1]["content"]
        first = prompt not in seen
        seen.add(prompt)
        answer = json.dumps({"choices": [{"finish_reason": "stop", "message": {
            "content": f"To {prompt!r} {asked['model']} says:\n\"yes\" \\ {self.headers.get('Authorization')}"}}]}).encode()
        if FAULT == "401":
            self.send(401, json.dumps({"error": {"message": f"no such key, {len(seen)} asked"}}).encode())
        elif first and FAULT in ("429", "500"):
            self.send(int(FAULT), b'{"error": {"message": "busy"}}')
        elif first and FAULT == "json":
            self.send(200, b"<html>")
        elif first and FAULT == "shape":
            self.send(200, b'{"choices": []}')
        elif first and FAULT == "cut":
            self.send(200, answer[:9], len(answer))
        else:
            if first and FAULT == "stall":
                time.sleep(5)
            self.send(200, answer)


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(str(server.server_port))
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
