#!/usr/bin/env python3
"""Runs the commands of a README: whoever copies one gets what the page promises.

  run_readme_commands.py README BIN_FOLDER    in the current folder, with BIN_FOLDER first in PATH
  run_readme_commands.py --self-test

Every fenced ```sh block is run, line by line, in one bash that stops at the first failure. Left out are the lines
whose work is this test run itself: make, git clone and the PATH to the release build.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.S | re.M)
LEFT_OUT = re.compile(r"^\s*(make |git clone |cd |export PATH=).*$", re.M)


def commands_of(text):
    """One script of all commands; None when the page has none."""
    script = "\n".join(LEFT_OUT.sub("", block) for block in BLOCK.findall(text))
    return script if script.strip() else None


def run_page(page, bin_folder):
    with open(page, encoding="utf-8") as f:
        script = commands_of(f.read())
    if script is None:
        print(f"{page}: no sh blocks to run")
        return 1
    environment = dict(os.environ, PATH=os.path.abspath(bin_folder) + os.pathsep + os.environ["PATH"])
    bash = subprocess.Popen(["bash", "-euxo", "pipefail", "-c", script], env=environment, stdin=subprocess.DEVNULL,
                            start_new_session=True)
    try:
        failed = bash.wait() != 0
    finally:
        end_session(bash.pid)
    print(f"{page}: {'a command failed (the last one shown)' if failed else 'all commands work'}")
    return 1 if failed else 0


def end_session(leader):
    """Ends what the page left running: a server, where a command behind its start failed."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def self_test():
    cases = [
        ("works", "```sh\nmake test\necho hello\n```\ntext\n```sh\ntrue | cat\n```\n", 0),
        ("fails in the first block", "```sh\nfalse\n```\n```sh\ntrue\n```\n", 1),
        ("fails inside a pipe", "```sh\nfalse | cat\n```\n", 1),
        ("unknown command", "```sh\nno-such-command --x\n```\n", 1),
        ("finds the given folder's program", 
         '```sh\nexport PATH="nowhere"\nhere | grep -q right\n```\n', 0),
        ("fails with a program still running", "```sh\nsleep 1000 &\nfalse\n```\n", 1),
        ("no commands", "```text\nfalse\n```\n", 1),
        ("make lines alone are no commands", "```sh\nmake demo\n```\n", 1),
    ]
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "here")
        with open(program, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho right\n")
        os.chmod(program, 0o755)
        for name, text, expected in cases:
            page = os.path.join(folder, "PAGE.md")
            with open(page, "w", encoding="utf-8") as f:
                f.write(text)
            if run_page(page, folder) != expected:
                wrong.append(name)
    print(f"self-test: {len(cases)} pages, wrong: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else run_page(*sys.argv[1:]))
