"""Texts that make tokenizers disagree, as bytes (some are not UTF-8)."""
import random
import unicodedata

SENTENCES = [
    "The quick brown fox jumps over the lazy dog; it's 1,234.56 metres (and we'll see).",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich – „schön“!",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΑΣ ΣΑΣ",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה; שָׁלוֹם",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر ١٢٣٤٥٦ ‏abc‎",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश १२३",
    "নমস্কার বিশ্ব। தமிழ் மொழி. తెలుగు. ಕನ್ನಡ. മലയാളം. සිංහල.",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ๑๒๓ ພາສາລາວ မြန်မာ ភាសាខ្មែរ བོད་ཡིག",
    "天地玄黃,宇宙洪荒。日月盈昃，辰宿列張！第123456章:你好世界",
    "いろはにほへと ちりぬるを ワガヨタレソ ツネナラム。ｶﾀｶﾅ、東京タワー333m",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 각",
    "Բարեւ, გამარჯობა, ሰላም, ᏣᎳᎩ, ᠮᠣᠩᠭᠣᠯ, ⴰⵣⵓⵍ, 𐌰𐌱𐌲, 𝔘𝔫𝔦𝔠𝔬𝔡𝔢, 𒀀𒀁",
    "Tiếng Việt: Trăm năm trong cõi người ta, chữ tài chữ mệnh khéo là ghét nhau",
]

EMOJI = [
    "😀😃😄 ok 👍🏽👍🏿 done", "👨‍👩‍👧‍👦 👩🏽‍💻 🏳️‍🌈 🏴‍☠️ 🇩🇪🇫🇷🇯🇵", "☺️☺︎ ❤️‍🔥 1️⃣2️⃣ #️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿x\u200d\u200dy",
]

CODE = [
    "def f(x: int) -> list[str]:\n\treturn [f\"{x!r:>{10}}\" for _ in range(x)]  # TODO?\n\n\nclass A(B):\n    pass\n",
    "#include <vector>\nint main() { std::vector<int> v{1,2,3}; return v[0]<<2 ^ ~v.size(); }\r\n\r\n",
    "SELECT a.*, COUNT(*) AS n FROM t1 a LEFT JOIN t2 ON a.id=t2.id WHERE x<>'it''s' GROUP BY 1;",
    "<div class=\"a-b_c\">&nbsp;<!-- c --></div>\n{\"k\":[1,2.5e-10,null,\"\\u00e9\"]}",
    "$ls -la /usr/lib/*.so | grep -E '^[a-z]+\\.(c|h)$' && echo \"$HOME\" > ~/x.txt 2>&1",
    "https://example.org/a/b?c=d&e=%20f#frag user@example.com 192.168.0.1 0xDEADBEEF 1_000_000",
]

SPACES = [
    "", " ", "  ", "\n", "\t", "a ", " a", "a  b", "a   b\n", "\n\n\n", " \n \n", "\r\n\r\n", "a\n \n  b", "  \t\t  x",
    " " * 37 + "x", "x" + " " * 64, "\n" * 50 + "end", "\t" * 20 + "\n" * 3 + " " * 5 + "y", "a\u00a0b\u2003c\u3000d\u1680e",
    "a\u0085b\u2028c\u2029d\u200be\ufefff", "a\u180eb \u180e c", "\x0b\x0c\x1c\x1d\x1e\x1f x", "end of text  \n  ",
]

DIGITS = ["0", "12", "123", "1234", "1234567890" * 7, "3.14159 2,718 1e10", "²³¹⁄₄ ½ Ⅻ ①②③ 一二三 ٣٤٥ ०१२ 𝟙𝟚𝟛𝟜", "a1b22c333d4444"]

MARKS = [
    "e\u0301e\u0300\u0323 a\u0308\u0304", "\u0301\u0302\u0303 leading", "Z\u0351\u036b\u0343\u036a\u0342\u036b\u033d\u034f\u0334\u0319\u0324a\u030a\u0321l\u0349\u0354g\u0317\u0318o\u033a",
    "\u00c5 \u212b A\u030a \ufb01 \u2460 \uff21\uff22", "\u0e33\u0e4d \u093f\u0915", "1\u0308 .\u0308 \u20e3",
]

CONTROL = ["\x00", "a\x00b\x00\x00c", "\x01\x02\x03\x04\x05\x06\x07\x08", "\x1b[31mred\x1b[0m", "\x7f\x80\x9f", "\u200e\u202b\u202ca\u2066b\u2069", "\ufffd\ufffe\uffff \U0010ffff \ue000 \uf8ff"]

SPECIAL = [
    "<｜begin▁of▁sentence｜>Hi<｜User｜>What?<｜Assistant｜><think>hm</think>Yes.<｜end▁of▁sentence｜>",
    "<｜begin▁of▁sentence｜><｜begin▁of▁sentence｜> <｜▁pad▁｜>", "<｜User｜", "<｜User", "<｜Use", "｜>", "<｜User｜>｜>", "< think>", "<think", "<<think>>",
    "a <think> b </think> c", "<｜User｜><｜User｜><｜User｜>", "x<｜place▁holder▁no▁1｜>y<｜place▁holder▁no▁10｜>z", "foo bar foo", "foo barfoo ba", "｜DSML｜<｜DSML｜",
]

BROKEN = [
    b"\xff", b"a\xffb", b"\xc3", b"\xc3\xc3\xa9", b"\xe4\xb8", b"\xe4\xb8\xe4\xb8\xad", b"\xf0\x9f\x98", b"\xf0\x9f\x98a", b"\xed\xa0\x80\xed\xb0\x80",
    b"\xc0\xaf\xe0\x80\xaf\xf0\x80\x80\xaf", b"\xf4\x90\x80\x80\xf5\x80\x80\x80", b"\x80\x81\xbf", b"ok \xe2\x82 ok", b"\xef\xbf\xbd \xef\xbf", bytes(range(128, 256)),
]


def fixed():
    for group in (SENTENCES, EMOJI, CODE, SPACES, DIGITS, MARKS, CONTROL, SPECIAL):
        for text in group:
            yield text.encode()
    yield "\n".join(SENTENCES + EMOJI).encode()
    yield from BROKEN


def assigned(code_point):
    return not 0xD800 <= code_point < 0xE000 and unicodedata.category(chr(code_point)) != "Cn"


def randomised(count, seed):
    """Mixtures of short pieces, of single characters, and of bytes."""
    rng = random.Random(seed)
    every = [chr(c) for c in range(0x110000) if assigned(c) and unicodedata.category(chr(c)) != "Co"]
    pieces = [w for s in SENTENCES + EMOJI + CODE + DIGITS + MARKS + SPECIAL for w in s.split(" ")]
    glue = ["", "", " ", "  ", "\n", "\n\n", "\t", " \n", "\r\n", "'s", "'", "7", "\u00a0", "\u3000", "中", "ア"]
    for i in range(count):
        n = rng.randint(1, 30)
        if i % 4 == 0:
            yield "".join(rng.choice(every) for _ in range(n)).encode()
        elif i % 4 == 1:
            yield "".join(rng.choice(pieces) + rng.choice(glue) for _ in range(n)).encode()
        elif i % 4 == 2:
            yield "".join(rng.choice(" \n\tab1.'-éж中の\u0301😀<>|｜") for _ in range(n)).encode()
        else:
            data = bytearray("".join(rng.choice(pieces) for _ in range(n)).encode())
            for _ in range(rng.randint(1, 4)):
                data.insert(rng.randint(0, len(data)), rng.randrange(256))
                del data[rng.randrange(len(data))]
            yield bytes(data)


def long_runs():
    yield from (b"a" * 100_000, b" " * 100_000, b"\n" * 50_000, b"7" * 50_000, b"ab" * 50_000, b"\x01" * 50_000, b"-=" * 30_000)
    yield "中".encode() * 30_000
    yield ("word " * 20_000).encode()
    yield b" " * 30_000 + b"x" + b"\t" * 30_000
