#!/usr/bin/env python3
"""docs/openapi.yaml and the server say the same: of routes, of every field's values, of every answer.

  openapi_test.py BINARY MODEL_DIR [unittest's arguments]
"""
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import unittest
import urllib.parse

import jsonschema
import yaml
from openapi_spec_validator import validate

from server_case import CHAT, COMPLETIONS, DEADLINE_S, ServerCase, run, until

DOCS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs")
with open(os.path.join(DOCS, "openapi.yaml"), encoding="utf-8") as page:
    SPEC = yaml.safe_load(page)

METHODS = ("get", "post", "delete", "put", "patch")
MESSAGES = [{"role": "user", "content": "The code for"}]
MINIMAL = {"ChatRequest": {"messages": MESSAGES}, "CompletionRequest": {"prompt": "The code for"},
           "TokenizeRequest": {"prompt": "x"}, "DetokenizeRequest": {"tokens": [400]}}
# Where a body is read as on its own route, and nothing is generated.
READ_AT = {"ChatRequest": "/tokenize", "CompletionRequest": "/v1/cache/explain", "TokenizeRequest": "/tokenize",
           "DetokenizeRequest": "/detokenize"}
# What a field needs beside it to be allowed.
NEEDS = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True}}

PROBES = [None, True, False, 0, 1, 16, 17, 20, 21, 101, -1, 0.5, 2.5, 10**9, 10**9 + 1, 2**63,
          -2**63, 1e300, "", "x", "auto", "default", "ember-tiny", "x" * 512, "x" * 513, "x" * 1024, "x" * 1025,
          [], [""], ["x"], ["text"], ["x"] * 16, ["x"] * 17, [1], [-1], [0.5], [[1]], [[]], [None], [{}], {}, {"x": 1},
          {"type": "text"}, {"type": "text", "x": 1}, {"type": "disabled"}, {"type": None}]


def resolved(schema):
    while "$ref" in schema:
        schema = SPEC["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema


def validator(schema):
    """Of a schema whose references are those of the page."""
    return jsonschema.Draft202012Validator({**schema, "components": SPEC["components"]})


def fields_of(name):
    schema = SPEC["components"]["schemas"][name]
    fields = dict(schema["properties"])
    for part in schema.get("allOf", []):
        fields.update(resolved(part)["properties"])
    return fields


def field_cases(name):
    """(field, body) for every field and probe, fields of objects in fields too."""
    for field, schema in fields_of(name).items():
        base = {**MINIMAL[name], **NEEDS.get(field, {})}
        for probe in PROBES + resolved(schema).get("enum", []):
            body = {**base, field: probe}
            yield field, {**body, "n": 16} if field == "best_of" and probe == 16 else body
        inner = resolved(schema).get("properties", {})
        needed = {} if "type" not in inner else {"type": inner["type"].get("const", "disabled")}
        for inner_field, inner_schema in inner.items():
            for probe in PROBES + inner_schema.get("enum", []):
                yield f"{field}.{inner_field}", {**base, field: {**needed, inner_field: probe}}
        if inner:
            yield field, {**base, field: {**needed, "undocumented": 1}}
    yield "undocumented", {**MINIMAL[name], "undocumented": 1}


class Page(unittest.TestCase):
    def test_it_is_valid(self):
        validate(SPEC)

    def test_its_routes_are_those_of_the_operators_page(self):
        with open(os.path.join(DOCS, "serving.md"), encoding="utf-8") as file:
            table = file.read().split("\n## Routes\n")[1].split("\n## ")[0]
        told = {(method.lower(), path.replace("NAME", "{name}"))
                for method, path in re.findall(r"`(GET|POST|DELETE) (/[^`]*)`", table)}
        described = {(method, path) for path, item in SPEC["paths"].items() for method in item if method in METHODS}
        self.assertEqual(described, told)


class Fields(ServerCase):
    def setUp(self):
        super().setUp()
        self.server = self.start()
        self.connection = http.client.HTTPConnection(urllib.parse.urlparse(self.server.url).netloc, timeout=DEADLINE_S)
        self.addCleanup(self.connection.close)

    def post(self, path, body):
        self.connection.request("POST", path, json.dumps(body))
        reply = self.connection.getresponse()
        return reply.status, json.loads(reply.read())

    def test_the_server_takes_exactly_the_values_that_the_page_allows(self):
        for name, path in READ_AT.items():
            schema = validator(SPEC["components"]["schemas"][name])
            taken = refused = 0
            for field, body in field_cases(name):
                is_allowed = schema.is_valid(body)
                if field == "prompt" and name == "CompletionRequest":  # only one can be explained
                    status, answer = self.post(COMPLETIONS, {**body, "max_tokens": 1})
                else:
                    status, answer = self.post(path, body)
                what = f"{name}.{field} in {json.dumps(body)[:200]}: {status} {json.dumps(answer)[:300]}"
                if field == "model" and isinstance(body["model"], str) and is_allowed and body["model"] != "ember-tiny":
                    self.assertEqual((status, answer["error"]["code"]), (404, "model_not_found"), what)
                    continue
                self.assertEqual(status, 200 if is_allowed else 400, what)
                taken += is_allowed
                if not is_allowed:
                    refused += 1
                    self.assertEqual(re.split(r"[.[]", answer["error"]["param"])[0], field.split(".")[0], what)
            self.assertGreater(taken, len(fields_of(name)), name)
            self.assertGreater(refused, len(fields_of(name)), name)

    def test_integers_have_64_bits_at_most(self):
        for value, expected in ((2**64 - 1, 200), (2**64, 400), (-2**63, 200), (-2**63 - 1, 400)):
            status, answer = self.post("/tokenize", {**MINIMAL["ChatRequest"], "seed": value})
            self.assertEqual(status, expected, answer)

    def test_messages_that_the_page_forbids_are_refused(self):
        message = validator(SPEC["components"]["schemas"]["Message"])
        base = {"role": "assistant", "content": "x"}
        refused = 0
        for field in SPEC["components"]["schemas"]["Message"]["properties"]:
            for probe in PROBES:
                if message.is_valid({**base, field: probe}):
                    continue
                status, answer = self.post("/tokenize", {"messages": MESSAGES + [{**base, field: probe}] + MESSAGES})
                self.assertEqual(status, 400, (field, probe, answer))
                self.assertEqual(answer["error"]["param"], "messages", (field, probe, answer))
                refused += 1
        self.assertGreater(refused, 200)
        status, _ = self.post("/tokenize", {"messages": [{**MESSAGES[0], "undocumented": 1}]})
        self.assertEqual(status, 400)

    def test_other_methods_are_refused_with_those_that_are_allowed(self):
        for path, item in SPEC["paths"].items():
            allowed = [method for method in METHODS if method in item]
            for method in METHODS:
                if method in allowed:
                    continue
                reply = self.server.call(method.upper(), path.replace("{name}", "ember-tiny"))
                self.assertEqual((reply.status, reply.json["error"]["code"]), (405, "method_not_allowed"), path)
                self.assertEqual(reply.headers["Allow"], "GET, HEAD" if allowed == ["get"] else allowed[0].upper(), path)


class Answers(ServerCase):
    """Every documented answer is seen, and each has the form that the page gives."""

    def setUp(self):
        super().setUp()
        self.seen = set()

    def check(self, method, path, status, content_type, body):
        operation = SPEC["paths"][path][method]
        self.assertIn(str(status), operation["responses"], (method, path, body[:300]))
        response = operation["responses"][str(status)]
        if "$ref" in response:
            response = SPEC["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
        content = response["content"]
        media = content_type.split(";")[0]
        self.assertIn(media, content, (method, path, status))
        self.seen.add((method, path, str(status), media))
        if media == "application/json":
            validator(content[media]["schema"]).validate(json.loads(body))
        elif media == "text/event-stream":
            event = validator(SPEC["components"]["schemas"][content[media]["x-event"]])
            data = [line[6:] for line in body.decode().split("\n") if line.startswith("data: ")]
            self.assertEqual(data[-1], "[DONE]")
            for line in data[:-1]:
                event.validate(json.loads(line))

    def ask(self, server, method, path, body=None, key=None, status=200, **more):
        reply = server.call(method.upper(), path.replace("{name}", more.get("name", "ember-tiny")), body, key=key)
        self.assertEqual(reply.status, status, (method, path, reply.body[:300]))
        self.check(method, path, status, reply.headers["Content-Type"], reply.body)
        if status in (429, 503):
            self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)

    def keys(self):
        tenants = [{"name": name, "keys": [hashlib.sha256(name.encode()).hexdigest()], "operator": name == "ops",
                    "limits": {"tokens_per_minute": 1} if name == "slow" else {}} for name in ("ops", "a", "slow")]
        return self.write("keys.json", {"tenants": tenants})

    def ask_for_text(self, server):
        """Each part of an answer at least once."""
        tool = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}
        for stream in (False, True):
            own = {"max_tokens": 3, "n": 2, "stream": stream, "emberkv": {"trace": True}}
            if stream:
                own["stream_options"] = {"include_usage": True}
            for chat in ({}, {"reasoning_effort": "none"}, {"logprobs": True, "top_logprobs": 3}, {"tools": [tool]}):
                self.ask(server, "post", CHAT, {"messages": MESSAGES, **own, **chat}, key="a")
            for text in ({}, {"logprobs": 2}, {"prompt": [[400] * 300, [401]]}):
                self.ask(server, "post", COMPLETIONS, {"prompt": "The code for", **own, **text}, key="a")

    def test_every_documented_answer_is_given_in_its_form(self):
        server = self.start("--keys", self.keys(), "--max-body", "4K", "--store", self.path("store"))
        self.ask_for_text(server)
        bodies = {CHAT: {"messages": MESSAGES}, COMPLETIONS: {"prompt": "x"}, "/tokenize": {"prompt": "x"},
                  "/detokenize": {"tokens": [400]}, "/v1/cache/explain": {"prompt": [400] * 300}}
        for path, item in SPEC["paths"].items():
            for method, operation in item.items():
                body = bodies.get(path)
                if path not in (CHAT, COMPLETIONS):
                    self.ask(server, method, path, body, key="ops")
                if operation.get("security") != []:
                    self.ask(server, method, path, body, key="nobody", status=401)
                if "403" in operation["responses"]:
                    self.ask(server, method, path, key="a", status=403)
                if body:
                    self.ask(server, method, path, b"{", key="a", status=400)
                    self.ask(server, method, path, {**body, "model": "other"}, key="a", status=404)
                wrong = server.call("PATCH", path, key="a")
                self.check(method, path, wrong.status, wrong.headers["Content-Type"], wrong.body)
        self.ask(server, "get", "/v1/models/{name}", key="a", status=404, name="other")
        for path in (CHAT, COMPLETIONS):
            self.ask(server, "post", path, b" " * 5000, key="a", status=413)
            if path == CHAT:
                self.ask(server, "post", path, bodies[path] | {"max_tokens": 1}, key="slow")  # makes a debt
            self.ask(server, "post", path, bodies[path], key="slow", status=429)
        self.ask_while_ending(server, bodies)

        documented = {(method, path, status, media) for path, item in SPEC["paths"].items()
                      for method, operation in item.items() for status, response in operation["responses"].items()
                      for media in response.get("content", {"application/json": None})}
        self.assertEqual(documented - self.seen, set())

    def ask_while_ending(self, server, bodies):
        """Requests that have begun to arrive when the server is told to end are answered: 503."""
        half_sent = []
        address = urllib.parse.urlparse(server.url)
        for method, path in (("get", "/health/ready"), ("post", CHAT), ("post", COMPLETIONS)):
            body = json.dumps(bodies[path]) if path in bodies else ""
            text = (f"{method.upper()} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n{body}").encode()
            connection = socket.create_connection((address.hostname, address.port), timeout=DEADLINE_S)
            self.addCleanup(connection.close)
            connection.sendall(text[:-2])
            half_sent.append((method, path, connection, text[-2:]))
        server.get("/health")  # answered after what came before
        server.signal(signal.SIGTERM)
        until(lambda: "ending:" in server.log(), "the signal is heard")
        for method, path, connection, rest in half_sent:
            connection.sendall(rest)
            reply = http.client.HTTPResponse(connection)
            reply.begin()
            self.assertEqual(reply.status, 503)
            if method == "post":
                self.assertGreaterEqual(int(reply.headers["Retry-After"]), 1)
            self.check(method, path, reply.status, reply.headers["Content-Type"], reply.read())
        self.assertEqual(server.wait(), 0)


if __name__ == "__main__":
    run()
