#!/usr/bin/env python3
"""A manual in many languages, as text: of Debian's package installation-guide-amd64, whose pages are a folder of
HTML for each language.

    bench/guide.py FOLDER OUT : OUT/LANGUAGE.jsonl and OUT/test/LANGUAGE.jsonl, a page a record

Every fifth page, the same one in all languages, is for the test. Lines that English pages have too are left
out of other languages: commands, and what nobody translated yet."""
import html.parser
import json
import pathlib
import re
import sys


class Text(html.parser.HTMLParser):
    """What a reader sees of a page, but for links from page to page."""

    def __init__(self):
        super().__init__()
        self.parts, self.hidden = [], 0

    def handle_starttag(self, tag, attributes):
        if self.hidden or tag in ("head", "script") or ("class", "navheader") in attributes or \
                ("class", "navfooter") in attributes:
            self.hidden += tag not in ("meta", "link", "br", "hr", "img", "input")
        elif tag in ("p", "br", "li", "tr", "dt", "dd", "div", "h1", "h2", "h3", "h4", "pre"):
            self.parts.append("\n")

    def handle_endtag(self, tag):
        self.hidden -= self.hidden > 0

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data)


def lines_of(page):
    parser = Text()
    parser.feed(page.read_text("utf-8", "replace"))
    return re.sub(r"\s*\n\s*", "\n", "".join(parser.parts)).strip().split("\n")


def main():
    folder, out = map(pathlib.Path, sys.argv[1:3])
    (out / "test").mkdir(parents=True, exist_ok=True)
    languages = sorted(p for p in folder.iterdir() if p.is_dir())
    names = sorted({p.name.split(".")[0] for p in languages[0].glob("*.html")})
    test = set(names[2::5])
    english = {line for page in (folder / "en").glob("*.html") for line in lines_of(page)}
    for language in languages:
        with open(out / f"{language.name}.jsonl", "w") as ranked, \
                open(out / f"test/{language.name}.jsonl", "w") as held_out:
            for page in sorted(language.glob("*.html")):
                lines = lines_of(page)
                if language.name != "en":
                    lines = [line for line in lines if line not in english]
                text = "\n".join(lines)
                if len(text) > 200:
                    to = held_out if page.name.split(".")[0] in test else ranked
                    to.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")


main()
