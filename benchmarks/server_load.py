#!/usr/bin/env python3
"""Many clients at once, most of them well-behaved, and what must be true of a server that had them.

  server_load.py BINARY MODEL_DIR [--clients 1000] [--seconds 180] [--seed 1]

Clients read streams and whole answers, break off, leave without reading, send half a request, read slowly or
ask for what is wrong. In the middle the server is told to end (SIGTERM) and started again on its store; clients
try again. Afterwards no request runs, no page is pinned, sockets and memory are back, the ledger has one line for
each request and its sums are the metrics'. Prints a summary; exits 1 when anything of it is not so.
"""
import argparse
import asyncio
import collections
import json
import os
import random
import resource
import shutil
import sys
import tempfile
import time

from stream_client import connect, events, post, request_bytes

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "server"))
from server_case import CHAT, COMPLETIONS, ServeProcess, account_differences, read_ledger, wait_idle  # noqa: E402

STALL_S = 120  # a client that has not ended so long after it should have hangs
MIB = 1 << 20
KV_BYTES, WINDOW_BYTES = 64 * MIB, 16 * MIB  # what ServeProcess gives a server
BEHAVIOURS = {"stream": 45, "whole": 22, "breaks off": 10, "leaves": 7, "sends half": 5, "reads slowly": 3,
              "is wrong": 8}
NAMES = ("amber cedar", "misty raven", "plain arrow")


class Load:
    """The clients of one or two servers, one after the other, and what they saw."""

    def __init__(self, seed, num_clients):
        self.chance = random.Random(seed)
        self.num_clients = num_clients
        self.documents = [[self.chance.randrange(300, 2000) for _ in range(520)] for _ in range(12)]
        self.url = None
        self.ends_at = 0
        # By the url of the server. By request id: the status, and the usage of an answer that was read to its end.
        self.answers = collections.defaultdict(dict)
        self.unread = collections.Counter()  # complete requests whose client left before the answer's head
        self.seen = collections.Counter()
        self.problems = []
        self.ttft_seconds = []

    def body(self, chance, **more):
        if chance.random() < 0.3:
            messages = [{"role": "user", "content": "The code for " + chance.choice(NAMES) * chance.randrange(1, 60)}]
            return CHAT, {"messages": messages, "max_tokens": chance.randrange(1, 12), **more}
        prompt = chance.choice(self.documents) + [chance.randrange(300, 2000) for _ in range(chance.randrange(1, 40))]
        return COMPLETIONS, {"prompt": prompt, "max_tokens": chance.randrange(1, 12), **more}

    async def client(self, number):
        chance = random.Random(f"{self.chance.random()} {number}")
        while time.monotonic() < self.ends_at:
            behaviour = chance.choices(list(BEHAVIOURS), BEHAVIOURS.values())[0]
            try:
                pause = await self.act(chance, behaviour)
            except ConnectionError:
                self.seen["connections that broke or were refused"] += 1
                pause = 0.3
            await asyncio.sleep(pause)

    async def act(self, chance, behaviour):
        """One request; how long to wait before the next one."""
        url = self.url
        if behaviour in ("leaves", "sends half"):
            _, writer = await connect(url)
            text = request_bytes(*self.body(chance, stream=chance.random() < 0.5))
            is_whole = behaviour == "leaves"
            self.unread[url] += is_whole
            writer.write(text if is_whole else text[:chance.randrange(len(text))])
            await writer.drain()
            await asyncio.sleep(chance.random() * 0.2)
            writer.close()
        else:
            path, body = self.body(chance)
            if behaviour == "is wrong":
                body[chance.choice(["n", "stop", "seed", "model", "undocumented"])] = {"wrong": 1}
            elif behaviour != "whole":
                body.update(stream=True, stream_options={"include_usage": True})
                body["max_tokens"] = 200 if behaviour == "reads slowly" else body["max_tokens"]
            sent_at = time.monotonic()
            self.unread[url] += 1
            reply = await post(url, path, body)
            self.unread[url] -= 1
            try:
                return await self.read(chance, behaviour, reply, sent_at, self.answers[url])
            finally:
                reply.close()
        self.seen[behaviour] += 1
        return 0

    async def read(self, chance, behaviour, reply, sent_at, answers):
        answers[reply.request_id] = (reply.status, None)
        if reply.status == 503:
            self.seen["503, then tried again"] += 1
            if json.loads(await reply.body())["error"]["code"] == "overloaded":
                del answers[reply.request_id]  # it was not read, so it has no line
            return min(int(reply.headers["retry-after"]), 2) * (0.5 + chance.random())
        if reply.status != (400 if behaviour == "is wrong" else 200):
            self.problems.append(f"{behaviour}: {reply.status} {(await reply.body())[:200]}")
            return 0
        if behaviour == "whole":
            usage = json.loads(await reply.body())["usage"]
        elif behaviour == "is wrong":
            usage = None
            if not json.loads(await reply.body())["error"]["param"]:
                self.problems.append("an error does not name the field")
        else:
            usage = await self.read_stream(chance, behaviour, reply, sent_at)
        answers[reply.request_id] = (reply.status, usage)
        self.seen[behaviour] += 1
        return 0

    async def read_stream(self, chance, behaviour, reply, sent_at):
        received, num_pieces = b"", 0
        last = chance.randrange(1, 5)
        async for piece in reply.pieces():
            if behaviour == "stream" and not num_pieces:
                self.ttft_seconds.append(time.monotonic() - sent_at)
            received += piece
            num_pieces += 1
            if behaviour == "breaks off" and num_pieces == last:
                return None
            if behaviour == "reads slowly":
                await asyncio.sleep(0.05)
        found = events(received)
        return found[-1]["usage"]


def open_sockets(server):
    folder = f"/proc/{server.process.pid}/fd"
    count = 0
    for name in os.listdir(folder):
        try:
            count += os.readlink(os.path.join(folder, name)).startswith("socket:")
        except FileNotFoundError:  # closed meanwhile
            pass
    return count


def memory_bytes(server):
    with open(f"/proc/{server.process.pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def ledger_problems(answers, unread, lines):
    """Whether a ledger has one line for each request, and in it what the client was told."""
    by_id = {line["request_id"]: line for line in lines}
    problems = [] if len(by_id) == len(lines) else ["a request has two lines"]
    for request_id, (status, usage) in answers.items():
        line = by_id.pop(request_id, None)
        if line is None:
            problems.append(f"{request_id} has no line")
        elif usage and (line["status"], line["prompt_tokens"], line["hit_tokens"], line["completion_tokens"]) != (
                status, usage["prompt_tokens"], usage["prompt_cache_hit_tokens"], usage["completion_tokens"]):
            problems.append(f"the client was told {usage}, the ledger {line}")
        elif line["status"] != status and not (usage is None and line["status"] == 499):
            problems.append(f"{request_id} has the status {status}, in the ledger {line['status']}")
    if len(by_id) > unread:
        problems.append(f"{len(by_id)} lines are of requests that no client knows, and only {unread} left unread")
    return problems


class Run:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.load = Load(options.seed, options.clients)
        self.problems = self.load.problems
        self.num_started = 0
        self.lines = []

    def start(self):
        """A server with a ledger of its own, on the store of the one before."""
        self.num_started += 1
        own = os.path.join(self.folder, str(self.num_started))
        os.mkdir(own)
        self.server = ServeProcess(self.options.binary, self.options.model, os.path.join(own, "log.txt"),
                                   "--grace", "10s", "--ledger", os.path.join(own, "ledger.jsonl"),
                                   "--store", os.path.join(self.folder, "store"), "--store-size", "1G")
        self.sockets, self.memory = open_sockets(self.server), memory_bytes(self.server)
        self.load.url = self.server.url

    def expect(self, claim, what):
        if not claim:
            self.problems.append(what)

    def check_ledger(self, number, url):
        lines = read_ledger(os.path.join(self.folder, str(number)))
        self.problems += ledger_problems(self.load.answers[url], self.load.unread[url], lines)
        self.lines += lines
        return lines

    async def run_clients(self, middle):
        """All of them until the time is over; `middle` runs in a thread at half of it."""
        load = self.load
        load.ends_at = time.monotonic() + self.options.seconds
        clients = [asyncio.create_task(load.client(number)) for number in range(load.num_clients)]
        await asyncio.sleep(self.options.seconds / 2)
        await asyncio.to_thread(middle)
        _, hanging = await asyncio.wait(clients, timeout=max(load.ends_at - time.monotonic(), 0) + STALL_S)
        self.expect(not hanging, f"{len(hanging)} clients hang")
        for client in clients:
            if client.done() and client.exception():
                raise client.exception()

    def restart(self):
        self.expect(self.server.stop() == 0, "SIGTERM under load does not end with 0")
        self.first_url = self.server.url
        self.server.kill()  # closes its pipe
        self.start()

    def check_end(self):
        server = self.server
        metrics = wait_idle(server)
        self.expect(metrics['emberkv_memory_bytes{part="pinned"}'] == 0, "pages are pinned")
        self.expect(metrics["emberkv_promised_pages"] == 0, "pages are promised")
        self.expect(metrics["emberkv_page_unequal_seals_total"] == 0, "pages of one hash differ")
        deadline = time.monotonic() + STALL_S  # connections linger for seconds
        while open_sockets(server) > self.sockets and time.monotonic() < deadline:
            time.sleep(0.1)
        left = open_sockets(server)
        self.expect(left <= self.sockets, f"{left} sockets are open, {self.sockets} were")
        self.growth = memory_bytes(server) - self.memory
        self.expect(self.growth < KV_BYTES + WINDOW_BYTES + 96 * MIB, f"memory grew by {self.growth / MIB:.0f} MiB")
        self.check_ledger(1, self.first_url)
        lines = self.check_ledger(2, server.url)
        differences = account_differences(lines, server.metrics())
        self.expect(not differences, f"ledger and metrics differ: {differences}")
        self.store_blocks = sum(line["store_blocks"] for line in lines)
        self.expect(self.store_blocks > 0, "nothing came from the store after the restart")
        self.expect(server.stop() == 0, "SIGTERM does not end with 0")

    def run(self):
        self.start()
        try:
            asyncio.run(self.run_clients(self.restart))
            self.check_end()
        finally:
            self.server.kill()

    def print_summary(self):
        load = self.load
        print(f"{self.options.clients} clients, {self.options.seconds:.0f} s: {len(self.lines):,} lines in the ledger")
        for what, count in sorted(load.seen.items(), key=lambda item: -item[1]):
            print(f"  {count:7,} {what}")
        statuses = collections.Counter(line["status"] for line in self.lines)
        print("  statuses: " + ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items())))
        prompt, hit = (sum(line[name] for line in self.lines) for name in ("prompt_tokens", "hit_tokens"))
        print(f"  {prompt:,} prompt tokens, {hit / max(prompt, 1):.1%} hit; {self.store_blocks} blocks came from the "
              "store after the restart")
        ttft = sorted(load.ttft_seconds)
        print(f"  time to first token: median {ttft[len(ttft) // 2]:.2f} s, 99 % {ttft[len(ttft) * 99 // 100]:.2f} s")
        print(f"  memory grew by {self.growth / MIB:.0f} MiB, with a page pool of {KV_BYTES // MIB} MiB and windows of "
              f"{WINDOW_BYTES // MIB} MiB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("binary")
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * options.clients + 256  # the server has as many
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(wanted, hard)), hard))

    folder = tempfile.mkdtemp(prefix="emberkv_load_")
    try:
        run = Run(options, folder)
        run.run()
        run.print_summary()
        for problem in run.problems[:20]:
            print(f"WRONG: {problem}")
        print("all is as it must be" if not run.problems else f"{len(run.problems)} things are wrong")
        return 1 if run.problems else 0
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
