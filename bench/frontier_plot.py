#!/usr/bin/env python3
"""Draw what frontier.py printed: the share of the accept length that each method retains, against the bytes that it reads.

usage: frontier_plot.py OUT.svg TITLE=FILE...
One column per FILE, a raw output of frontier.py; above all prompts, below each policy's worst task."""
import math
import re
import sys

METHODS = [  # name, class, the policies that belong to it; the first that matches counts
    ("hybrid", "hybrid", r"hybrid|window\+successor.*sketch"),
    ("sketch", "sketch", r"sketch"),
    ("successors", "window", r".*window\+successor"),
    ("microspec", "micro", r"window:"),
    ("list, retrieval", "retrieve", r"static:\d+\+retrieve"),
    ("static list", "static", r"static:\d+$"),
]
LIGHT = {"static": "#6e6e6e", "retrieve": "#a06a00", "micro": "#0f7f78", "window": "#5f7a00", "sketch": "#5a55c0",
         "hybrid": "#c81e1e"}
DARK = {"static": "#a8a8a8", "retrieve": "#e0a83c", "micro": "#3fc9bf", "window": "#a9c93c", "sketch": "#9d98ff",
        "hybrid": "#ff6b63"}
PANEL_W, PANEL_H, GAP, LEFT, TOP = 250, 170, 30, 52, 64
LOW, HIGH, LEAST = 0.25, 160, 40


def number(cell):
    return float(cell.strip().strip("~%").replace(",", ""))


def read(path):
    """-> {class: [(MB, share of all, worst share)]}"""
    lines = {}
    with open(path) as f:
        for row in f:
            cells = [c.strip() for c in row.strip().strip("|").split("|")]
            if not row.startswith("| `") or len(cells) != 8:
                continue
            method = next((c for _, c, pattern in METHODS if re.match(pattern, cells[0].strip("`"))), None)
            if method:
                lines.setdefault(method, []).append((number(cells[7]), number(cells[3]), number(cells[4])))
    return {m: sorted(points) for m, points in lines.items()}


def style():
    def rules(colours, ink, grid, paper):
        lines = "".join(f".{c}{{stroke:{x}}}.d.{c}{{fill:{x}}}" for c, x in colours.items())
        return f"text{{fill:{ink}}}.g{{stroke:{grid}}}.p{{fill:{paper}}}{lines}"
    return ("<style>text{font:12px sans-serif}.b{font-weight:bold}.l{fill:none;stroke-width:1.5}.l.hybrid{stroke-width:3}"
            + rules(LIGHT, "#222", "#ddd", "#fff") + "@media(prefers-color-scheme:dark){"
            + rules(DARK, "#eee", "#444", "#16181c") + "}</style>")


def panel(out, x0, y0, lines, which, last):
    def x(mb): return x0 + PANEL_W * math.log(mb / LOW) / math.log(HIGH / LOW)
    def y(share): return y0 + PANEL_H * (100 - max(share, LEAST)) / (100 - LEAST)
    for share in range(LEAST, 101, 20):
        out.append(f'<path class="g" d="M{x0} {y(share):.1f}h{PANEL_W}"/>')
        if x0 == LEFT:
            out.append(f'<text x="{x0 - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share}%</text>')
    for k in range(-2, 7, 2):
        out.append(f'<path class="g" d="M{x(2 ** k):.1f} {y0}v{PANEL_H}"/>')
        if last:
            out.append(f'<text x="{x(2 ** k):.1f}" y="{y0 + PANEL_H + 16}" text-anchor="middle">{2 ** k:g}</text>')
    for _, method, _ in reversed(METHODS):
        points = [(x(p[0]), y(p[which])) for p in lines.get(method, [])]
        out.append(f'<polyline class="l {method}" points="' + " ".join(f"{a:.1f},{b:.1f}" for a, b in points) + '"/>')
        out += [f'<circle class="d {method}" cx="{a:.1f}" cy="{b:.1f}" r="2.5"/>' for a, b in points]


def main():
    path, *given = sys.argv[1:]
    columns = [(title, read(file)) for title, file in (g.split("=", 1) for g in given)]
    width = LEFT + len(columns) * (PANEL_W + GAP)
    height = TOP + 2 * (PANEL_H + GAP) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">', style(),
           f'<rect class="p" width="{width}" height="{height}"/>']
    for i, (name, method, _) in enumerate(METHODS):
        at = LEFT + i * (width - LEFT - GAP) / len(METHODS)
        out += [f'<path class="l {method}" d="M{at:.1f} 14h18"/>', f'<text x="{at + 23:.1f}" y="18">{name}</text>']
    for i, (title, lines) in enumerate(columns):
        x0 = LEFT + i * (PANEL_W + GAP)
        for row, what in enumerate(("all prompts", "worst task")):
            y0 = TOP + row * (PANEL_H + GAP)
            out.append(f'<text class="b" x="{x0}" y="{y0 - 8}">{title}: {what}</text>')
            panel(out, x0, y0, lines, row + 1, row == 1)
    out.append(f'<text x="{(LEFT + width - GAP) / 2:.0f}" y="{height - 8}" text-anchor="middle">accept length retained, of the full '
               "vocabulary's, by megabytes of the head that one draft step reads (up and to the left is better)</text>")
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n</svg>\n")


if __name__ == "__main__":
    main()
