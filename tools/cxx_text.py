"""What the source checks share: finding the files of the checkout, and C++ text without comments and literals."""
import os
import re

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
