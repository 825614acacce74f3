"""plot.py CUDA.json FOLDER : sizes.svg and timeline.svg of what tests/gpu/run.sh measured. Needs no GPU."""
import json
import math
import os
import sys

KINDS = ["product", "cublaslt", "product, indexed", "product, by groups", "product+softmax+topk"]
COLORS = ["#4269d0", "#efb118", "#ff725c", "#3ca951", "#a463f2", "#888888"]
WIDTH, HEIGHT, LEFT, TOP = 460, 300, 50, 30


def text(x, y, words, anchor="start", size=11):
    return '<text x="%.1f" y="%.1f" text-anchor="%s" font-size="%d">%s</text>' % (x, y, anchor, size, words)


def line(points, color, dashed=False):
    return '<polyline fill="none" stroke="%s" stroke-width="1.5"%s points="%s"/>' % (
        color, ' stroke-dasharray="4 3"' if dashed else "", " ".join("%.1f,%.1f" % p for p in points))


def page(width, height, body):
    return ('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif">'
            '<rect width="100%%" height="100%%" fill="white"/>%s</svg>\n' % (width, height, "\n".join(body)))


def panel(title, series, x0, y0):
    """Shares of a copy's bandwidth by the number of rows: series {(kind, dashed): [(rows, percent)]}."""
    every = [p for values in series.values() for p in values]
    left, right = (math.log2(f(p[0] for p in every)) for f in (min, max))
    right, high = max(right, left + 1), max(110, max(p[1] for p in every))
    w, h = WIDTH - LEFT - 20, HEIGHT - TOP - 40

    def place(rows, percent):
        return (x0 + LEFT + w * (math.log2(rows) - left) / (right - left), y0 + TOP + h * (1 - percent / high))
    body = [text(x0 + LEFT, y0 + 16, title),
            '<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#ccc"/>' % (x0 + LEFT, y0 + TOP, w, h)]
    for k in range(math.ceil(left), math.floor(right) + 1):
        rows = "%dk" % (2 ** k // 1024) if k >= 10 else str(2 ** k)
        body.append(text(place(2 ** k, 0)[0], y0 + HEIGHT - 22, rows, "middle"))
    for percent in (0, 50, 85, 100):
        body.append(text(x0 + LEFT - 6, place(1, percent)[1] + 4, "%d%%" % percent, "end"))
        body.append(line([place(2 ** left, percent), place(2 ** right, percent)], "#ddd"))
    for (kind, dashed), values in series.items():
        body.append(line([place(*p) for p in sorted(values)], COLORS[KINDS.index(kind)], dashed))
    for i, kind in enumerate(KINDS):
        body.append('<text x="%d" y="%d" font-size="10" fill="%s">%s</text>' %
                    (x0 + LEFT + w - 130, y0 + TOP + h - 12 * (len(KINDS) - i) + 4, COLORS[i], kind))
    return body


def sizes(results):
    """A panel for each model and row format: how near products come to a copy's bandwidth, dashed for 10 rows."""
    panels = {}
    for r in results:
        if r["what"] in KINDS and r["us"] > 0:
            lines = panels.setdefault((r["model"], r["dtype"]), {})
            lines.setdefault((r["what"], r["n"] > 1), []).append((r["rows"], 100 * r["floor_us"] / r["us"]))
    body = []
    for i, ((model, dtype), lines) in enumerate(panels.items()):
        body += panel("%s, rows of %s: share of a copy's bandwidth; dashed: 10 states" % (model, dtype), lines,
                      i % 2 * WIDTH, i // 2 * HEIGHT)
    return page(2 * WIDTH, (len(panels) + 1) // 2 * HEIGHT, body) if panels else None


def timeline(results):
    """Both streams of a draft cycle, bar by bar."""
    found = [r for r in results if r["what"] == "timeline"]
    if not found:
        return None
    spans = found[-1]["spans"]
    end, names = max(s["end_us"] for s in spans), []
    body = [text(10, 18, "a draft cycle of %s: two streams, microseconds" % found[-1]["model"], size=13)]
    for s in spans:
        if s["name"] not in names:
            names.append(s["name"])
        y, color = 40 if s["stream"] == "main" else 80, COLORS[names.index(s["name"]) % len(COLORS)]
        x, w = 60 + 820 * s["begin_us"] / end, 820 * (s["end_us"] - s["begin_us"]) / end
        body.append('<rect x="%.1f" y="%d" width="%.1f" height="26" fill="%s"><title>%s: %.1f to %.1f us</title></rect>'
                    % (x, y, max(w, 0.5), color, s["name"], s["begin_us"], s["end_us"]))
    body += [text(10, 58, "main"), text(10, 98, "side"), text(60, 126, "0"), text(880, 126, "%.0f us" % end, "end")]
    for i, name in enumerate(names):
        body.append('<text x="%d" y="148" font-size="11" fill="%s">%s</text>' % (60 + 130 * i, COLORS[i % len(COLORS)], name))
    return page(900, 160, body)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: plot.py CUDA.json FOLDER")
    with open(sys.argv[1]) as file:
        results = json.load(file)["benchmarks"]
    for name, draw in (("sizes.svg", sizes), ("timeline.svg", timeline)):
        picture = draw(results)
        if picture:
            with open(os.path.join(sys.argv[2], name), "w") as file:
                file.write(picture)
            print("plot.py: " + name)


main()
