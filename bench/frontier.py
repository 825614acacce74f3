#!/usr/bin/env python3
"""Accept length against bytes of the head that a pass of the drafter reads, one line for each method.

usage: frontier.py BUILD NAME TARGET DRAFT BUNDLE HEAD OUT.svg PROMPTS...
Records PROMPTS (JSON Lines, a task each) under the full vocabulary unless the traces are there, replays the policies
below, prints a table with the worst task of each, and draws OUT.svg. The environment is that of published.py."""
import json
import math
import os
import sys

import published



def methods(n_rows):
    """{method: policies, from few bytes to many} for a head of so many rows."""
    sizes = [2 ** k for k in range(9, 18) if 2 ** k < n_rows]
    small = f"{n_rows * 13 // 30}"  # of the rows, those that a small budget previews
    return {
        "static list": [f"static:{n}" for n in sizes],
        "list with retrieval": [f"static:{n}+retrieve" for n in sizes[1:7]],
        "microspec": [f"window:{n}@kpre=8@kver=8@positions=tree@min={n}" for n in sizes[:5]],
        "window, successors": ["window+successor:256"] + [f"static:{n}+window+successor:256" for n in sizes[:5:2]],
        "sketch": [f"sketch:64@signs=32@keep={n_rows // 64}@scan={small}", f"sketch:64@signs=32@keep={n_rows // 64}",
                   f"sketch:128@signs=64@keep={n_rows // 32}", "sketch:128", f"sketch:256@keep={n_rows // 8}",
                   f"sketch:512@keep={n_rows // 4}"],
        "hybrid": [f"window+successor:64+sketch:64@signs=32@keep={n_rows // 128}@scan={n_rows * 13 // 60}",
                   f"window+successor:64+sketch:96@signs=64@keep={n_rows // 64}@scan={small}",
                   f"window+successor:128+sketch:128@signs=64@keep={n_rows // 32}", "hybrid",
                   f"window+successor:256+sketch:256@keep={n_rows // 8}"],
    }


COLOURS = ["#7a7a7a", "#b58900", "#2aa198", "#859900", "#6c71c4", "#dc322f"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 780, 430, 62, 175, 30, 50


def measure(pair, policies, rows, read):
    """-> [(policy, accept row, share of full, worst share, worst task, MB)]"""
    beside, row_bytes = read
    full = {d: rows["full", d]["accept_length"] for p, d in rows if p == "full"}
    out = []
    for p in policies:
        share = {d: rows[p, d]["accept_length"] / full[d] for d in full}
        task = min((d for d in full if d != "all"), key=share.get)
        row = rows[p, "all"]
        out.append((p, row, share["all"], share[task], task, (beside[p] + row_bytes * row["active_rows"]) / 1e6))
    return out


def print_table(measured):
    head = ["policy", "accept length", "95%", "of full", "worst task", "", "rows", "MB a pass"]
    lines = [(f"`{p}`", published.accept(row), "{:.2f}-{:.2f}".format(*row["ci95"]["accept_length"]), f"{100 * share:.1f}%",
              f"{100 * worst:.1f}%", task, f"{row['active_rows']:,.0f}", f"{mb:.2f}")
             for p, row, share, worst, task, mb in measured]
    published.table(head, lines)


def text(x, y, words, **style):
    style = " ".join(f'{k.replace("_", "-")}="{v}"' for k, v in style.items())
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{words}</text>'


def draw(path, lines, measured, title):
    by_policy = {p: (mb, 100 * share) for p, _, share, _, _, mb in measured}
    low, high, least = 0.25, 256, 50
    def x(mb): return LEFT + (WIDTH - LEFT - RIGHT) * math.log(mb / low) / math.log(high / low)
    def y(share): return TOP + (HEIGHT - TOP - BOTTOM) * (100 - max(share, least)) / (100 - least)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>', text(LEFT, 18, title, font_weight="bold", fill="#222")]
    for share in range(least, 101, 10):
        out += [f'<path d="M{LEFT} {y(share):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>',
                text(LEFT - 8, y(share) + 4, f"{share}%", text_anchor="end", fill="#444")]
    for k in range(-2, 9, 2):
        out += [f'<path d="M{x(2 ** k):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#eee"/>',
                text(x(2 ** k), HEIGHT - BOTTOM + 18, f"{2 ** k:g}", text_anchor="middle", fill="#444")]
    out.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "megabytes of the head that one draft step reads",
                    text_anchor="middle", fill="#222"))
    for i, (method, policies) in enumerate(lines.items()):
        points = sorted(by_policy[p] for p in policies if p in by_policy)
        if not points:
            continue
        line = " ".join(f"{x(mb):.1f},{y(share):.1f}" for mb, share in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[i]}" stroke-width="2"/>')
        out += [f'<circle cx="{x(mb):.1f}" cy="{y(share):.1f}" r="3" fill="{COLOURS[i]}"/>' for mb, share in points]
        out += [f'<path d="M{WIDTH - RIGHT + 14} {TOP + 20 * i + 6}h18" stroke="{COLOURS[i]}" stroke-width="2"/>',
                text(WIDTH - RIGHT + 38, TOP + 20 * i + 10, method, fill="#222")]
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n</svg>\n")


def main():
    build, name, target, draft, bundle, head, svg, *prompts = sys.argv[1:]
    pair = published.Pair(build, name, target, draft, bundle, head, prompts)
    info = json.loads(pair.run([f"{build}/bin/specrt-bundle", "info", bundle, "--json"]))
    lines = methods(info["sketch"]["n_rows"])
    policies = ["full", *dict.fromkeys(p for line in lines.values() for p in line)]
    rows = pair.replay(pair.record("0", published.number("LIMIT", "8")), policies)
    measured = measure(pair, policies, rows, pair.choosing(policies))
    all_rows = rows["full", "all"]
    print(f"{all_rows['n_sequences']} sequences, {all_rows['n_tokens']} tokens\n")
    print_table(measured)
    draw(svg, lines, measured, os.environ.get("TITLE", "Accept length kept, of the full vocabulary's"))


if __name__ == "__main__":
    main()
