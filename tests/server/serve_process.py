"""`emberkv serve` as a process of its own, and a client for it. Used by the tests of this folder."""
import json
import os
import select
import signal
import subprocess
import urllib.error
import urllib.request

DEADLINE_S = 120  # for what takes seconds on a machine that has nothing else to do


class Reply:
    """Status, headers and body of an answer, errors too."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        """The objects of a stream, and whether it was ended as it should be."""
        lines = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        assert lines and lines[-1] == "[DONE]", self.body[-200:]
        return [json.loads(line) for line in lines[:-1]]


class ServeProcess:
    """Listens when the constructor returns. `errors` is the file that takes its log."""

    def __init__(self, binary, model, errors, *options):
        self.log_path = errors
        with open(errors, "ab") as log:
            self.process = subprocess.Popen(
                [binary, "serve", "--model", model, "--port", "0", "--kv-memory", "64M",
                 "--window-memory", "16M", *options], stdout=subprocess.PIPE, stderr=log)
        line = self._first_line()
        if " listens on " not in line:
            self.kill()
            raise AssertionError(f"no server: {line!r}, {self.log()}")
        self.url = line.split(" listens on ")[1].strip()
        self.key = None

    def _first_line(self):
        ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        return self.process.stdout.readline().decode() if ready else ""

    def log(self):
        with open(self.log_path, encoding="utf-8") as log:
            return log.read()

    def call(self, method, path, body=None, key=None, headers=None):
        headers = dict(headers or {})
        key = key or self.key
        if key:
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as reply:
                return Reply(reply.status, reply.headers, reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.headers, error.read())

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body, **more):
        return self.call("POST", path, body, **more)

    def metrics(self):
        """Name with labels -> value."""
        lines = self.get("/metrics").body.decode().splitlines()
        samples = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
        return {name: float(value) for name, value in samples}

    def signal(self, number):
        os.kill(self.process.pid, number)

    def wait(self):
        return self.process.wait(timeout=DEADLINE_S)

    def stop(self):
        """Ends it as an operator would; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
