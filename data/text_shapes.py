"""Turns what packages hold (HTML, manual pages, books, R data) into plain text and Markdown."""
import re
import struct
import subprocess
import zlib
from html.parser import HTMLParser

R_STRING = re.compile(rb"\0[\0\4][\0\x80]\x09(\0...)", re.S)
MAX_CHARS = 16000  # of one document; longer texts are cut near there


class Markdown(HTMLParser):
    """HTML of documentation pages to Markdown: headings, lists, code, tables; no links."""

    SKIP = {"script", "style", "nav", "header", "footer", "button", "svg", "form", "noscript"}
    BLOCK = {"p", "div", "section", "article", "blockquote", "dl", "dd", "table", "main"}
    LIST = {"ul", "ol", "menu"}
    MARKS = {"b": "**", "strong": "**", "dt": "**", "em": "*", "i": "*", "code": "`", "tt": "`"}

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.out = []
        self.skip = 0      # open elements whose content is left out
        self.pre = []      # for each open <pre>, where its content starts in out
        self.lists = []    # for each open list, its last number; None: bullets
        self.marks = []    # for each open mark, its tag and where it starts in out

    def handle_starttag(self, tag, attrs):
        kind = dict(attrs).get("class") or ""
        if tag in self.SKIP or (tag == "a" and (self.skip or "headerlink" in kind)):
            self.skip += 1
        elif self.skip:
            return
        elif tag == "pre":
            self.pre.append(len(self.out))
        elif self.pre:
            return
        elif re.fullmatch("h[1-6]", tag):
            self.out.append("\n\n" + "#" * int(tag[1]) + " ")
        elif tag in self.LIST:
            self.out.append("\n" if self.lists else "\n\n")
            self.lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self.item()
        elif tag in ("td", "th"):
            self.out.append(" | ")
        elif tag in ("br", "tr"):
            self.out.append("\n")
        elif tag in self.BLOCK and not self.lists:
            self.out.append("\n\n")
        elif tag in self.MARKS:
            self.out.append("\n\n" if tag == "dt" else "")
            self.marks.append((tag, len(self.out)))

    def item(self):
        bullet = "-"
        if self.lists and self.lists[-1] is not None:
            self.lists[-1] += 1
            bullet = f"{self.lists[-1]}."
        self.out.append("\n" + "  " * (len(self.lists) - 1) + bullet + " ")

    def handle_endtag(self, tag):
        if self.skip:
            self.skip -= tag in self.SKIP or tag == "a"
        elif tag == "pre" and self.pre:
            self.fence(self.pre.pop())
        elif self.pre:
            return
        elif re.fullmatch("h[1-6]", tag):
            self.out.append("\n\n")
        elif tag in self.LIST and self.lists:
            self.lists.pop()
            self.out.append("" if self.lists else "\n\n")
        elif tag in self.BLOCK and not self.lists:
            self.out.append("\n\n")
        elif self.marks and self.marks[-1][0] == tag:
            self.mark(*self.marks.pop())

    def fence(self, start):
        code = "".join(self.out[start:]).strip("\n")
        if not self.pre:
            self.out[start:] = ["\n\n```\n", code, "\n```\n\n"]

    def mark(self, tag, start):
        """Wraps what came since `start`; only the outermost of nested marks is written."""
        inside = "".join(self.out[start:])
        word = inside.strip()
        if word and "\n" not in word and not self.marks:
            self.out[start:] = [inside.replace(word, self.MARKS[tag] + word + self.MARKS[tag])]

    def handle_data(self, data):
        if self.skip:
            return
        if not self.pre:
            data = re.sub(r"\s+", " ", data)
            if not self.out or self.out[-1].endswith(("\n", " ")):
                data = data.lstrip()
        self.out.append(data)

    def text(self):
        return tidy("".join(self.out))


def tidy(text):
    text = text.replace("\u00b6", "").replace("\u00a0", " ").replace("\r\n", "\n")
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def markdown(html, start, end, drop=None):
    """The part of a page from the first match of `start` to the first match of `end` after it."""
    html = re.sub(drop, "", html, flags=re.S) if drop else html
    first = re.search(start, html)
    if not first:
        return ""
    last = re.compile(end).search(html, first.end())
    parser = Markdown()
    parser.feed(html[first.start():last.start() if last else len(html)])
    parser.close()
    return parser.text()


def manual(mandoc, path):
    """A manual page as Markdown, by way of mandoc's HTML."""
    html = subprocess.run([mandoc, "-T", "html", "-O", "fragment", path], capture_output=True,
                          check=False).stdout.decode("utf-8", "replace")
    return markdown(html, "<section", "<table class=\"foot\"")


def unwrap(text):
    """Joins the lines of paragraphs that were wrapped at a margin; verse, lists and tables stay."""
    def join(paragraph):
        lines = paragraph.split("\n")
        wrapped = all(40 < len(line) < 90 and line[0] not in " \t|*#" for line in lines[:-1])
        return re.sub(r"\s*\n\s*", " ", paragraph) if wrapped else paragraph
    return "\n\n".join(join(p) for p in re.split(r"\n{2,}", tidy(text)) if p)


def pieces(text, limit=MAX_CHARS):
    """Cuts a long text into documents of about `limit` at most, at paragraphs or else lines."""
    piece = ""
    for part in re.findall(r".*\n+|.+$", text):
        if len(piece) + len(part) > limit and piece.endswith("\n\n") or len(piece) > 1.5 * limit:
            yield piece.strip("\n")
            piece = ""
        piece += part
    if piece.strip():
        yield piece.strip("\n")


def is_text(text):
    """Rejects tables of numbers, minified code, encoded data and machine output."""
    if len(text) < 200 or max(map(len, text.split("\n"))) > 8000:
        return False
    words = sum(c.isalpha() or c == " " for c in text)
    return words > 0.6 * len(text) and text.count("\n") * 400 + 4000 > len(text)


class Seen:
    """Drops paragraphs that came before: licence headers, navigation, boilerplate."""

    def __init__(self):
        self.hashes = set()

    def fresh(self, text):
        kept = []
        for paragraph in text.split("\n\n"):
            key = hash_text(re.sub(r"\W+", " ", paragraph).strip().lower())
            if len(paragraph) >= 80 and key in self.hashes:
                continue
            self.hashes.add(key)
            kept.append(paragraph)
        return "\n\n".join(kept)


def hash_text(text):
    return zlib.crc32(text.encode()) << 32 | zlib.adler32(text.encode())


def r_strings(path):
    """The character vectors of an R package's data (Rdata.rdb): one list of strings each."""
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        blob = zlib.decompressobj()
        raw = blob.decompress(data[at + 4:])
        at = len(data) - len(blob.unused_data)
        strings, i = [], 0
        while m := R_STRING.search(raw, i):
            i = m.end() + struct.unpack(">I", m.group(1))[0]
            strings.append(raw[m.end():i].decode("utf-8", "replace"))
        yield strings
