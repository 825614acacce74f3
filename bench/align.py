#!/usr/bin/env python3
"""What bench/reproduce.sh makes of specrt-eval compare --align ... --json, from standard input:
    align.py stream [WINDOW] [-o plot.svg]   accept length over requests (EvoSpec, Fig. 2)
    align.py domains                         accept length by domain (Fig. 3)
    align.py beta                            divergence over requests by setting (Fig. 5)
    align.py memory                          bytes of what learns (Table 4)
    align.py peak COMMAND...                 greatest resident memory of a command, MiB"""
import json
import resource
import subprocess
import sys


def series(run):
    """Requests of each policy in order."""
    out = {}
    for r in run["requests"]:
        out.setdefault(r["policy"], []).append(r)
    return out


def accept(requests):
    cycles = sum(r["n_cycles"] for r in requests)
    return sum(r["n_emitted"] for r in requests) / cycles if cycles else float("nan")


def spans(requests, window):
    """Requests by windows that end where a domain does."""
    at = 0
    while at < len(requests):
        end = at + 1
        while end < len(requests) and end - at < window and requests[end]["domain"] == requests[at]["domain"]:
            end += 1
        yield at, end
        at = end


def learners(of):
    """Pairs (name, base) of drafters that learn and of the same policy with the drafter as it was."""
    return [(name, name.split(" (")[0]) for name in of if " (" in name]


def intervals(mine, base):
    """A 95% interval of the ratio of accept lengths, by the bootstrap over requests in pairs."""
    import random
    draw, n = random.Random(1), len(mine)
    ratios = []
    for _ in range(1000):
        picks = [draw.randrange(n) for _ in range(n)]
        ratios.append(accept([mine[i] for i in picks]) / accept([base[i] for i in picks]))
    ratios.sort()
    return ratios[25], ratios[974]


def stream(run, window, plot):
    of = series(run)
    names = list(of)
    width = max(len(n) for n in names)
    print(f"{'requests':12} {'domain':16}" + "".join(f" {n:>{max(len(n), 7)}}" for n in names))
    for at, end in spans(of[names[0]], window):
        print(f"{f'{at + 1}-{end}':12} {of[names[0]][at]['domain'][:16]:16}" +
              "".join(f" {accept(of[n][at:end]):{max(len(n), 7)}.3f}" for n in names))
    print()
    for name, base in learners(of):
        mine, theirs = of[name], of[base]
        half = min(50, len(mine) // 2)
        worst = min(accept(mine[i:i + 25]) / accept(theirs[i:i + 25])
                    for i in range(max(1, len(mine) - 24)))
        low, high = intervals(mine, theirs)
        seconds = sum(r["seconds"] for r in mine)
        print(f"{name:{width}}  all {accept(mine) / accept(theirs):.3f} x ({low:.3f}-{high:.3f}), "
              f"last {half} {accept(mine[-half:]) / accept(theirs[-half:]):.3f} x, "
              f"least over any 25 {worst:.3f} x; steps {sum(r['n_steps'] for r in mine)}, "
              f"{sum(r['update_ms'] for r in mine) / 10 / seconds:.1f}% of decoding time")
        tell_guard(mine, seconds)
        tell_changes(mine, theirs, window)
    if plot:
        draw_plot(of, plot)


def tell_guard(mine, seconds):
    looks = sum(r["n_looks"] for r in mine)
    if looks:
        print(f"    {looks} looks, {sum(r['look_ms'] for r in mine) / 10 / seconds:.1f}% of decoding time; newer "
              f"weights taken {sum(r['n_taken'] for r in mine)} times, gone back "
              f"{sum(r['n_returns'] for r in mine)}, learning begun again {sum(r['n_restarts'] for r in mine)}; "
              f"{sum(r['n_bad_steps'] for r in mine)} steps not finite")


def tell_changes(mine, theirs, window):
    """The first requests after each change of domain."""
    places = [i for i in range(1, len(mine)) if mine[i]["domain"] != mine[i - 1]["domain"]]
    ends = places[1:] + [len(mine)]
    parts = [f"{accept(mine[i:min(i + window, end)]) / accept(theirs[i:min(i + window, end)]):.3f} x to "
             f"{mine[i]['domain']}" for i, end in zip(places, ends)]
    if parts:
        print(f"    first {window} requests after each change: {', '.join(parts)}")


def by_domain(run):
    of = series(run)
    domains = list(dict.fromkeys(r["domain"] for r in next(iter(of.values()))))
    width = max(len(n) for n in of)
    print(f"{'accept length':{width}}" + "".join(f" {d[:14]:>14}" for d in domains) + f" {'all':>7}")
    for name, requests in of.items():
        print(f"{name:{width}}" + "".join(f" {accept([r for r in requests if r['domain'] == d]):14.3f}"
                                          for d in domains) + f" {accept(requests):7.3f}")


def draw_plot(of, path):
    """A moving mean over 20 requests as SVG."""
    colours = ["#777777", "#c0392b", "#2471a3", "#1e8449", "#9a7d0a", "#6c3483", "#212f3d"]
    smooth = {n: [accept(r[max(0, i - 19):i + 1]) for i in range(len(r))] for n, r in of.items()}
    low = min(min(v) for v in smooth.values()) * 0.98
    high = max(max(v) for v in smooth.values()) * 1.02
    n = max(len(v) for v in smooth.values())
    x = lambda i: 50 + 720 * i / max(1, n - 1)
    y = lambda v: 320 - 290 * (v - low) / (high - low)
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 380" font-family="sans-serif" '
           'font-size="12"><rect width="800" height="380" fill="white"/>']
    first = next(iter(of.values()))
    for i in range(1, len(first)):
        if first[i]["domain"] != first[i - 1]["domain"]:
            out.append(f'<line x1="{x(i):.1f}" x2="{x(i):.1f}" y1="20" y2="320" stroke="#aaa" '
                       f'stroke-dasharray="4"/><text x="{x(i) + 4:.1f}" y="30">{first[i]["domain"]}</text>')
    for v in (low, (low + high) / 2, high):
        out.append(f'<text x="8" y="{y(v) + 4:.1f}">{v:.2f}</text>')
    for k, (name, values) in enumerate(smooth.items()):
        points = " ".join(f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(values))
        colour = colours[k % len(colours)]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{points}"/>')
        out.append(f'<text x="{50 + 250 * (k % 3)}" y="{345 + 15 * (k // 3)}" fill="{colour}">{name}</text>')
    out.append('<text x="300" y="14">accept length, mean of 20 requests</text></svg>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(out))


def beta(run):
    of = series(run)
    print(f"{'':34} {'accept':>7} {'divergence, nats a position':>30} {'loss':>8}")
    print(f"{'':34} {'length':>7} {'first third':>14} {'last third':>15} {'(weighted)':>11}")
    for name, requests in of.items():
        third = len(requests) // 3
        def mean(part):
            n = sum(r["n_positions"] for r in part)
            return sum(r["divergence"] * r["n_positions"] for r in part if r["n_positions"]) / max(1, n)
        if " (" not in name:
            print(f"{name:34} {accept(requests):7.3f}")
            continue
        learnt = sum(r["n_learnt"] for r in requests)
        loss = sum((r["loss"] or 0) * r["n_learnt"] for r in requests) / max(1, learnt)
        print(f"{name:34} {accept(requests):7.3f} {mean(requests[:third]):14.3f} "
              f"{mean(requests[-third:]):15.3f} {loss:11.3f}")


def memory(run):
    kinds = ["parameters", "gradients", "moments", "drafting", "activations"]
    print(f"{'MiB':24}" + "".join(f" {k:>12}" for k in kinds) + f" {'all':>9}")
    totals = {}
    for row in run["rows"]:
        if row.get("align") and row["domain"] == "all":
            b = row["align"]["bytes"]
            totals[row["policy"]] = sum(b.values())
            print(f"{row['policy']:24}" + "".join(f" {b[k] / 2**20:12.2f}" for k in kinds) +
                  f" {sum(b.values()) / 2**20:9.2f}")
    for name, total in totals.items():
        for other, more in totals.items():
            if "(lora" in name and "(osd" in other:
                print(f"{name}: {100 * (1 - total / more):.1f}% less than {other}")


def main():
    verb, arguments = sys.argv[1], sys.argv[2:]
    if verb == "peak":
        subprocess.run(arguments, stdout=subprocess.DEVNULL, check=True)
        print(f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.1f}")
        return
    run = json.load(sys.stdin)
    if verb == "stream":
        plot = arguments[arguments.index("-o") + 1] if "-o" in arguments else None
        window = int(arguments[0]) if arguments and arguments[0].isdigit() else 25
        stream(run, window, plot)
    elif verb == "domains":
        by_domain(run)
    elif verb == "beta":
        beta(run)
    elif verb == "memory":
        memory(run)


if __name__ == "__main__":
    main()
