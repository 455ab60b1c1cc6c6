#!/usr/bin/env python3
"""Broken, hostile and huge requests, from fixed seeds: the server refuses them in the API's shape and goes on.

  http_fuzz_test.py BINARY MODEL_DIR [unittest's arguments]
"""
import collections
import http.client
import json
import random
import resource
import socket
import urllib.parse

from server_case import CHAT, COMPLETIONS, DEADLINE_S, ServerCase, account_differences, run, wait_idle

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
# Every answer is short: a fuzzed request that is right after all costs a few tokens.
BODIES = {
    CHAT: {"messages": [{"role": "system", "content": "s"},
                        {"role": "user", "content": [{"type": "text", "text": "u"}]},
                        {"role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [CALL]},
                        {"role": "tool", "tool_call_id": "c", "content": "t"}, {"role": "user", "content": "v"}],
           "tools": [TOOL], "tool_choice": "auto", "thinking": {"type": "enabled"}, "reasoning_effort": "low",
           "temperature": 1, "top_p": 0.5, "seed": 3, "stop": ["x", "y"], "n": 2, "logprobs": True, "top_logprobs": 2,
           "stream": True, "stream_options": {"include_usage": True}, "user": "u", "response_format": {"type": "text"},
           "emberkv": {"trace": True, "replay": "exact", "cache_salt": "s", "no_store": False}, "max_tokens": 2},
    COMPLETIONS: {"prompt": ["The code", "The"], "n": 2, "best_of": 2, "logprobs": 2, "stop": "x", "seed": -1,
                  "stream": False, "emberkv": {"trace": True}, "max_tokens": 2},
    "/tokenize": {"prompt": "The code", "add_special_tokens": True},
    "/detokenize": {"tokens": [0, 400, 2559]},
    "/v1/cache/explain": {"prompt": [400] * 300, "emberkv": {"replay": "full"}},
}
ODD_BYTES = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80", b"\x00", b"\xef\xbb\xbf",
             b"\xf0\x9f\x98\x80", b"\xcc\x81", b"\xe2\x80\xae", b"\\u0000", b"\\ud800", b"\\udc00\\ud800", b"\\uFFFE",
             b"<\xef\xbd\x9cUser\xef\xbd\x9c>", b"</think>", b"\x7f", b"\r\n\r\n"]
ODD_VALUES = [None, True, -1, 0, 2**31, 2**63, 2**64, 10**400, 1e308, "", "x" * 300_000, [], {}, [[]], [None] * 3000,
              list(range(1000)), {str(i): i for i in range(600)}, {"": {}}, "\ud800", "\u0000"]


def places(value, path=()):
    """Paths to everything in a JSON value."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, path + (key,))


def replaced(value, path, new):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def other_value(chance, body):
    """One value, somewhere, is another."""
    path = chance.choice([path for path in places(body) if path != ("max_tokens",)])
    return json.dumps(replaced(body, path, chance.choice(ODD_VALUES))).encode()


def deep(chance, body):
    """One value is a deep nest."""
    levels = chance.choice([10, 60, 64, 65, 500, 100_000])
    opening, closing = chance.choice([("[", "]"), ('{"a":', "}")])
    marked = json.dumps({**body, chance.choice(list(body)): "DEEP", "max_tokens": 2})
    return marked.replace('"DEEP"', opening * levels + "1" + closing * (levels - chance.choice([0, 0, 1]))).encode()


def cut(chance, body):
    text = json.dumps(body).encode()
    return text[:chance.randrange(len(text))] + chance.choice([b"", b"}", b"]}", b'"}'])


def odd_bytes(chance, body):
    """Bytes inside of it that are no UTF-8, or strange there."""
    text = bytearray(json.dumps(body, ensure_ascii=False).encode())
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(text))
        text[at:at + chance.randrange(2)] = chance.choice(ODD_BYTES)
    return bytes(text)


def swapped_tokens(chance, body):
    """JSON's own characters out of place, and what is no JSON."""
    text = json.dumps(body)
    for _ in range(chance.randrange(1, 3)):
        old = chance.choice(['"', ":", ",", "{", "}", "[", "]", "true", "2"])
        text = text.replace(old, chance.choice(["", "NaN", "Infinity", "'", "/**/", "1e999", "-", old * 2]), 1)
    return text.encode()


def doubled_key(chance, body):
    key = chance.choice([key for key in body if key != "max_tokens"])
    return (json.dumps(body)[:-1] + f', "{key}": {json.dumps(chance.choice(list(body.values())))}}}').encode()


def noise(chance, _):
    return chance.randbytes(chance.randrange(2000))


MUTATIONS = [other_value, other_value, other_value, deep, cut, odd_bytes, odd_bytes, swapped_tokens, doubled_key, noise]

HEAD = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
BODY = b'{"prompt": "x"}'
WIRE = [
    b"", b"\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/9.9\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /%00%ff/../../etc HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /health HTTP/1.1\r\n\r\n",
    b"GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\nA: " + b"b" * 20_000 + b"\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\nA\x00: b\r\n\r\n", b"GET /health HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b"G\xc3\x89T / HTTP/1.1\r\nHost: x\r\n\r\n",
    *[HEAD + b"Content-Length: " + length + b"\r\n\r\n" + BODY
      for length in (b"-1", b"0", b"5", b"15", b"16", b"x", b"1e3", b"99999999999999999999", b"17000000", b"15, 15")],
    HEAD + b"Content-Length: 15\r\nContent-Length: 3\r\n\r\n" + BODY,
    HEAD + b"Content-Length: 15\r\nTransfer-Encoding: chunked\r\n\r\n" + BODY,
    *[HEAD + b"Transfer-Encoding: " + coding + b"\r\n\r\nf\r\n" + BODY + b"\r\n0\r\n\r\n"
      for coding in (b"chunked", b"gzip", b"chunked, chunked", b"xchunked")],
    *[HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + BODY + b"\r\n0\r\n\r\n"
      for size in (b"g", b"-f", b"ffffffffffffffff", b"f;" + b"x" * 20_000, b"10", b"e")],
    HEAD + b"Expect: 100-continue\r\nContent-Length: 15\r\n\r\n" + BODY,
    HEAD + b"Expect: tea\r\nContent-Length: 0\r\n\r\n",
    b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 40, HEAD + b"Content-Length: 15\r\n\r\n" + BODY + b"garbage after it",
]


class HttpFuzz(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.start("--context", "8K", "--ledger", self.path("ledger.jsonl"),
                                 "--store", self.path("store"))

    def connect(self, server):
        address = urllib.parse.urlparse(server.url)
        connection = socket.create_connection((address.hostname, address.port), timeout=DEADLINE_S)
        self.addCleanup(connection.close)
        return connection

    def check_answer(self, status, content_type, body, what):
        self.assertIn(status, (100, 200, 400, 404, 405, 408, 413, 417, 431), what)
        if status >= 400:
            self.assertEqual(content_type, "application/json", what)
            self.assertEqual(set(json.loads(body)["error"]), {"message", "type", "param", "code"}, what)

    def check_it_goes_on(self):
        metrics = wait_idle(self.server)
        lines = self.ledger()
        self.assertEqual(account_differences(lines, metrics), {})
        if lines:
            self.assertTrue(account_differences(lines[1:], metrics), "the comparison sees a line that is missing")
        self.assertEqual(metrics['emberkv_memory_bytes{part="pinned"}'], 0)
        self.assertEqual(metrics["emberkv_promised_pages"], 0)
        self.assertEqual(self.server.get("/health").json, {"status": "ok"})
        self.assertEqual(self.server.stop(), 0)

    def test_a_low_limit_of_open_files_does_not_limit_the_connections(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        server = self.start()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connections = [self.connect(server) for _ in range(200)]
        for connection in connections:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        for connection in connections:
            self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 200 "))

    def test_bodies(self):
        chance = random.Random(20261129)
        connection = http.client.HTTPConnection(urllib.parse.urlparse(self.server.url).netloc, timeout=DEADLINE_S)
        self.addCleanup(connection.close)
        seen, statuses = collections.Counter(), collections.Counter()
        for i in range(1500):
            path = chance.choice(list(BODIES))
            mutation = chance.choice(MUTATIONS)
            body = mutation(chance, BODIES[path])
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            answer = reply.read()
            self.check_answer(reply.status, reply.headers["Content-Type"], answer,
                              f"{i}: {mutation.__name__} {path} {body[:300]!r}: {reply.status} {answer[:300]!r}")
            statuses[reply.status] += 1
            if path in (CHAT, COMPLETIONS):
                seen[path, reply.status] += 1
        self.assertGreater(statuses[400], 700)
        self.assertGreater(statuses[200], 50, "some are right after all")
        wait_idle(self.server)
        self.assertEqual(seen, collections.Counter((line["endpoint"], line["status"]) for line in self.ledger()))
        self.check_it_goes_on()

    def exchange(self, sent, ends):
        """All that the server says to these bytes, until it closes."""
        with self.connect(self.server) as connection:
            received = b""
            try:
                connection.sendall(sent)
                if ends:
                    connection.shutdown(socket.SHUT_WR)
                while piece := connection.recv(65536):
                    received += piece
            except ConnectionError:
                pass  # it closed while there was more to read: its right
            return received

    def check_answers(self, sent, ends=True):
        received = self.exchange(sent, ends)
        count = 0
        while received:
            self.assertTrue(received.startswith(b"HTTP/1.1 "), (sent[:200], received[:200]))
            head, received = received.split(b"\r\n\r\n", 1)
            headers = {name.lower(): value for name, value in
                       (line.split(": ", 1) for line in head.decode().split("\r\n")[1:])}
            length = int(headers.get("content-length", 0))
            self.check_answer(int(head.split()[1]), headers.get("content-type"), received[:length], (sent[:200], head))
            received = received[length:]
            count += 1
        return count

    def test_bytes_that_are_hardly_http(self):
        chance = random.Random(29112026)
        answers = 0
        for sent in WIRE:
            answers += self.check_answers(sent)
        request = b"GET /health HTTP/1.1\r\nHost: x\r\n"
        pipelined = (request + b"\r\n") * 39 + request + b"Connection: close\r\n\r\n"
        self.assertEqual(self.check_answers(pipelined, ends=False), 40)
        for _ in range(500):
            sent = bytearray(chance.choice(WIRE)[:4000])
            for _ in range(chance.randrange(6)):
                at = chance.randrange(len(sent) + 1)
                sent[at:at + chance.randrange(3)] = chance.choice([b"\r\n", b"\n", b"\x00", b" ", b":", b"\xff", b"",
                                                                   chance.randbytes(3)])
            answers += self.check_answers(bytes(sent))
        for size in (1, 100, 10_000, 1_000_000):
            answers += self.check_answers(chance.randbytes(size))
        self.assertGreater(answers, 400)
        self.check_it_goes_on()


if __name__ == "__main__":
    run()
