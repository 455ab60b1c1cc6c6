#!/usr/bin/env python3
"""Shows that the golden tests can fail: plants known bugs one at a time and expects them to be found.

  mutation_check.py                 plants every bug of tools/mutants.py, prints a table, exits 1 if one survives
  mutation_check.py --only NAME...  some of them
  mutation_check.py --check         only sees that every bug still fits the source (quick; a test of its own)
  mutation_check.py --self-test     the same machinery on a toy project

Works on a copy under build/mutation, so a stop at any moment leaves the checkout as it is. A bug counts as found when
a test under tests/golden fails or does not end; one that does not compile, or whose place in the source is not found
exactly once, is a fault of the list.
"""
import argparse
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
COPIED = ("CMakeLists.txt", "cmake", "src", "tests", "tools")
LINKED = ("models", "tests/data")  # large, and no bug is planted there
CONFIGURE = ("-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O2", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
TEST_TIMEOUT_S = 300


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    find: str  # must occur exactly once in the file
    replace: str


class MutationError(Exception):
    """The check itself cannot be made: a message for people."""


def misfit(root, mutant):
    """Why the mutant cannot be planted, or None."""
    path = os.path.join(root, mutant.file)
    if not os.path.isfile(path):
        return f"no file {mutant.file}"
    with open(path, encoding="utf-8") as f:
        count = f.read().count(mutant.find)
    if count != 1:
        return f"its place occurs {count} times in {mutant.file}"
    return "replaces nothing" if mutant.find == mutant.replace else None


def folders_left_out(root):
    """Folders that the project is built of and the copy would lack."""
    with open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8") as f:
        built = re.findall(r"^ *add_subdirectory\(([\w/]+)", f.read(), re.MULTILINE)
    return sorted({folder for folder in built if folder.split("/")[0] not in COPIED})


def copy_tree(root, copy):
    """Brings the copy up to date, leaving files alone that are equal, so that little is rebuilt."""
    wanted = set()
    for top in COPIED:
        source = os.path.join(root, top)
        if os.path.isfile(source):
            wanted.add(top)
        for where, folders, files in os.walk(source):
            relative = os.path.relpath(where, root)
            folders[:] = [f for f in folders if f != "__pycache__" and f"{relative}/{f}" not in LINKED]
            wanted |= {os.path.normpath(os.path.join(relative, f)) for f in files}
    for where, folders, files in os.walk(copy):
        for f in files:
            path = os.path.join(where, f)
            if os.path.relpath(path, copy) not in wanted:
                os.remove(path)
    for path in wanted:
        source, target = os.path.join(root, path), os.path.join(copy, path)
        if not os.path.isfile(target) or not filecmp.cmp(source, target, shallow=False):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(source, target)
    for path in LINKED:
        source, target = os.path.join(root, path), os.path.join(copy, path)
        if os.path.isdir(source) and not os.path.islink(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(source, target)


class Bench:
    """A copy of the project with its build folder."""

    def __init__(self, root, folder, configure):
        self.source, self.build = os.path.join(folder, "src"), os.path.join(folder, "build")
        copy_tree(root, self.source)
        self._must(["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", *configure], "configure")
        # In tests/golden a test's name is its target's (emberkv_test sees to that).
        listing = subprocess.run(["ctest", "--test-dir", os.path.join(self.build, "tests", "golden"),
                                  "--show-only=json-v1"], capture_output=True, text=True, check=True).stdout
        self.tests = [test["name"] for test in json.loads(listing)["tests"]]
        if not self.tests:
            raise MutationError("there is no test under tests/golden")

    def _must(self, command, what):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise MutationError(f"{what} failed:\n{(done.stdout + done.stderr)[-3000:]}")

    def compile(self):
        self._must(["cmake", "--build", self.build, "--parallel", str(os.cpu_count()), "--target", *self.tests],
                   "build")

    def failing_test(self):
        """The first golden test that fails, or None when all pass."""
        for name in self.tests:
            command = ["ctest", "--test-dir", self.build, "-R", f"^{name}$", "--no-tests=error",
                       "--timeout", str(TEST_TIMEOUT_S)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                return name
        return None

    def plant(self, mutant):
        """-> what became of it: found by a test, SURVIVED or INVALID. The copy is restored."""
        if reason := misfit(self.source, mutant):
            return f"INVALID: {reason}"
        path = os.path.join(self.source, mutant.file)
        with open(path, encoding="utf-8") as f:
            original = f.read()
        try:
            with open(path, "w", encoding="utf-8") as f:
                f.write(original.replace(mutant.find, mutant.replace))
            self.compile()
            test = self.failing_test()
            return f"found by {test}" if test else "SURVIVED"
        except MutationError:
            return "INVALID: does not compile"
        finally:
            with open(path, "w", encoding="utf-8") as f:
                f.write(original)


def run(root, folder, mutants, configure=CONFIGURE):
    """-> [(mutant, outcome)]; prints a line for each as it is known."""
    bench = Bench(root, folder, configure)
    bench.compile()
    if test := bench.failing_test():
        raise MutationError(f"{test} fails without any planted bug")
    print(f"{len(bench.tests)} golden tests pass; planting {len(mutants)} bugs", flush=True)
    results = []
    for mutant in mutants:
        begin = time.monotonic()
        outcome = bench.plant(mutant)
        results.append((mutant, outcome))
        print(f"  {mutant.name:<56} {outcome}  ({time.monotonic() - begin:.0f} s)", flush=True)
    return results


def report(results):
    found = sum(outcome.startswith("found") for _, outcome in results)
    print(f"mutation check: {found} of {len(results)} planted bugs found")
    return 0 if found == len(results) else 1


TOY = {
    "CMakeLists.txt": "cmake_minimum_required(VERSION 3.25)\nproject(toy LANGUAGES CXX)\nenable_testing()\n"
                      "add_subdirectory(tests/golden)\n",
    "src/add.h": "inline int Add(int a, int b) { return a + b; }\ninline int Unused(int a) { return a + 1; }\n",
    "tests/golden/CMakeLists.txt": "add_executable(add_test add_test.cc)\nadd_test(NAME add_test COMMAND add_test)\n",
    "tests/golden/add_test.cc": '#include "../../src/add.h"\nint main() { return Add(2, 3) == 5 ? 0 : 1; }\n',
}
TOY_MUTANTS = [
    (Mutant("wrong sum", "src/add.h", "a + b", "a - b"), "found by add_test"),
    (Mutant("never ends", "src/add.h", "return a + b;", "for (volatile int x = 0;;) x = a + b;"), "found by add_test"),
    (Mutant("nobody looks", "src/add.h", "a + 1", "a + 2"), "SURVIVED"),
    (Mutant("no such place", "src/add.h", "a * b", "a"), "INVALID: its place occurs 0 times in src/add.h"),
    (Mutant("two places", "src/add.h", "return", "throw"), "INVALID: its place occurs 2 times in src/add.h"),
    (Mutant("not C++", "src/add.h", "a + b", "a +"), "INVALID: does not compile"),
    (Mutant("wrong sum again", "src/add.h", "a + b", "b"), "found by add_test"),
]


def self_test():
    global TEST_TIMEOUT_S
    TEST_TIMEOUT_S = 5
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, "toy")
        for path, text in TOY.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write(text)
        results = run(root, os.path.join(folder, "mutation"), [m for m, _ in TOY_MUTANTS], configure=())
        with open(os.path.join(folder, "mutation", "src", "src", "add.h"), encoding="utf-8") as f:
            restored = f.read() == TOY["src/add.h"]
    wrong = [(m.name, outcome) for (m, outcome), (_, expected) in zip(results, TOY_MUTANTS) if outcome != expected]
    if not restored:
        wrong.append(("restore", "the copy was not restored"))
    for name, outcome in wrong:
        print(f"self-test: {name}: {outcome}")
    if report(results) != 1:
        wrong.append(("report", "survivors must fail the run"))
    print(f"mutation_check self-test: {len(wrong)} failures")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    if options.self_test:
        return self_test()
    from mutants import MUTANTS
    mutants = [Mutant(*m) for m in MUTANTS]
    if len({m.name for m in mutants}) != len(mutants):
        print("two planted bugs share a name")
        return 1
    if options.check:
        left_out = folders_left_out(ROOT)
        if left_out:
            print(f"mutation check: COPIED lacks {', '.join(left_out)}, which CMakeLists.txt names")
            return 1
        misfits = [(m.name, reason) for m in mutants if (reason := misfit(ROOT, m))]
        for name, reason in misfits:
            print(f"{name}: {reason}")
        print(f"mutation check: {len(misfits)} of {len(mutants)} planted bugs do not fit the source")
        return 1 if misfits or not mutants else 0
    if options.only:
        unknown = set(options.only) - {m.name for m in mutants}
        if unknown:
            parser.error(f"no planted bug named {', '.join(sorted(unknown))}")
        mutants = [m for m in mutants if m.name in options.only]
    try:
        return report(run(ROOT, os.path.join(ROOT, "build", "mutation"), mutants))
    except MutationError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())
