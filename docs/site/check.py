#!/usr/bin/env python3
"""check.py SITE : links and images of the site's own pages whose file or heading does not exist, one line each.
Doxygen's pages are only looked at as targets. Closes with 1 if anything was found."""
import html.parser
import os
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links = set(), []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.add(value)
            elif name in ("href", "src"):
                self.links.append(value)


def broken(path, link, pages):
    """Why the link of the page leads nowhere; None: it leads somewhere, or out of the site."""
    parts = urllib.parse.urlsplit(link)
    if parts.scheme:
        return None
    target = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(parts.path))) if parts.path else path
    if not os.path.isfile(target):
        return "no such file"
    if parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].ids:
        return "no such heading"
    return None


def main(site):
    names = [os.path.join(folder, name) for folder, _, files in os.walk(site) for name in files if name.endswith(".html")]
    pages = {path: Page(path) for path in names if not path.startswith(os.path.join(site, "api"))}
    found = [(path, link, broken(path, link, pages)) for path, page in sorted(pages.items()) for link in page.links]
    found = [f"{path}: {link}: {fault}" for path, link, fault in found if fault]
    print("\n".join(found) or f"{site}/index.html: {len(pages)} pages, all links lead somewhere")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
