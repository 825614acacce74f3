#!/usr/bin/env python3
"""Draw what frontier.py printed: the share of the accept length that each method retains, against the bytes that it reads.

usage: frontier_plot.py OUT.svg TITLE=FILE:SECTION...
One row per SECTION of a raw file, an output of frontier.py; left all prompts, right each policy's worst task. A method has a colour, a
marker and, where its line ends, a label; the text can be read 390 pixels wide."""
import math
import re
import sys

METHODS = [  # name, class, the policies that belong to it (the first that matches counts), the marker around 0 0
    ("hybrid", "hybrid", r"hybrid|window\+successor.*sketch", "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z"),
    ("low rank", "rank", r"sketch:1(@|$)", "M-3-1h6v2h-6z"),
    ("sketch", "sketch", r"sketch", "M-3-3h6v6h-6z"),
    ("8, 4 bits", "bits", r"full@head", "M-4-4h8v8h-8zM-2-2v4h4v-4z"),
    ("centroids", "centroid", r"centroid", "M-3.5-1.5h7v3h-7z"),
    ("successors", "window", r".*window\+successor", "M0-4L4 3H-4z"),
    ("microspec", "micro", r"window:", "M0-4.5L4.5 0L0 4.5L-4.5 0z"),
    ("retrieval", "retrieve", r"static:\d+\+retrieve", "M0 4L4-3H-4z"),
    ("static list", "static", r"static:\d+$", "M-1-4h2v3h3v2h-3v3h-2v-3h-3v-2h3z"),
    ("first ids", "ids", r"ids<", "M-1.5-3.5h3v7h-3z"),
]
LIGHT = {"static": "#6e6e6e", "retrieve": "#a06a00", "micro": "#0f7f78", "window": "#5f7a00", "sketch": "#5a55c0",
         "hybrid": "#c81e1e", "rank": "#9a4fb0", "bits": "#111", "centroid": "#1b6fb5", "ids": "#a0522d"}
DARK = {"static": "#a8a8a8", "retrieve": "#e0a83c", "micro": "#3fc9bf", "window": "#a9c93c", "sketch": "#9d98ff",
        "hybrid": "#ff6b63", "rank": "#d79cea", "bits": "#fff", "centroid": "#6db8f5", "ids": "#dd9a72"}
PANEL_W, PANEL_H, GAP, LEFT, TOP, RIGHT = 150, 150, 16, 40, 44, 84
LOW, HIGH, LEAST = 0.25, 200, 40


def number(cell):
    return float(cell.strip().strip("~%").replace(",", ""))


def read(path, section):
    """-> {class: [(MB, share of all, worst share)]}"""
    lines = {}
    with open(path) as f:
        rows = f.read().split(f"## {section}\n", 1)[1].split("\n## ", 1)[0].splitlines()
    for row in rows:
        cells = [c.strip() for c in row.strip().strip("|").split("|")]
        if not row.startswith("| `") or len(cells) != 8:
            continue
        method = next((c for _, c, pattern, _ in METHODS if re.match(pattern, cells[0].strip("`"))), None)
        if method:
            lines.setdefault(method, []).append((number(cells[7]), number(cells[3]), number(cells[4])))
    return {m: sorted(points) for m, points in lines.items()}


def style():
    def rules(colours, ink, grid, paper):
        lines = "".join(f".{c}{{stroke:{x}}}.d.{c}{{fill:{x}}}" for c, x in colours.items())
        return f"text{{fill:{ink}}}.g{{stroke:{grid}}}.p{{fill:{paper}}}{lines}"
    return ("<style>text{font:12px sans-serif}.b{font-weight:bold}.l{fill:none;stroke-width:1.5}.l.hybrid{stroke-width:3}"
            ".l.lead{stroke-width:.6}text.n{stroke:none}"
            + rules(LIGHT, "#222", "#ddd", "#fff") + "@media(prefers-color-scheme:dark){"
            + rules(DARK, "#eee", "#444", "#16181c") + "}</style>")


def panel(out, x0, y0, lines, which):
    def x(mb): return x0 + PANEL_W * math.log(mb / LOW) / math.log(HIGH / LOW)
    def y(share): return y0 + PANEL_H * (100 - max(share, LEAST)) / (100 - LEAST)
    for share in range(LEAST, 101, 20):
        out.append(f'<path class="g" d="M{x0} {y(share):.1f}h{PANEL_W}"/>')
        if x0 == LEFT:
            out.append(f'<text x="{x0 - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share}%</text>')
    for k in range(-2, 7, 2):
        out.append(f'<path class="g" d="M{x(2 ** k):.1f} {y0}v{PANEL_H}"/>')
        out.append(f'<text x="{x(2 ** k):.1f}" y="{y0 + PANEL_H + 14}" text-anchor="middle">{2 ** k:g}</text>')
    ends = []
    for name, method, _, marker in reversed(METHODS):
        points = [(x(p[0]), y(p[which])) for p in lines.get(method, [])]
        out.append(f'<polyline class="l {method}" points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"/>')
        out += [f'<path class="d {method}" transform="translate({a:.1f} {b:.1f})" d="{marker}"/>' for a, b in points]
        ends += [(points[-1], name, method)] if points else []
    return ends


def label(out, ends, x0, y0):
    """Names and markers beside the ends of lines, in the order of their heights, a line of text apart."""
    markers = {method: marker for _, method, _, marker in METHODS}
    last = y0 - 9
    for (a, b), name, method in sorted(ends, key=lambda end: (end[0][1], -end[0][0])):
        last = max(last + 13, b)
        out += [f'<path class="l lead {method}" d="M{a:.1f} {b:.1f}L{x0 + 6} {last:.1f}"/>',
                f'<path class="d {method}" transform="translate({x0 + 10} {last:.1f})" d="{markers[method]}"/>',
                f'<text class="d n {method}" x="{x0 + 17}" y="{last + 4:.1f}">{name}</text>']


def main():
    path, *given = sys.argv[1:]
    rows = [(title, read(*file.rsplit(":", 1))) for title, file in (g.split("=", 1) for g in given)]
    step = PANEL_H + TOP
    width, height = LEFT + 2 * (PANEL_W + GAP) - GAP + RIGHT, len(rows) * step + 44
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
           style(), f'<rect class="p" width="{width}" height="{height}"/>']
    for i, (title, lines) in enumerate(rows):
        y0 = i * step + TOP - 12
        for column, what in enumerate((f"{title}: all", "worst task")):
            x0 = LEFT + column * (PANEL_W + GAP)
            out.append(f'<text class="b" x="{x0}" y="{y0 - 8}">{what}</text>')
            ends = panel(out, x0, y0, lines, column + 1)
        label(out, ends, x0 + PANEL_W, y0)
    for i, text in enumerate(("accept length retained, by MB of the head that a draft step reads",
                              "(logarithmic; up and to the left is better)")):
        out.append(f'<text x="{width / 2:.0f}" y="{height - 26 + 16 * i}" text-anchor="middle">{text}</text>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main()
