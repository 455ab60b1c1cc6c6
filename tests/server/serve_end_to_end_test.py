#!/usr/bin/env python3
"""The service as its clients and operators see it.

  serve_end_to_end_test.py BINARY MODEL_DIR [unittest's arguments]
"""
import collections
import hashlib
import http.client
import json
import random
import signal
import subprocess
import sys
import threading
import unittest
import urllib.parse

from serve_process import DEADLINE_S, ServeProcess
from server_case import BINARY, CHAT, COMPLETIONS, MODEL, ServerCase, fact, until


def long_prompt(seed, tokens=6000):
    return [random.Random(seed).randrange(300, 2000) for _ in range(tokens)]


def run(*arguments):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False)


def in_threads(functions):
    threads = [threading.Thread(target=function) for function in functions]
    for thread in threads:
        thread.start()
    return threads


class ServeTest(ServerCase):
    def check_usage(self, usage):
        hit, miss = usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"]
        self.assertEqual(hit + miss, usage["prompt_tokens"])
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_cache_hit_tokens"])
        self.assertEqual(usage["total_tokens"], usage["prompt_tokens"] + usage["completion_tokens"])


class Answers(ServeTest):
    def test_a_stream_says_what_the_whole_answer_says(self):
        server = self.start()
        text, question, code = fact()
        body = {"messages": [{"role": "user", "content": f"{text} {question}"}],
                "max_tokens": 20, "temperature": 0, "thinking": {"type": "disabled"}}
        whole = server.post(CHAT, body)
        self.assertEqual(whole.status, 200, whole.body)
        self.assertEqual(whole.json["choices"][0]["message"]["content"], code)
        self.assertTrue(whole.headers["X-Request-Id"].startswith("req-"))
        self.check_usage(whole.json["usage"])
        stream = server.post(CHAT, dict(body, stream=True, stream_options={"include_usage": True}))
        self.assertTrue(stream.headers["X-Request-Id"].startswith("req-"))
        events = stream.events
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        self.assertEqual("".join(delta.get("content") or "" for delta in deltas), code)
        self.check_usage(events[-1]["usage"])
        hit = events[-1]["usage"]["prompt_cache_hit_tokens"]
        self.assertGreater(hit, 0, "the first answer's blocks are there")
        self.assertEqual(server.stop(), 0)

    def test_a_second_turn_after_a_restart_hits_what_the_first_one_stored(self):
        text, question, code = fact()
        messages = [{"role": "user", "content": f"{text} {question}"}]
        first_server = self.start("--store", self.path("store"), "--store-size", "1G")
        first = first_server.post(CHAT, {"messages": messages, "max_tokens": 20, "temperature": 0})
        self.assertEqual(first.json["usage"]["prompt_cache_hit_tokens"], 0)
        self.assertEqual(first_server.stop(), 0)

        messages += [first.json["choices"][0]["message"], {"role": "user", "content": "And again?"}]
        second_server = self.start("--store", self.path("store"), "--store-size", "1G")
        second = second_server.post(CHAT, {"messages": messages, "max_tokens": 20, "temperature": 0,
                                           "emberkv": {"trace": True}})
        self.assertEqual(second.status, 200, second.body)
        self.check_usage(second.json["usage"])
        self.assertGreaterEqual(second.json["usage"]["prompt_cache_hit_tokens"], 384)
        self.assertGreater(second_server.metrics()["emberkv_store_read_bytes_total"], 0)

        def totals():
            return second_server.get("/v1/cache/stats").json["totals"]

        until(lambda: totals()["requests"] == 1, "the request is counted")  # after the answer
        self.assertGreaterEqual(totals()["store_hit_tokens"], 384)
        self.assertGreater(totals()["saved_usd"], 0)
        self.assertEqual(second_server.stop(), 0)

    def test_what_is_not_there_is_said_in_the_shape_of_the_api(self):
        server = self.start()
        nothing = server.get("/v1/nothing")
        self.assertEqual(nothing.status, 404)
        self.assertIn("message", nothing.json["error"])
        self.assertTrue(nothing.headers["X-Request-Id"])
        wrong = server.get(CHAT)
        self.assertEqual((wrong.status, wrong.headers["Allow"]), (405, "POST"))
        self.assertEqual(server.post(CHAT, b"{").status, 400)
        self.assertEqual(server.get("/v1/models").json["data"][0]["id"], "ember-tiny")
        self.assertEqual(server.get("/v1/models/ember-tiny").status, 200)
        self.assertEqual(server.get("/v1/models/gpt").status, 404)
        self.assertEqual(server.get("/health").json["status"], "ok")
        self.assertEqual(server.get("/health/ready").json["status"], "ready")
        self.assertEqual(server.call("HEAD", "/health").body, b"")
        self.assertIn("text/html", server.get("/").headers["Content-Type"])

    def test_a_prompt_that_never_fits_is_refused_with_the_numbers(self):
        server = self.start("--ledger", self.path("ledger.jsonl"))
        pages = server.get("/v1/cache/stats").json["queue"]["pool_pages"]
        tokens = 128 * (pages // 16 + 1)
        refused = server.post(COMPLETIONS, {"prompt": [400] * 300, "max_tokens": tokens, "n": 16})
        self.assertEqual(refused.status, 400)
        self.assertIn(f"has {pages}", refused.json["error"]["message"])
        until(lambda: self.ledger(), "the line of the refused request")  # written after the answer
        self.assertEqual([line["status"] for line in self.ledger()], [400])


class Tenants(ServeTest):
    def keys_file(self, **limits):
        tenants = [{"name": name, "keys": [hashlib.sha256(f"key-{name}".encode()).hexdigest()],
                    "operator": name == "ops", "limits": limits.get(name, {})} for name in ("a", "b", "ops")]
        return self.write("keys.json", {"tenants": tenants})

    def test_case_t01_another_tenant_hits_nothing(self):
        server = self.start("--keys", self.keys_file(), "--store", self.path("store"))
        body = {"prompt": long_prompt(1, 600), "max_tokens": 1}
        hits = [server.post(COMPLETIONS, body, key=key).json["usage"]["prompt_cache_hit_tokens"]
                for key in ("key-a", "key-b", "key-a", "key-b")]
        self.assertEqual(hits[:2], [0, 0])
        self.assertGreaterEqual(min(hits[2:]), 512)

    def test_case_t04_a_tenant_that_erases_hits_nothing_and_others_do(self):
        server = self.start("--keys", self.keys_file(), "--store", self.path("store"))
        body = {"prompt": long_prompt(1, 600), "max_tokens": 1}
        for key in ("key-a", "key-b"):
            server.post(COMPLETIONS, body, key=key)
        erased = server.call("DELETE", "/v1/cache", key="key-a")
        self.assertEqual((erased.status, erased.json["tenant"]), (200, "a"))
        hits = [server.post(COMPLETIONS, body, key=key).json["usage"]["prompt_cache_hit_tokens"]
                for key in ("key-a", "key-b")]
        self.assertEqual(hits[0], 0)
        self.assertGreaterEqual(hits[1], 512)

    def test_keys_open_what_is_theirs(self):
        server = self.start("--keys", self.keys_file())
        self.assertEqual(server.get("/health").status, 200)
        self.assertEqual(server.get("/v1/models").status, 401)
        self.assertEqual(server.get("/v1/models", key="wrong").status, 401)
        self.assertEqual(server.get("/v1/models", key="key-a").status, 200)
        for path in ("/metrics", "/v1/cache/stats"):
            self.assertEqual(server.get(path, key="key-a").status, 403)
            self.assertEqual(server.get(path, key="key-ops").status, 200)

    def test_limits_of_a_tenant_answer_429_with_a_time_to_come_back(self):
        server = self.start("--keys", self.keys_file(a={"tokens_per_minute": 100}))
        body = {"prompt": long_prompt(1, 600), "max_tokens": 1}
        self.assertEqual(server.post(COMPLETIONS, body, key="key-a").status, 200, "a debt may be made once")
        refused = server.post(COMPLETIONS, body, key="key-a")
        self.assertEqual(refused.status, 429)
        self.assertGreater(int(refused.headers["Retry-After"]), 60)
        self.assertEqual(server.post(COMPLETIONS, body, key="key-b").status, 200)

    def test_sighup_reads_the_keys_again_and_a_bad_file_keeps_the_old_ones(self):
        server = self.start("--keys", self.keys_file())
        self.write("keys.json", {"tenants": [{"name": "c", "keys": [hashlib.sha256(b"key-c").hexdigest()]}]})
        server.signal(signal.SIGHUP)
        until(lambda: server.get("/v1/models", key="key-c").status == 200, "the new key opens")
        self.assertEqual(server.get("/v1/models", key="key-a").status, 401)
        self.write("keys.json", {"tenants": "none"})
        server.signal(signal.SIGHUP)
        until(lambda: "the old keys stay in use" in server.log(), "the bad file is logged")
        self.assertEqual(server.get("/v1/models", key="key-c").status, 200)

    def test_what_a_tenant_may_store_holds_for_requests_after_sighup(self):
        server = self.start("--keys", self.keys_file(ops={"max_stored_bytes": 1, "retention": "1h"}),
                            "--store", self.path("store"))

        def stored_of(key):
            return server.get("/v1/cache/usage", key=key).json["store"]

        def tier():
            return server.get("/v1/cache/stats", key="key-ops").json["tiers"]["store"]

        server.post(COMPLETIONS, {"prompt": long_prompt(1, 600), "max_tokens": 1}, key="key-ops")
        until(lambda: tier()["puts_refused_tenant_full"] == 4, "its blocks are refused")
        self.assertEqual(stored_of("key-ops"), {"pages": 0, "bytes": 0, "promised_bytes": 0, "max_stored_bytes": 1,
                                                "retention_seconds": 3600})
        server.post(COMPLETIONS, {"prompt": long_prompt(1, 600), "max_tokens": 1}, key="key-a")
        until(lambda: tier()["puts_stored"] == 4, "another tenant's are not")

        self.keys_file(ops={"max_stored_bytes": 1 << 30})
        server.signal(signal.SIGHUP)
        until(lambda: stored_of("key-ops")["max_stored_bytes"] == 1 << 30, "the new limit is read")
        server.post(COMPLETIONS, {"prompt": long_prompt(2, 600), "max_tokens": 1}, key="key-ops")
        until(lambda: stored_of("key-ops")["pages"] == 4, "the next request's blocks are stored")
        self.assertEqual(stored_of("key-ops")["bytes"], stored_of("key-ops")["promised_bytes"])

    def test_a_tenant_sees_what_it_stores_and_saves_itself(self):
        server = self.start("--keys", self.keys_file(a={"max_stored_bytes": 1 << 30}), "--store", self.path("store"))
        for _ in range(2):
            server.post(COMPLETIONS, {"prompt": long_prompt(1, 600), "max_tokens": 1}, key="key-a")

        def usage(key):
            return server.get("/v1/cache/usage", key=key).json

        until(lambda: usage("key-a")["store"]["pages"] == 4, "its blocks are stored")
        until(lambda: usage("key-a")["totals"]["requests"] == 2, "both requests are counted")
        mine = usage("key-a")
        self.assertEqual((mine["tenant"], mine["store"]["max_stored_bytes"]), ("a", 1 << 30))
        self.assertEqual(mine["totals"]["prompt_tokens"], 1200)
        self.assertGreaterEqual(mine["totals"]["hit_tokens"], 512)
        self.assertGreater(mine["totals"]["saved_usd"], 0)
        others = usage("key-b")
        self.assertEqual((others["tenant"], others["store"]["pages"], others["totals"]["requests"]), ("b", 0, 0))

    def test_one_sees_only_ones_own_requests(self):
        server = self.start("--keys", self.keys_file(), "--max-running", "1")

        def ask(key):
            server.post(COMPLETIONS, {"prompt": long_prompt(key), "max_tokens": 1}, key=key)

        threads = in_threads([lambda key=key: ask(key) for key in ("key-a", "key-b")])
        seen = collections.defaultdict(set)

        def look():
            for key in ("key-a", "key-b", "key-ops"):
                seen[key] |= {row["tenant"] for row in server.get("/v1/requests", key=key).json["data"]}
            return not any(thread.is_alive() for thread in threads)

        until(look, "both are answered")
        self.assertEqual(dict(seen), {"key-a": {"a"}, "key-b": {"b"}, "key-ops": {"a", "b"}})


class Accounts(ServeTest):
    def test_case_m03_metrics_equal_the_ledger(self):
        server = self.start("--ledger", self.path("ledger.jsonl"), "--trace-file", self.path("trace.jsonl"),
                            "--store", self.path("store"), "--max-running", "2", "--max-queued", "3")
        bodies = [{"prompt": long_prompt(i % 4, 300 + 200 * (i % 3)), "max_tokens": 1 + i % 5,
                   "stream": i % 2 == 0} for i in range(16)]
        bodies += [{"prompt": "x", "max_tokens": "many"}, {"prompt": [400], "n": 3, "max_tokens": 2}]
        statuses = []
        asks = [lambda b=b: statuses.append(server.post(COMPLETIONS, b).status) for b in bodies]
        for thread in in_threads(asks):
            thread.join()

        def ended():
            return sum(v for k, v in server.metrics().items() if k.startswith("emberkv_requests_total"))

        until(lambda: ended() == len(bodies), "all requests are counted")
        lines, metrics = self.ledger(), server.metrics()
        self.assertEqual(collections.Counter(statuses), collections.Counter(line["status"] for line in lines))
        self.assertIn(200, statuses)
        self.assertIn(400, statuses)
        for status, count in collections.Counter(statuses).items():
            key = f'emberkv_requests_total{{endpoint="{COMPLETIONS}",status="{status}",tenant=""}}'
            self.assertEqual(metrics[key], count)
        for kind in ("prompt", "hit", "replayed", "miss", "completion"):
            total = sum(line[f"{kind}_tokens"] for line in lines)
            self.assertEqual(metrics[f'emberkv_tokens_total{{kind="{kind}",tenant=""}}'], total, kind)
        for tier in ("resident", "store"):
            total = sum(line[f"{tier}_blocks"] for line in lines)
            self.assertEqual(metrics[f'emberkv_hit_blocks_total{{tenant="",tier="{tier}"}}'], total)
        self.assertEqual(metrics['emberkv_lines_lost_total{file="ledger"}'], 0)
        self.assertEqual(metrics["emberkv_running_requests"], 0)
        self.assertEqual(server.stop(), 0)
        with open(self.path("trace.jsonl"), encoding="utf-8") as trace:
            traced = sum(json.loads(line)["prompt_tokens"] for line in trace)
        self.assertEqual(traced, sum(line["prompt_tokens"] for line in lines if line["status"] == 200))

    def test_a_client_that_leaves_the_queue_is_a_499_and_runs_no_more(self):
        server = self.start("--ledger", self.path("ledger.jsonl"), "--max-running", "1")
        body = {"prompt": long_prompt(1, 20000), "max_tokens": 1}
        runs, = in_threads([lambda: server.post(COMPLETIONS, body)])
        until(lambda: [row["phase"] for row in server.get("/v1/requests").json["data"]] == ["prefill"],
              "one runs")
        leaver = http.client.HTTPConnection(urllib.parse.urlparse(server.url).netloc)
        leaver.request("POST", COMPLETIONS, json.dumps({"prompt": long_prompt(2), "max_tokens": 1}))
        until(lambda: len(server.get("/v1/requests").json["data"]) == 2, "one waits")
        leaver.close()
        until(lambda: self.ledger(), "the queue notices")
        self.assertEqual([(line["status"], line["prompt_tokens"]) for line in self.ledger()], [(499, 0)])
        self.assertTrue(runs.is_alive(), "before its turn came")
        runs.join()
        until(lambda: len(self.ledger()) == 2, "the other is answered")


class Endings(ServeTest):
    def load(self, server, count, results):
        def ask(i):
            try:
                results.append(server.post(COMPLETIONS, {"prompt": long_prompt(i), "max_tokens": 2}).status)
            except OSError:  # it no longer listens
                results.append(0)

        return in_threads([lambda i=i: ask(i) for i in range(count)])

    def test_sigterm_under_load_ends_with_0_and_whole_answers(self):
        server = self.start("--ledger", self.path("ledger.jsonl"), "--store", self.path("store"),
                            "--max-running", "2", "--grace", "10m")
        results = []
        threads = self.load(server, 8, results)
        until(lambda: len(results) >= 1, "the first is answered")
        self.assertEqual(server.stop(), 0)
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 8)
        self.assertIn(200, results)
        self.assertLessEqual(set(results), {200, 503, 0})
        told = collections.Counter(line["status"] for line in self.ledger())
        self.assertEqual(told[200], results.count(200))

    def test_what_runs_when_the_grace_is_over_is_ended(self):
        server = self.start("--max-running", "1", "--grace", "50ms")
        results = []
        threads = self.load(server, 2, results)
        until(lambda: server.get("/v1/requests").json["data"], "one runs")
        self.assertEqual(server.stop(), 0)
        for thread in threads:
            thread.join()
        self.assertEqual(len(results), 2)

    def test_a_second_sigterm_ends_at_once(self):
        server = self.start("--max-running", "1", "--grace", "1h")
        results = []
        threads = self.load(server, 4, results)
        until(lambda: len(server.get("/v1/requests").json["data"]) == 4, "all are in")
        server.signal(signal.SIGTERM)
        until(lambda: "ending:" in server.log(), "the first is heard")
        server.signal(signal.SIGTERM)
        self.assertEqual(server.wait(), 128 + signal.SIGTERM)
        for thread in threads:
            thread.join()


class Options(ServeTest):
    def run_serve(self, *options):
        done = run("serve", *options)
        return done.returncode, done.stdout + done.stderr

    def test_other_machines_need_keys(self):
        code, text = self.run_serve("--model", MODEL, "--host", "0.0.0.0")
        self.assertEqual(code, 1)
        self.assertIn("no keys file", text)

    def test_a_config_file_has_the_names_of_the_command_line_which_wins(self):
        config = self.write("serve.json", {"model-name": "from-file", "max-running": 3, "port": 1})
        server = self.start("--config", config)  # with --port 0
        self.assertEqual(server.get("/v1/models").json["data"][0]["id"], "from-file")

    def test_a_config_file_with_unknown_names_or_wrong_values_is_refused(self):
        for value, complaint in (({"modle": "x"}, "modle: no such option"),
                                 ({"store-size": "x"}, "store-size"),
                                 ({"max-running": 0, "model": MODEL}, "max-running is 0")):
            code, text = self.run_serve("--config", self.write("serve.json", value))
            self.assertNotEqual(code, 0)
            self.assertIn(complaint, text)

    def test_a_port_that_is_taken_is_said(self):
        server = self.start()
        port = urllib.parse.urlparse(server.url).port
        code, text = self.run_serve("--model", MODEL, "--kv-memory", "16M", "--port", str(port))
        self.assertEqual(code, 1)
        self.assertIn(str(port), text)

    def test_a_key_that_is_made_opens(self):
        made = run("key", "acme")
        lines = made.stdout.splitlines()
        server = self.start("--keys", self.write("keys.json", {"tenants": [json.loads(lines[3])]}))
        self.assertEqual(server.get("/v1/models", key=lines[1].strip()).status, 200)
        self.assertEqual(run("key", "a b").returncode, 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
