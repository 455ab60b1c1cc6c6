#!/usr/bin/env python3
"""A server whose disk hangs: it answers, and it ends.

  hung_disk_test.py BINARY MODEL_DIR HUNG_DISK_MODULE [unittest's arguments]
"""
import os
import random
import sys
import unittest

from server_case import COMPLETIONS, ServerCase, until

HUNG_DISK = sys.argv.pop(3)


class HungDisk(ServerCase):
    def ask(self, server, seed):
        prompt = [random.Random(seed).randrange(300, 2000) for _ in range(700)]
        reply = server.post(COMPLETIONS, {"prompt": prompt, "max_tokens": 2})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json["usage"]["prompt_cache_hit_tokens"]

    def test_it_answers_and_ends_and_tells_what_was_not_persisted(self):
        os.environ["LD_PRELOAD"] = HUNG_DISK
        self.addCleanup(os.environ.pop, "LD_PRELOAD", None)
        options = ("--store", self.path("store"), "--store-size", "256M", "--grace", "1s")
        server = self.start(*options)
        self.ask(server, 1)
        until(lambda: server.metrics()["emberkv_store_pages"] == 5, "the first prompt's blocks are stored")
        self.write("disk_hangs", True)
        for seed in (2, 3):
            self.assertEqual(self.ask(server, seed), 0)
        self.assertEqual(server.stop(), 0)
        self.assertIn("not persisted: 10 pages", server.log())

        # What was acknowledged is there; the rest was dropped and is computed again.
        os.remove(self.path("disk_hangs"))
        server = self.start(*options)
        self.assertEqual([self.ask(server, seed) for seed in (1, 2, 3)], [640, 0, 0])
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
