#!/usr/bin/env python3
"""The unchanged `openai` package as a client of the server, and curl.

  openai_client_test.py BINARY MODEL_DIR [unittest's arguments]
"""
import hashlib
import json
import subprocess
import threading
import unittest

import openai

from server_case import CHAT, COMPLETIONS, DEADLINE_S, ServerCase, fact, run, until, wait_idle

TEXT, QUESTION, CODE = fact()
MESSAGES = [{"role": "user", "content": f"{TEXT} {QUESTION}"}]
WEATHER = {"type": "function",
           "function": {"name": "get_weather", "description": "The weather of a place",
                        "parameters": {"type": "object", "properties": {"place": {"type": "string"}},
                                       "required": ["place"]}}}
# Long enough that whoever comes meanwhile finds a request running.
LONG = {"prompt": [300 + i % 1700 for i in range(16_000)], "max_tokens": 1}


class OpenAiCase(ServerCase):
    def client(self, server, **options):
        client = openai.OpenAI(base_url=server.url + "/v1",
                               **{"api_key": "none", "max_retries": 0, "timeout": DEADLINE_S, **options})
        self.addCleanup(client.close)
        return client

    def check_usage(self, usage):
        self.assertEqual(usage.prompt_cache_hit_tokens + usage.prompt_cache_miss_tokens, usage.prompt_tokens)
        self.assertEqual(usage.prompt_tokens_details.cached_tokens, usage.prompt_cache_hit_tokens)
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

    def keys(self, **limits):
        """Tenants a, b and ops, with the keys key-a, key-b, key-ops."""
        tenants = [{"name": name, "keys": [hashlib.sha256(f"key-{name}".encode()).hexdigest()],
                    "operator": name == "ops", "limits": limits.get(name, {})} for name in ("a", "b", "ops")]
        return self.write("keys.json", {"tenants": tenants})


class Answers(OpenAiCase):
    def setUp(self):
        super().setUp()
        self.server = self.start()
        self.openai = self.client(self.server)

    def chat(self, **more):
        more = {"messages": MESSAGES, "max_tokens": 20, "temperature": 0, "reasoning_effort": "none", **more}
        return self.openai.chat.completions.create(model="ember-tiny", **more)

    def text(self, **more):
        return self.openai.completions.create(model="ember-tiny", **{"prompt": TEXT, "max_tokens": 12, **more})

    def test_a_chat_answers_and_its_usage_adds_up(self):
        answer = self.chat()
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.model, "ember-tiny")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].message.content, CODE)
        self.assertIsNone(answer.choices[0].message.tool_calls)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.check_usage(answer.usage)
        self.assertEqual(answer.usage.prompt_tokens_details.cached_tokens, 0)
        self.assertEqual(answer.usage.completion_tokens_details.reasoning_tokens, 0)
        again = self.chat()
        self.assertEqual(again.choices[0].message.content, CODE)
        self.assertGreaterEqual(again.usage.prompt_tokens_details.cached_tokens, 384)

    def test_a_thinking_answer_has_its_reasoning_apart(self):
        answer = self.chat(reasoning_effort="high")
        self.assertEqual(answer.choices[0].message.content, CODE)
        self.assertIsInstance(answer.choices[0].message.reasoning_content, str)
        self.assertGreater(answer.usage.completion_tokens_details.reasoning_tokens, 0)

    def test_a_stream_joins_to_the_answer_with_usage_last(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks[:-1]), CODE)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-2].choices[0].finish_reason, "stop")
        self.assertEqual({c.id for c in chunks}, {chunks[0].id})
        self.assertTrue(all(c.usage is None for c in chunks[:-1]))
        self.assertEqual(chunks[-1].choices, [])
        self.check_usage(chunks[-1].usage)

    def test_the_packages_own_stream_reader_understands_the_stream(self):
        with self.openai.chat.completions.stream(model="ember-tiny", messages=MESSAGES, max_tokens=20, temperature=0,
                                                 reasoning_effort="none") as stream:
            pieces = [event.delta for event in stream if event.type == "content.delta"]
            final = stream.get_final_completion()
        self.assertEqual("".join(pieces), CODE)
        self.assertEqual(final.choices[0].message.content, CODE)

    def test_tools_reach_the_prompt_and_none_keeps_them_out(self):
        plain = self.chat().usage.prompt_tokens
        offered = self.chat(tools=[WEATHER])
        self.assertGreater(offered.usage.prompt_tokens, plain + 50)
        self.assertEqual(self.chat(tools=[WEATHER], tool_choice="none").usage.prompt_tokens, plain)
        for call in offered.choices[0].message.tool_calls or []:
            self.assertEqual(call.type, "function")
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat(tools=[WEATHER], tool_choice=choice)
            self.assertEqual(caught.exception.param, "tool_choice")

    def test_a_conversation_with_calls_and_their_results_is_taken(self):
        call = {"id": "call_1", "type": "function",
                "function": {"name": "get_weather", "arguments": "{\"place\": \"Ulm\"}"}}
        before = [{"role": "user", "content": "How is the weather in Ulm?"}]
        after = before + [{"role": "assistant", "content": None, "tool_calls": [call]},
                          {"role": "tool", "tool_call_id": "call_1", "content": "{\"sky\": \"clear\"}"}]
        answers = [self.chat(messages=messages, tools=[WEATHER], max_tokens=4) for messages in (before, after)]
        self.assertGreater(answers[1].usage.prompt_tokens, answers[0].usage.prompt_tokens + 10)
        self.assertIn(answers[1].choices[0].finish_reason, ("stop", "length", "tool_calls"))

    def test_answers_of_a_seed_come_again_and_answer_i_has_the_seed_plus_i(self):
        def texts(**more):  # exact: what is cached must not matter either
            return [c.text for c in self.text(temperature=1.5, max_tokens=24, extra_body={"emberkv": {"replay": "exact"}},
                                              **more).choices]

        three = texts(n=3, seed=7)
        self.assertEqual(three, texts(n=3, seed=7))
        self.assertEqual(len(set(three)), 3)
        self.assertEqual([three[1]], texts(seed=8))
        self.assertNotEqual(three, texts(n=3, seed=107))

    def test_several_prompts_are_numbered_prompt_by_prompt(self):
        answer = self.text(prompt=["The code for", "The brave lion"], n=2, temperature=0)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2, 3])
        self.assertEqual(answer.choices[0].text, answer.choices[1].text)
        self.assertEqual(answer.choices[2].text, self.text(prompt="The brave lion", temperature=0).choices[0].text)

    def test_logprobs_of_a_chat_spell_the_answer(self):
        answer = self.chat(logprobs=True, top_logprobs=4)
        tokens = answer.choices[0].logprobs.content
        self.assertEqual("".join(t.token for t in tokens), CODE)
        for token in tokens:
            self.assertEqual(bytes(token.bytes).decode(), token.token)
            self.assertEqual(len(token.top_logprobs), 4)
            self.assertEqual(token.top_logprobs[0].token, token.token)  # the likeliest, at temperature 0
            values = [other.logprob for other in token.top_logprobs]
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertLessEqual(values[0], 0)

    def test_logprobs_of_a_text_have_the_older_shape(self):
        choice = self.text(logprobs=2, temperature=0).choices[0]
        self.assertEqual("".join(choice.logprobs.tokens), choice.text)
        self.assertEqual(choice.logprobs.text_offset[1], len(choice.logprobs.tokens[0]))
        for token, logprob, top in zip(choice.logprobs.tokens, choice.logprobs.token_logprobs,
                                       choice.logprobs.top_logprobs):
            self.assertEqual(len(top), 2)
            self.assertEqual(top[token], logprob)

    def test_a_stop_text_ends_the_answer_and_is_not_given_out(self):
        whole = self.chat().choices[0]
        answer = self.chat(stop=[CODE[-2:], "never written"]).choices[0]
        self.assertEqual(whole.message.content, CODE)
        self.assertEqual(answer.message.content, CODE[:-2])
        self.assertEqual(answer.finish_reason, "stop")
        self.assertEqual(self.chat(max_tokens=2).choices[0].finish_reason, "length")

    def test_models_are_listed(self):
        self.assertEqual([model.id for model in self.openai.models.list()], ["ember-tiny"])
        self.assertEqual(self.openai.models.retrieve("ember-tiny").owned_by, "emberkv")

    def test_errors_are_the_packages_classes_and_name_the_field(self):
        for field, value in (("n", 17), ("temperature", 3), ("presence_penalty", 1), ("logit_bias", {"5": 1}),
                             ("response_format", {"type": "json_object"})):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.chat(**{field: value})
            self.assertTrue(caught.exception.param.startswith(field))
            self.assertEqual(caught.exception.type, "invalid_request_error")
            self.assertTrue(caught.exception.request_id.startswith("req-"))
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(extra_body={"guided_regex": "a*"})
        self.assertEqual(caught.exception.param, "guided_regex")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.openai.chat.completions.create(model="gpt-4o", messages=MESSAGES)
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.NotFoundError):
            self.openai.models.retrieve("gpt-4o")
        with self.assertRaises(openai.NotFoundError):
            self.openai.embeddings.create(model="ember-tiny", input="x")


class Busy(OpenAiCase):
    def occupy(self, server, **options):
        """A request that runs, and the function that waits for its end."""
        client = self.client(server, **options)
        thread = threading.Thread(target=lambda: client.completions.create(model="ember-tiny", **LONG))
        thread.start()
        # Those that are still being read are on the list too.
        until(lambda: [row["phase"] for row in server.get("/v1/requests", key="key-ops").json["data"]] == ["prefill"],
              "it runs")
        return thread.join

    def test_a_full_server_is_an_error_without_retries_and_an_answer_with_them(self):
        server = self.start("--max-running", "1", "--max-queued", "0", "--ledger", self.path("ledger.jsonl"))
        wait = self.occupy(server)
        with self.assertRaises(openai.InternalServerError) as caught:
            self.client(server).completions.create(model="ember-tiny", prompt="x", max_tokens=1)
        self.assertEqual((caught.exception.status_code, caught.exception.code), (503, "queue_full"))
        self.assertGreaterEqual(int(caught.exception.response.headers["Retry-After"]), 1)
        raw = self.client(server, max_retries=60).completions.with_raw_response.create(model="ember-tiny", prompt="x",
                                                                                       max_tokens=1)
        self.assertEqual(len(raw.parse().choices), 1)
        wait()
        wait_idle(server)
        statuses = [line["status"] for line in self.ledger()]
        self.assertEqual(statuses.count(200), 2)
        self.assertEqual(statuses.count(503), 1 + raw.retries_taken)

    def test_a_tenant_at_its_limit_is_a_rate_limit_error_and_others_are_not(self):
        server = self.start("--keys", self.keys(a={"max_concurrent": 1}))
        wait = self.occupy(server, api_key="key-a")
        small = {"model": "ember-tiny", "prompt": "x", "max_tokens": 1}
        with self.assertRaises(openai.RateLimitError) as caught:
            self.client(server, api_key="key-a").completions.create(**small)
        self.assertEqual(caught.exception.code, "tenant_busy")
        self.assertEqual(caught.exception.response.headers["Retry-After"], "1")
        self.client(server, api_key="key-b").completions.create(**small)
        retrying = self.client(server, api_key="key-a", max_retries=60).completions.with_raw_response
        self.assertEqual(retrying.create(**small).status_code, 200)
        wait()

    def test_wrong_keys_are_authentication_errors(self):
        server = self.start("--keys", self.keys())
        with self.assertRaises(openai.AuthenticationError) as caught:
            self.client(server, api_key="wrong").models.list()
        self.assertEqual(caught.exception.code, "invalid_api_key")
        with self.assertRaises(openai.PermissionDeniedError):
            self.client(server, api_key="key-a").get("/cache/stats", cast_to=object)

    def test_a_client_that_times_out_stops_its_request(self):
        server = self.start("--ledger", self.path("ledger.jsonl"))
        with self.assertRaises(openai.APITimeoutError):
            self.client(server, timeout=2).completions.create(model="ember-tiny", max_tokens=1, prompt=3 * LONG["prompt"])
        metrics = wait_idle(server)
        self.assertEqual(metrics['emberkv_memory_bytes{part="pinned"}'], 0)
        line, = self.ledger()
        self.assertEqual(line["status"], 499)
        self.assertEqual(line["completion_tokens"], 0)


class Caches(OpenAiCase):
    STORE = ("--store-size", "1G", "--store")

    def test_a_second_turn_after_sigkill_hits_what_the_first_one_stored(self):
        server = self.start(*self.STORE, self.path("store"))
        ask = {"model": "ember-tiny", "max_tokens": 20, "temperature": 0, "reasoning_effort": "none"}
        first = self.client(server).chat.completions.create(messages=MESSAGES, **ask)
        self.assertEqual(first.usage.prompt_tokens_details.cached_tokens, 0)
        until(lambda: server.metrics()["emberkv_store_pages"] >= first.usage.prompt_tokens // 128, "pages are durable")
        server.kill()

        server = self.start(*self.STORE, self.path("store"))
        turns = MESSAGES + [first.choices[0].message.model_dump(include={"role", "content"}),
                            {"role": "user", "content": QUESTION}]
        second = self.client(server).chat.completions.create(messages=turns, extra_body={"emberkv": {"trace": True}},
                                                             **ask)
        self.check_usage(second.usage)
        self.assertGreaterEqual(second.usage.prompt_tokens_details.cached_tokens, 384)
        trace = second.model_extra["emberkv"]
        self.assertEqual(trace["tiers"], {"resident_blocks": 0, "store_blocks": trace["hit_tokens"] // 128})
        self.assertGreater(trace["bytes_read"], 0)
        self.assertGreater(trace["cost"]["saved_usd"], 0)
        self.assertEqual(server.stop(), 0)

    def seen(self, server, key, **more):
        """All that a tenant can count of the caches' work for it: nothing of it may depend on another tenant."""
        extra = {"emberkv": {"trace": True}, **more}
        answer = self.client(server, api_key=key).completions.create(
            model="ember-tiny", prompt=TEXT, max_tokens=1, temperature=0, extra_body=extra)
        trace = answer.model_extra["emberkv"]
        return {name: trace[name] for name in ("hit_tokens", "replayed_tokens", "computed_tokens", "tiers",
                                               "bytes_read", "provenance", "miss_reason")}

    def test_case_t01_a_tenant_sees_a_cold_cache_whatever_another_one_asked(self):
        server = self.start("--keys", self.keys(), *self.STORE, self.path("store"))
        cold = self.seen(server, "key-a")
        warm = self.seen(server, "key-a")
        self.assertEqual(cold["hit_tokens"], 0)
        self.assertGreaterEqual(warm["hit_tokens"], 384)
        explained = server.post("/v1/cache/explain", {"prompt": TEXT}, key="key-b").json
        self.assertEqual(explained["hit_tokens"], 0)
        self.assertEqual({block["where"] for block in explained["blocks"]}, {"missing"})
        self.assertEqual(self.seen(server, "key-b"), cold)
        self.assertEqual(self.seen(server, "key-b"), warm)

    def test_users_of_one_tenant_share_nothing(self):
        server = self.start()
        cold = self.seen(server, "none", user="anna")
        self.assertEqual(cold["hit_tokens"], 0)
        self.assertEqual(self.seen(server, "none", user="bert"), cold)
        self.assertEqual(self.seen(server, "none", user="anna", emberkv={"trace": True, "cache_salt": "s"}), cold)
        self.assertGreaterEqual(self.seen(server, "none", user="anna")["hit_tokens"], 384)


class Curl(OpenAiCase):
    def curl(self, *arguments):
        done = subprocess.run(["curl", "--silent", "--show-error", "--no-buffer", "--max-time", str(DEADLINE_S),
                               "--write-out", "\n%{http_code}", *arguments], capture_output=True, text=True, check=True)
        body, status = done.stdout.rsplit("\n", 1)
        return int(status), body

    def test_curl_asks_streams_and_is_told_what_is_wrong(self):
        server = self.start()
        body = {"messages": MESSAGES, "max_tokens": 20, "temperature": 0, "reasoning_effort": "none"}
        status, text = self.curl(server.url + CHAT, "-d", json.dumps(body))
        self.assertEqual((status, json.loads(text)["choices"][0]["message"]["content"]), (200, CODE))
        status, text = self.curl(server.url + CHAT, "-H", "Content-Type: application/json",
                                 "-d", json.dumps({**body, "stream": True}))
        self.assertEqual(status, 200)
        self.assertTrue(text.rstrip().endswith("data: [DONE]"), text[-100:])
        status, text = self.curl(server.url + COMPLETIONS, "-d", "{\"prompt\": ")
        self.assertEqual((status, json.loads(text)["error"]["type"]), (400, "invalid_request_error"))
        self.assertEqual(self.curl("-I", server.url + "/health")[0], 200)


if __name__ == "__main__":
    run()
