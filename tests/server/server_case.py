"""What the tests of this folder share: a server in a folder of its own, and its accounts held against each other.

BINARY and MODEL are the first two arguments of each test; what follows is unittest's.
"""
import glob
import json
import os
import shutil
import sys
import tempfile
import time
import unittest

from serve_process import DEADLINE_S, ServeProcess

BINARY, MODEL = sys.argv[1], sys.argv[2]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
DISABLED = {"type": "disabled"}  # thinking


def fact():
    """A text of 512 tokens, the question for one fact in it, and the answer."""
    with open(os.path.join(MODEL, "eval_prompts.jsonl"), encoding="utf-8") as lines:
        prompt = json.loads(next(lines))
    text = prompt["prompt"].split("\nQuestion:")[0].split(">", 1)[1]
    name = prompt["prompt"].rsplit("code for ", 1)[1].split("?")[0]
    return text, f"What is the code for {name}?", prompt["expected"].strip()


def until(claim, what):
    """Waits for what becomes true, and gives it back."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := claim()):
        if time.monotonic() > deadline:
            raise AssertionError(f"never came true: {what}")
        time.sleep(0.02)
    return value


class ServerCase(unittest.TestCase):
    """Each test with a folder of its own."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="emberkv_server_")
        self.addCleanup(shutil.rmtree, self.dir)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, value):
        with open(self.path(name), "w", encoding="utf-8") as file:
            json.dump(value, file)
        return self.path(name)

    def start(self, *options):
        server = ServeProcess(BINARY, MODEL, self.path("log.txt"), *options)
        self.addCleanup(server.kill)
        return server

    def ledger(self):
        return read_ledger(self.dir)


def read_ledger(folder):
    """Its lines, those of rotated files too."""
    lines = []
    for path in glob.glob(os.path.join(folder, "ledger*.jsonl")):
        with open(path, encoding="utf-8") as file:
            lines += [json.loads(line) for line in file]
    return lines


def wait_idle(server):
    """Until every request that the server took has ended, its line written and counted."""
    def is_idle():
        metrics = server.metrics()
        return not (server.get("/v1/requests").json["data"] or metrics["emberkv_running_requests"]
                    or metrics["emberkv_queued_requests"])

    # Twice: a request whose client has left may be between the two lists for a moment.
    until(lambda: is_idle() and is_idle(), "no request runs or waits")
    return server.metrics()


def account_differences(lines, metrics):
    """What a ledger's lines and the counters of its server say differently; nothing, or one of them is wrong."""
    expected = {}

    def add(name, value, **labels):
        text = ",".join(f'{label}="{labels[label]}"' for label in sorted(labels))
        key = f"{name}{{{text}}}" if text else name
        expected[key] = expected.get(key, 0) + value

    for line in lines:
        tenant = line["tenant"]
        add("emberkv_requests_total", 1, endpoint=line["endpoint"], status=line["status"], tenant=tenant)
        for kind in ("prompt", "hit", "replayed", "miss", "completion"):
            add("emberkv_tokens_total", line[f"{kind}_tokens"], kind=kind, tenant=tenant)
        for tier in ("resident", "store"):
            add("emberkv_hit_blocks_total", line[f"{tier}_blocks"], tenant=tenant, tier=tier)
        add("emberkv_request_store_read_bytes_total", line["bytes_read"], tenant=tenant)
        if line["miss_reason"]:
            add("emberkv_misses_total", 1, reason=line["miss_reason"])
        add("emberkv_total_seconds_count", 1)
        add("emberkv_queue_seconds_count", 1)
        add("emberkv_cost_usd_total", line["cost_pico_usd"], tenant=tenant)
        add("emberkv_cost_without_cache_usd_total", line["cost_without_cache_pico_usd"], tenant=tenant)
    add("emberkv_lines_written_total", len(lines), file="ledger")
    add("emberkv_lines_lost_total", 0, file="ledger")
    names = {key.split("{")[0] for key in expected}
    counted = {key: round(value * 1e12) if "usd" in key else value  # pico-dollars, which are whole
               for key, value in metrics.items() if key.split("{")[0] in names and "trace" not in key}
    keys = set(expected) | {key for key, value in counted.items() if value != 0}
    return {key: (expected.get(key, 0), counted.get(key, 0)) for key in sorted(keys)
            if expected.get(key, 0) != counted.get(key, 0)}


def run():
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
