#!/usr/bin/env python3
"""Holds the rooms of src/ to their direction: an include may only point down.

  check_includes.py [ROOT]     checks a checkout, prints what is wrong, exits 1 if anything is
  check_includes.py --self-test

EDGES below is the table of docs/architecture.md section 2 and changes together with it. Besides the direction of
includes and of link dependencies it refuses circles between files and ways around the rule: relative paths, angle
brackets for our own headers, macros as include names.
"""
import os
import re
import sys

from cxx_text import files_under, planted_failures, read, run_check, splice, without_comments

# Room -> what it may include: whole rooms, or single headers of a room that is otherwise closed to it.
EDGES = {
    "base": [],
    "formats": ["base"],
    "layout": ["base", "formats"],
    "weights": ["base", "formats", "layout"],
    "linear": ["base", "formats"],
    "attention": ["base", "formats", "layout"],
    "model": ["base", "formats", "layout", "weights", "linear", "attention"],
    "tokenizer": ["base"],
    "prompt": ["base"],
    "window": ["base", "layout"],
    "store": ["base", "layout"],
    "cache": ["base", "layout", "store/kv_store.h"],
    "engine": ["base", "formats", "layout", "weights", "linear", "attention", "model", "tokenizer", "window", "store",
               "cache"],
    "bench": ["base", "formats", "layout", "weights", "linear", "attention", "model", "tokenizer", "prompt", "window",
              "store", "cache", "engine"],
    "ledger": ["base", "layout", "store/retention_book.h"],
    "server": ["base", "engine/engine.h", "prompt", "ledger"],
    "cli": ["base", "layout", "weights/checkpoint.h", "weights/fingerprint.h", "store/local_store.h", "engine/engine.h",
            "prompt", "ledger", "bench", "server"],
}

DIRECTIVE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(include_next|include|import)\b[ \t]*(.*)$", re.M)
ROOM_CALL = re.compile(r"\bemberkv_room\(\s*(\w+)([^)]*)\)")


def includes_of(text):
    """(line number, directive, name as written) of every include."""
    text = without_comments(splice(text))
    for m in DIRECTIVE.finditer(text):
        yield text.count("\n", 0, m.start()) + 1, m.group(1), m.group(2).strip()


def may_include(room, target):
    allowed = EDGES[room]
    return target.split("/")[0] in (room, *allowed) or target in allowed


def check_include(root, path, word, name):
    """The fault of one include, or None. Include names are relative to src/ everywhere."""
    if word != "include":
        return f"#{word} is not used here"
    if not re.fullmatch(r'"[^"]+"|<[^>]+>', name):
        return f"include of {name}: write the file's name itself"
    target = name[1:-1]
    if target.startswith("/") or "\\" in target or {"..", "."} & set(target.split("/")) or "//" in target:
        return f"include of {name}: a name goes from src/ down, without ./ or ../"
    ours = os.path.isfile(os.path.join(root, "src", target))
    if name[0] == "<":
        return f"include of {name}: our own headers take quotes" if ours else None
    if not ours:
        beside = os.path.isfile(os.path.join(root, os.path.dirname(path), target))
        if beside and not path.startswith("src/"):
            return None  # tests and benchmarks may have headers of their own
        if beside or "/" not in target or target.split("/")[0] in EDGES:
            return f"include of {name}: no such file in src/"
        return None  # another project's
    if path.startswith("src/"):
        room = path.split("/")[1]
        if not may_include(room, target):
            return f"{room} may not include {target} (allowed: {', '.join(EDGES[room]) or 'nothing'})"
    return None


def find_circle(graph):
    """A list of nodes that leads back to its first, or None."""
    state, trail = {}, []

    def visit(node):
        state[node] = "open"
        trail.append(node)
        for after in graph.get(node, ()):
            if state.get(after) == "open":
                return trail[trail.index(after):] + [after]
            if after not in state and (circle := visit(after)):
                return circle
        state[node] = "done"
        trail.pop()
        return None

    for node in sorted(graph):
        if node not in state and (circle := visit(node)):
            return circle
    return None


def check_links(root, path):
    """Link dependencies of a room's CMakeLists.txt go the same way as its includes."""
    text = re.sub(r"#[^\n]*", "", read(root, path))
    for room, arguments in ROOM_CALL.findall(text):
        deps = re.search(r"\bDEPS\b([\w\s]*?)(?=\b(?:SOURCES|KERNELS|LIBS|PRIVATE_LIBS)\b|$)", arguments)
        for dep in deps.group(1).split() if deps else ():
            if room in EDGES and dep not in {e.split("/")[0] for e in EDGES[room]}:
                yield f"{path}: room {room} may not link {dep}"


def check(root):
    faults, graph = [], {}
    for path in files_under(root, "src", "tests", "benchmarks", "tools"):
        if path.startswith("src/") and os.path.basename(path) == "CMakeLists.txt":
            faults += check_links(root, path)
        if not path.endswith((".h", ".cc")):
            continue
        parts = path.split("/")
        if parts[0] == "src" and (len(parts) < 3 or parts[1] not in EDGES):
            faults.append(f"{path}: not in a room that tools/check_includes.py knows")
            continue
        for line, word, name in includes_of(read(root, path)):
            fault = check_include(root, path, word, name)
            if fault:
                faults.append(f"{path}:{line}: {fault}")
            elif name[0] == '"' and parts[0] == "src":
                graph.setdefault(path, []).append("src/" + name[1:-1])
    if circle := find_circle(graph):
        faults.append("circle of includes: " + " -> ".join(circle))
    return faults


# A clean tree and, for each kind of fault, a change that must be found. (path, text, words of the message)
CLEAN = {
    "src/base/status.h": '// Status.\n#pragma once\n#include <string>\n#include "fmt/format.h"\n',
    "src/base/status.cc": '#include "base/status.h"\n// #include "engine/engine.h"\n'
                          'const char* kText = R"(\n#include "cli/x.h"\n)";\n',
    "src/layout/layout.h": '#include "base/status.h"\n',
    "src/layout/CMakeLists.txt": "emberkv_room(layout\n  SOURCES layout.cc\n  DEPS base formats\n  LIBS fmt::fmt)\n",
    "src/engine/engine.h": '#include "layout/layout.h"\n',
    "src/engine/session.h": "",
    "src/weights/checkpoint.h": "",
    "src/weights/safetensors.h": "",
    "src/cli/main.cc": '#include "engine/engine.h"\n#include "weights/checkpoint.h"\n',
    "tests/golden/trace.h": '#include "engine/session.h"\n',
    "tests/golden/trace_test.cc": '#include "trace.h"\n',
}
PLANTED = [
    ("src/base/up.cc", '#include "engine/engine.h"\n', "base may not include engine/engine.h"),
    ("src/base/up.cc", '#if 1\n  #  include /* x */ "engine/engine.h"\n#endif\n', "base may not include"),
    ("src/base/up.cc", '%:include "engine/engine.h"\n', "base may not include"),
    ("src/base/up.cc", '#include \\\n  "engine/engine.h"\n', "base may not include"),
    ("src/base/up.cc", 'auto c = \'"\';\n#include "engine/engine.h"\nauto d = \'"\';\n', "base may not include"),
    ("src/base/up.cc", '#include "../engine/engine.h"\n', "without ./ or ../"),
    ("src/base/up.cc", '#include "base/../engine/engine.h"\n', "without ./ or ../"),
    ("src/base/up.cc", "#include <engine/engine.h>\n", "take quotes"),
    ("src/base/up.cc", '#define X "engine/engine.h"\n#include X\n', "write the file's name itself"),
    ("src/base/up.cc", '#include_next "base/status.h"\n', "not used here"),
    ("src/base/up.cc", '#include "status.h"\n', "no such file in src/"),
    ("src/cli/run.cc", '#include "engine/session.h"\n', "cli may not include engine/session.h"),
    ("src/cli/run.cc", '#include "weights/safetensors.h"\n', "cli may not include weights/safetensors.h"),
    ("src/attic/old.cc", "", "not in a room"),
    ("src/loose.cc", "", "not in a room"),
    ("src/base/CMakeLists.txt", "emberkv_room(base SOURCES status.cc\n  DEPS layout)\n", "may not link layout"),
    ("src/base/status.h", '#include "base/status.h"\n', "circle of includes"),
    ("tests/golden/far_test.cc", '#include "../../src/base/status.h"\n', "without ./ or ../"),
]


def self_test():
    failures = 0
    edges = {room: [e.split("/")[0] for e in allowed] for room, allowed in EDGES.items()}
    if find_circle(edges):
        print("self-test: EDGES itself has a circle")
        failures += 1
    failures += planted_failures(CLEAN, PLANTED, check)
    print(f"check_includes self-test: {len(PLANTED) + 1} trees, {failures} failures")
    return failures


if __name__ == "__main__":
    sys.exit(run_check("check_includes", check, self_test, sys.argv[1:]))
