#!/usr/bin/env python3
"""What a server gives 1, 8 and 64 clients, and what it costs beside the engine alone.

  server_bench.py BINARY MODEL_DIR [--seconds 5] [--rounds 25]

The clients share the machine's cores with the server. Absolute rates belong to the machine; the overhead is a
ratio of times measured in turns.
"""
import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

from stream_client import post, request_bytes

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "server"))
from server_case import COMPLETIONS, ServeProcess  # noqa: E402

CLIENTS = (1, 8, 64)
TEXT = "The brave lion was beside the bank."
DECODED = 512
WAYS = ("emberkv run", "server, whole answer", "server, stream", "server, stream, curl awake for each event")


def new_prompt(chance, tokens):
    return [chance.randrange(300, 2000) for _ in range(tokens)]


async def stream_answer(url, body):
    """Seconds from sending to the first event; reads to the end."""
    sent_at = time.monotonic()
    reply = await post(url, COMPLETIONS, {**body, "stream": True})
    try:
        first_at = None
        async for _ in reply.pieces():
            first_at = first_at or time.monotonic()
        return first_at - sent_at
    finally:
        reply.close()


async def whole_answer(url, body):
    """Output tokens."""
    reply = await post(url, COMPLETIONS, body)
    try:
        return json.loads(await reply.body())["usage"]["completion_tokens"]
    finally:
        reply.close()


async def ask_for(seconds, num_clients, ask):
    """What `ask` gives for each request of clients that ask one after the other, and how long all of it took."""
    results = []
    began_at = time.monotonic()

    async def client():
        while time.monotonic() < began_at + seconds:
            results.append(await ask())

    await asyncio.gather(*[client() for _ in range(num_clients)])
    return results, time.monotonic() - began_at


def measure_clients(url, seconds):
    """Rows of requests/s and percentiles of the time to the first token: new prompts of 256 tokens, streams of 32."""
    chance = random.Random(1)
    rows = []
    for num_clients in CLIENTS:
        def ask():
            return stream_answer(url, {"prompt": new_prompt(chance, 256), "max_tokens": 32, "temperature": 0})

        results, took = asyncio.run(ask_for(seconds, num_clients, ask))
        ttft = sorted(seconds * 1e3 for seconds in results)
        rows.append((num_clients, len(results) / took, *[ttft[len(ttft) * p // 100] for p in (50, 90, 99)]))
    return rows


def measure_batching(server, seconds):
    """Rows of output tokens/s, and of tokens that a step of the model decodes: short prompts, whole answers of 128
    tokens, so that clients cost next to nothing."""
    chance = random.Random(2)
    rows = []
    for num_clients in CLIENTS:
        def ask():
            return whole_answer(server.url, {"prompt": new_prompt(chance, 16), "max_tokens": 128, "temperature": 1})

        before = server.get("/v1/cache/stats").json["scheduler"]
        results, took = asyncio.run(ask_for(seconds, num_clients, ask))
        after = server.get("/v1/cache/stats").json["scheduler"]
        decoded, steps = (after[name] - before[name] for name in ("decode_rows", "steps"))
        rows.append((num_clients, sum(results) / took, decoded / steps))
    return rows


def engine_decode_ms(options):
    done = subprocess.run([options.binary, "run", "--model", options.model, "--json", "--prompt", TEXT,
                           "--kv-memory", "64M", "--max-tokens", str(DECODED)],
                          capture_output=True, text=True, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["output_tokens"] == DECODED, f"the answer ends after {summary['output_tokens']} tokens"
    return (DECODED - 1) / summary["decode_tokens_per_s"] * 1e3  # the first token is prefill's


def read_by_curl(url, body):
    return subprocess.run(["curl", "--silent", "--fail", "--no-buffer", url + COMPLETIONS, "-d", json.dumps(body)],
                          capture_output=True, text=True, check=True).stdout


def read_asleep(url, body):
    """Wakes up once, at the end: the machine's cores are the server's, as with a client elsewhere."""
    address = urllib.parse.urlparse(url)
    with socket.create_connection((address.hostname, address.port)) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1 << 20)
        client.sendall(request_bytes(COMPLETIONS, body))
        return b"".join(iter(lambda: client.recv(1 << 20), b"")).decode()


def served_decode_ms(url, streams, read):
    body = {"prompt": TEXT, "max_tokens": DECODED, "temperature": 0, "stream": streams, "emberkv": {"trace": True}}
    text = read(url, body)
    return json.loads(text.split("data: ")[-2] if streams else text)["emberkv"]["decode_seconds"] * 1e3


def measure_overhead(server, options):
    """Median and least time to decode the same tokens by `emberkv run` and by the server, in turns."""
    ways = (lambda: engine_decode_ms(options), lambda: served_decode_ms(server.url, False, read_by_curl),
            lambda: served_decode_ms(server.url, True, read_asleep),
            lambda: served_decode_ms(server.url, True, read_by_curl))
    times = [[] for _ in ways]
    for _ in range(options.rounds):
        for way, list_of_times in zip(ways, times):
            list_of_times.append(way())
    return [(statistics.median(list_of_times), min(list_of_times)) for list_of_times in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="emberkv_server_bench_") as folder:
        server = ServeProcess(options.binary, options.model, os.path.join(folder, "log.txt"), "--max-running", "64")
        try:
            asyncio.run(whole_answer(server.url, {"prompt": TEXT, "max_tokens": 1}))  # touches what is lazy
            print("| clients | requests/s | TTFT median | 90 % | 99 % |\n|---|---|---|---|---|")
            for row in measure_clients(server.url, options.seconds):
                print("| {} | {:.1f} | {:.0f} ms | {:.0f} ms | {:.0f} ms |".format(*row))
            rates = measure_batching(server, options.seconds)
            print("\n| clients | output tokens/s | gain | tokens a step |\n|---|---|---|---|")
            for num_clients, rate, rows in rates:
                print(f"| {num_clients} | {rate:,.0f} | {rate / rates[0][1]:.2f} | {rows:.1f} |")
            times = measure_overhead(server, options)
            print(f"\n| decoding {DECODED} tokens | median | least | of the engine (median) |\n|---|---|---|---|")
            for name, (median, least) in zip(WAYS, times):
                print(f"| {name} | {median:.1f} ms | {least:.1f} ms | {median / times[0][0]:.1%} |")
        finally:
            server.kill()


if __name__ == "__main__":
    main()
