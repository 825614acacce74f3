#!/usr/bin/env python3
"""Accept length against bytes of the head that a pass of the drafter reads, one line for each method.

usage: frontier.py BUILD NAME TARGET DRAFT BUNDLE HEAD PROMPTS... SETTING=VALUE...
Records PROMPTS (JSON Lines, a task each) under the full vocabulary unless the traces are there, replays the policies
below, and prints a table with the worst task of each and one by task. frontier_plot.py draws the first. Settings
are those of published.py. Rivals: `full@head=q4_0` is the whole head in 4 bits, `ids<N` a list of the ids below N,
`centroid` FlashHead's idea, `sketch:1` a low rank alone, whose best row is drafted without an exact score beside
others."""
import json
import sys

import published


def rivals(pair, n_rows):
    """What others do instead of cutting rows by frequency or by the text."""
    probes = [f"centroid:{k}" for k in (8, 16, 32, 64, 128)] if "centroid" in pair.sections else []
    return ["full@head=q8_0", "full@head=q4_1", "full@head=iq4_nl", "full@head=q4_0", "sketch:1", f"sketch:1@keep={n_rows}", *probes]


def sizes_of(n_rows):
    return [2 ** k for k in range(9, 18) if 2 ** k < n_rows]


def ids_below(pair, build, n_rows, paths):
    """-> rows of lists of the first ids, by a bundle whose ranks are in the order of ids."""
    text, bundle = f"{pair.folder}/{pair.name}-ids.txt", f"{pair.folder}/{pair.name}-ids.specb"
    with open(text, "w") as f:
        f.writelines(f"{i}\n" for i in range(n_rows))
    pair.run([f"{build}/bin/specrt-bundle", "import", text, "--tokenizer", pair.models[1], "-q", "-f", "-o", bundle])
    listed, pair.bundle = pair.bundle, bundle
    rows = pair.replay(paths, [f"static:{n}" for n in sizes_of(n_rows)[3:]])
    pair.bundle = listed
    return {(p.replace("static:", "ids<"), d): row for (p, d), row in rows.items() if p != "oracle"}


def methods(n_rows):
    """Policies for a head of so many rows; those of a method stand together, from few bytes to many."""
    sizes = sizes_of(n_rows)
    small = f"{n_rows * 13 // 30}"  # of the rows, those that a small budget previews
    return [*(f"static:{n}" for n in sizes), *(f"static:{n}+retrieve" for n in sizes[1:7]),
            *(f"window:{n}@kver=8@positions=tree@min={n}" for n in sizes[:5]),
            "window+successor:256", *(f"static:{n}+window+successor:256" for n in sizes[:5:2]),
            f"sketch:64@signs=32@keep={n_rows // 64}@scan={small}", f"sketch:64@signs=32@keep={n_rows // 64}",
            f"sketch:128@signs=64@keep={n_rows // 32}", "sketch:128", f"sketch:256@keep={n_rows // 8}",
            f"sketch:512@keep={n_rows // 4}",
            f"window+successor:64+sketch:64@signs=32@keep={n_rows // 128}@scan={n_rows * 13 // 60}",
            f"window+successor:64+sketch:96@signs=64@keep={n_rows // 64}@scan={small}",
            f"window+successor:128+sketch:128@signs=64@keep={n_rows // 32}", "hybrid",
            f"window+successor:256+sketch:256@keep={n_rows // 8}"]


def share_of(rows, policy, domain):
    """Of the whole vocabulary's accept length: an estimate beside an estimate, which leave out the same last cycles."""
    whole = rows["oracle" if rows[policy, domain]["estimated"] else "full", domain]
    return rows[policy, domain]["accept_length"] / whole["accept_length"]


def measure(policies, rows, read):
    """-> [(policy, accept row, share of full, worst share, worst task, MB)]"""
    beside, row_bytes = read
    domains = [d for p, d in rows if p == "full"]
    out = []
    for p in policies:
        share = {d: share_of(rows, p, d) for d in domains}
        task = min((d for d in domains if d != "all"), key=share.get)
        row = rows[p, "all"]
        out.append((p, row, share["all"], share[task], task, (beside[p] + row_bytes * row["shortlist_rows"]) / 1e6))
    return out


def print_table(measured):
    head = ["policy", "accept length", "95%", "of full", "worst task", "", "rows", "MB a pass"]
    lines = [(f"`{p}`", published.accept(row), "{:.2f}-{:.2f}".format(*row["ci95"]["accept_length"]), f"{100 * share:.1f}%",
              f"{100 * worst:.1f}%", task, f"{row['shortlist_rows']:,.0f}", f"{mb:.2f}")
             for p, row, share, worst, task, mb in measured]
    published.table(head, lines)


def print_tasks(policies, rows):
    tasks = [d for p, d in rows if p == "full" and d != "all"]
    lines = [(f"`{p}`", *(f"{100 * share_of(rows, p, d):.1f}%" for d in tasks)) for p in policies]
    print("Of the full vocabulary's accept length, by task:\n")
    published.table(["policy", *tasks], lines)


def main():
    build, name, target, draft, bundle, head = sys.argv[1:7]
    pair = published.Pair(build, name, target, draft, bundle, head, published.prompts_named())
    info = json.loads(pair.run([f"{build}/bin/specrt-bundle", "info", bundle, "--json"]))
    n_rows = info["sketch"]["n_rows"]
    policies = ["full", *rivals(pair, n_rows), *methods(n_rows)]
    paths = pair.record("0", published.number("LIMIT", "8"))
    rows = pair.replay(paths, policies)
    beside, row = pair.choosing(policies)
    below = ids_below(pair, build, n_rows, paths)
    rows.update(below)
    ids = sorted({p for p, _ in below}, key=lambda p: int(p[4:]))
    beside.update((p, 0) for p in ids)
    policies += ids
    measured = measure(policies, rows, (beside, row))
    all_rows = rows["full", "all"]
    print(f"{all_rows['n_sequences']} sequences, {all_rows['n_tokens']} tokens\n")
    print_table(measured)
    print_tasks(policies, rows)


if __name__ == "__main__":
    main()
