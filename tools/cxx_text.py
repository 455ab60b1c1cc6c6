"""What the source checks share: finding the files of the checkout, C++ text without comments and literals, their command line
and the self-test that plants faults."""
import os
import re
import tempfile

SKIPPED_FOLDERS = {".git", ".venv", ".cache", "__pycache__", "build"}

_LEXEME = re.compile(
    r'''(?P<raw>(?:u8|[uUL])?R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)")
      | (?P<line>//[^\n]*)
      | (?P<block>/\*.*?\*/)
      | (?P<string>"(?:\\.|[^"\\\n])*")
      | (?P<char>(?<![0-9A-Za-z_])(?:u8|[uUL])?'(?:\\.|[^'\\\n])+')''', re.S | re.X)


def files_under(root, *folders):
    """Paths relative to root, sorted, of all files below the folders ('' is the whole checkout)."""
    found = []
    for folder in folders:
        for where, names, files in os.walk(os.path.join(root, folder)):
            names[:] = [n for n in names if n not in SKIPPED_FOLDERS]
            found += [os.path.relpath(os.path.join(where, f), root) for f in files]
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def splice(text):
    """Joins lines that end in a backslash, keeping the number of lines."""
    out, held = [], 0
    for line in text.split("\n"):
        joined = out.pop() if held else ""
        if line.endswith("\\"):
            out.append(joined + line[:-1])
            held += 1
        else:
            out.append(joined + line + "\n" * held)
            held = 0
    return "\n".join(out)


def without_comments(text, keep_strings=True):
    """Comments and raw strings (and, if asked, the inside of all literals) blanked out, line numbers kept."""
    def blank(m):
        kind = "raw" if m.group("raw") else m.lastgroup
        if kind in ("line", "block"):
            return " " + "\n" * m.group().count("\n")
        if keep_strings and kind != "raw":
            return m.group()
        quote = "'" if kind == "char" else '"'
        return quote + quote + "\n" * m.group().count("\n")
    return _LEXEME.sub(blank, text)


def planted_failures(clean, planted, check):
    """How often `check` is wrong: about the tree `clean` ({path: text}), or about it with one planted file (path, text, message),
    where it must find one fault that contains the message. Says each on standard output."""
    failures = 0
    for path, text, message in [(None, None, None)] + planted:
        with tempfile.TemporaryDirectory() as root:
            for name, content in {**clean, **({path: text} if path else {})}.items():
                os.makedirs(os.path.join(root, os.path.dirname(name)), exist_ok=True)
                with open(os.path.join(root, name), "w", encoding="utf-8") as f:
                    f.write(content)
            faults = check(root)
        right = len(faults) == 1 and message in faults[0] if path else not faults
        if not right:
            print(f"self-test: {path}: expected {message!r}, found {faults}")
            failures += 1
    return failures


def run_check(name, check, self_test, arguments):
    """The command line of a check: [--self-test | ROOT]; ROOT is this checkout unless given. The exit status."""
    if arguments == ["--self-test"]:
        return 1 if self_test() else 0
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    faults = check(os.path.abspath(root))
    for fault in faults:
        print(fault)
    print(f"{name}: {len(faults)} faults")
    return 1 if faults else 0
