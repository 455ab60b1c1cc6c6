#!/usr/bin/env python3
"""Keeps the house in order: sizes, names, what a library may do, that every test is built, that links lead somewhere.

  check_house.py [ROOT]        checks a checkout, prints what is wrong, exits 1 if anything is
  check_house.py --self-test

There are no exceptions: what does not fit is split or renamed.
"""
import ast
import os
import re
import sys

from cxx_text import files_under, planted_failures, read, run_check, without_comments

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80

CODE_FOLDERS = ("src", "tests", "benchmarks", "tools")
# Kinds of file that may lie in src/: anything else would escape these checks and those of the includes.
SOURCE_KINDS = (".h", ".cc", "CMakeLists.txt")
# Rooms that talk to people; all others are libraries, which never print and never end the process.
FRONT_ROOMS = ("cli", "server")

EMPTY_WORDS = {"manager", "helper", "helpers", "util", "utils", "misc"}
EMPTY_NAMES = {"Data", "Info", "Context", "Common", "Processor"}
EMPTY_STEMS = EMPTY_WORDS | {"common", "data", "info", "context", "processor"}

MACHINE_PATH = re.compile(r"(?<![\w./$}-])/(?:home|root|tmp|work|mnt|Users)/\w")
UNFINISHED = re.compile(r"(?://|#|<!--|/\*)\s*(?:TO" r"DO|FIX" r"ME|XX" r"X)\b(?!\?)")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")
ENDS_OR_PRINTS = re.compile(r"(?<![\w.>])(?:std::)?(?:exit|_exit|quick_exit|abort|terminate|printf|fprintf|puts)\s*\(|"
                            r"\bstd::(?:cout|cerr|clog)\b|\bfmt::print\b")


def without_directives(text):
    """Blanks preprocessor lines, and the #else side of conditionals, whose braces would not balance."""
    out, dropped, continued = [], [], False
    for line in text.split("\n"):
        directive = re.match(r"\s*#\s*(\w*)", line)
        if directive and not continued:
            word = directive.group(1)
            if word.startswith("if"):
                dropped.append(False)
            elif word.startswith("el") and dropped:
                dropped[-1] = True
            elif word == "endif" and dropped:
                dropped.pop()
        hidden = directive or continued or any(dropped)
        continued = bool(directive or continued) and line.endswith("\\")
        out.append("" if hidden else line)
    return "\n".join(out)


def brace_kind(header):
    """What a '{' after this text opens, at namespace or class level: function, scope or init."""
    header = header.strip()
    last = re.search(r"(\w+|.)$", header, re.S)
    last = last.group(1) if last else ""
    if "(" in header and (last in (")", "}", "const", "noexcept", "override", "final", "try", "&")
                          or re.search(r"\)[^()]*->[^()]*$", header)):
        return "function"
    if re.search(r"\b(namespace|class|struct|union|enum|extern)\b", header) and not header.endswith("="):
        return "scope"
    return "init"


def cxx_functions(text):
    """(first line, number of lines, header) of each function body that is not inside another."""
    text = without_directives(without_comments(text, keep_strings=False))
    header_begin, scopes, skip, function = 0, [], 0, None
    for m in re.finditer(r"[{};]", text):
        mark, at = m.group(), m.start()
        if skip:  # inside a function or an initialiser: only its end matters
            skip += {"{": 1, "}": -1, ";": 0}[mark]
            if skip == 0 and function is not None:
                begin, header = function
                first = text.count("\n", 0, begin) + 1
                yield first, text.count("\n", begin, at) + 1, " ".join(header.split())
                function, header_begin = None, at + 1
        elif mark == "{":
            header = text[header_begin:at]
            kind = brace_kind(header)
            if kind == "scope":
                scopes.append(header)
                header_begin = at + 1
            else:
                skip = 1
                if kind == "function":
                    function = (header_begin + len(header) - len(header.lstrip()), header)
        else:
            if mark == "}":
                if not scopes:
                    raise ValueError(f"line {text.count(chr(10), 0, at) + 1}: a brace too many")
                scopes.pop()
            header_begin = at + 1
    if skip or scopes:
        raise ValueError("braces do not balance")


def python_functions(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.end_lineno - node.lineno + 1, node.name


def check_sizes(path, text):
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{path}: {lines} lines (at most {MAX_FILE_LINES})"
    try:
        functions = list(python_functions(text) if path.endswith(".py") else cxx_functions(text))
    except (ValueError, SyntaxError) as error:
        yield f"{path}: cannot be read: {error}"
        return
    for line, length, header in functions:
        if length > MAX_FUNCTION_LINES:
            yield f"{path}:{line}: function of {length} lines (at most {MAX_FUNCTION_LINES}): {header[:60]}"


def words_of(name):
    return {w.lower() for w in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def check_names(path, text):
    stem = os.path.basename(path).split(".")[0]
    if stem in EMPTY_STEMS or words_of(stem) & EMPTY_WORDS:
        yield f"{path}: the file's name says nothing about what it is"
    code = without_comments(text, keep_strings=False)
    for name in sorted(set(re.findall(r"\b[A-Za-z_]\w*", code))):
        if words_of(name) & EMPTY_WORDS:
            yield f"{path}: the name {name} says nothing about what it is"
    for name in re.findall(r"\b(?:class|struct|enum|concept)\s+(?:class\s+)?(\w+)", code):
        if name in EMPTY_NAMES or re.search(r"(?:Impl|V)\d$|^(?:New|Fast|Smart)[A-Z]", name):
            yield f"{path}: the name {name} says nothing about what it is"


def check_cxx(path, text):
    yield from check_sizes(path, text)
    yield from check_names(path, text)
    if re.search(r"#\s*include\s*<bits/", text):
        yield f"{path}: <bits/...> belongs to the compiler"
    if path.endswith(".h"):
        if not text.startswith("// "):
            yield f"{path}: a header opens with a comment that says what it is"
        if "#pragma once" not in text:
            yield f"{path}: #pragma once is missing"
    parts = path.split("/")
    if parts[0] == "src" and not path.endswith("_test.cc"):
        code = without_comments(text, keep_strings=False)
        if re.search(r"\bgetenv\b", code):
            yield f"{path}: no environment variables"
        if parts[1] not in FRONT_ROOMS:
            for m in ENDS_OR_PRINTS.finditer(code):
                yield f"{path}:{code.count(chr(10), 0, m.start()) + 1}: a library does not call {m.group().strip('( ')}"


def check_text(root, path, text):
    if m := MACHINE_PATH.search(text):
        yield f"{path}:{text.count(chr(10), 0, m.start()) + 1}: path of one machine: {m.group()}"
    if m := UNFINISHED.search(text):
        yield f"{path}:{text.count(chr(10), 0, m.start()) + 1}: unfinished: {m.group()}"
    if path.endswith(".md"):
        for target in LINK.findall(text):
            beside = os.path.join(root, os.path.dirname(path), target)
            if not re.match(r"\w+:", target) and not os.path.exists(beside):
                yield f"{path}: link leads nowhere: {target}"


def check_built(root):
    """Every source is named in a CMakeLists.txt, and every room with sources has a test."""
    named, rooms = set(), {}
    paths = files_under(root, "src", "tests", "benchmarks")
    for path in paths:
        if os.path.basename(path) == "CMakeLists.txt":
            folder = os.path.dirname(path)
            for name in re.findall(r"[\w./-]+\.cc\b", re.sub(r"#[^\n]*", "", read(root, path))):
                named.add(os.path.normpath(os.path.join(folder, name)))
    for path in paths:
        if path.endswith(".cc"):
            if path not in named:
                yield f"{path}: not in any CMakeLists.txt"
            if path.startswith("src/"):
                rooms.setdefault(path.split("/")[1], []).append(path)
    for room, sources in rooms.items():
        if not any(s.endswith("_test.cc") for s in sources):
            yield f"src/{room}: no test beside the code"


def check(root):
    faults = list(check_built(root))
    for path in files_under(root, *CODE_FOLDERS):
        if path.startswith("tests/data/"):
            continue
        if path.startswith("src/") and not path.endswith(SOURCE_KINDS):
            faults.append(f"{path}: src/ holds .h, .cc and CMakeLists.txt only")
        if path.endswith((".h", ".cc")):
            faults += check_cxx(path, read(root, path))
        elif path.endswith(".py"):
            faults += check_sizes(path, read(root, path))
    for path in files_under(root, ""):
        if path.startswith(("tests/data/", "models/")):
            continue
        if path.endswith((".h", ".cc", ".py", ".md", ".txt", ".cmake", ".json", ".yml")) or "." not in path:
            faults += check_text(root, path, read(root, path))
    return faults


CLEAN = {
    "README.md": "See [the plan](docs/plan.md) and [the web](https://example.org/x).\n",
    "docs/plan.md": "Text with build/tmp/x and and/or.\n",
    "src/base/CMakeLists.txt": "emberkv_room(base\n  SOURCES status.cc)\nemberkv_test(t SOURCES status_test.cc)\n",
    "src/base/status.h": "// What a call came to.\n#pragma once\nnamespace e {\nclass Status {\n public:\n"
                         "  explicit Status(int c) noexcept : code_{c}, b_{} {}\n  int code() const { return code_; }\n"
                         " private:\n  int code_{0};\n  int b_{};\n};\n}  // namespace e\n",
    "src/base/status.cc": '#include "base/status.h"\n#if X\nint F() {\n#else\nint F(int) {\n#endif\n  return 1\'000; }\n'
                          "const char* kBrace = R\"({{{)\"; const char kC = '{';\nint kTable[] = {1, 2};\n"
                          "auto G() -> int { return snprintf(0, 0, kBrace); }  // exit(1)\n",
    "src/base/status_test.cc": "TEST(Status, Exits) { exit(1); }\n",
}
LONG = "int Long() {\n" + "  F();\n" * 79 + "}\n"
PLANTED = [
    ("src/base/status.cc", "// x\n" * 601, "601 lines (at most 600)"),
    ("src/base/status.cc", LONG, "function of 81 lines"),
    ("src/base/status.cc", "namespace e {\nnamespace {\n" + LONG.replace("()", "() const") + "}\n}\n", "function of 81"),
    ("src/base/status.cc", "A::A(int x)\n    : x_{x}, y_{1} {\n" + "  F();\n" * 79 + "}\n", "function of 82 lines"),
    ("src/base/status.cc", "struct S {\n  auto F() -> std::vector<int> {\n" + "  F();\n" * 80 + "}\n};\n", "function of 82"),
    ("src/base/status.cc", "int F() {\n", "cannot be read"),
    ("src/base/status.cc", "int F() { return 1; }}\n", "cannot be read"),
    ("src/base/status.cc", "class PageManager;\n", "the name PageManager"),
    ("src/base/status.cc", "int page_utils;\n", "the name page_utils"),
    ("src/base/status.cc", "struct Data {};\n", "the name Data"),
    ("src/base/status.cc", "class FastCodec {};\n", "the name FastCodec"),
    ("src/base/status.cc", "#include <bits/stdc++.h>\n", "belongs to the compiler"),
    ("src/base/status.cc", "void F() { std::abort(); }\n", "a library does not call std::abort"),
    ("src/base/status.cc", "void F() { std::cerr << 1; }\n", "a library does not call std::cerr"),
    ("src/base/status.cc", "void F() { fprintf(stderr, 1); }\n", "a library does not call fprintf"),
    ("src/base/status.cc", 'auto x = getenv("X");\n', "no environment variables"),
    ("src/base/status.cc", "// TO" "DO: later\n", "unfinished"),
    ("src/base/status.cc", 'auto x = "/ho' 'me/me/x";\n', "path of one machine"),
    ("src/base/status.h", "#pragma once\n", "opens with a comment"),
    ("src/base/status.h", "// Status.\n", "#pragma once is missing"),
    ("src/base/extra.cc", "", "not in any CMakeLists.txt"),
    ("src/base/extra.inc", "", "holds .h, .cc and CMakeLists.txt only"),
    ("src/base/helpers.h", "// x\n#pragma once\n", "the file's name"),
    ("src/base/CMakeLists.txt", "emberkv_room(base SOURCES status.cc)\n", "status_test.cc: not in any CMakeLists.txt"),
    ("tools/long.py", "def f():\n" + "    f()\n" * 80, "function of 81 lines"),
    ("README.md", "[gone](docs/gone.md)\n", "link leads nowhere: docs/gone.md"),
]


def self_test():
    failures = planted_failures(CLEAN, PLANTED, check)
    print(f"check_house self-test: {len(PLANTED) + 1} trees, {failures} failures")
    return failures


if __name__ == "__main__":
    sys.exit(run_check("check_house", check, self_test, sys.argv[1:]))
