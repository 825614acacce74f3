#!/usr/bin/env python3
"""cover.py FOLDER : how much of each kernel's PTX has run, by files of run.sh, and which lines of the
source no kernel has run. Instructions of a function count in each kernel that calls it."""

import collections
import os
import re
import sys


def plain_name(kernel):
    """_Z23specrt__sketch_name_all19specrt__cuda_sketch without its parameters, _Z1fILi2EEvi as f<2>."""
    length, rest = re.match(r"_Z(\d+)(.*)", kernel).groups()
    name, rest = rest[:int(length)], rest[int(length):]
    values = re.findall(r"(\d+)E", rest.split("EEv")[0] + "E") if rest.startswith("I") else []
    return name + ("<" + ", ".join(values) + ">" if values else "")


def main():
    ran = {}
    for name in os.listdir(sys.argv[1]):
        with open(os.path.join(sys.argv[1], name), encoding="utf-8") as f:
            for at, has_run in (line.rsplit(" ", 1) for line in f):
                ran[at] = ran.get(at, 0) | int(has_run)
    kernels, lines = collections.defaultdict(list), collections.defaultdict(int)
    for at, has_run in ran.items():
        kernel, _, place = at.split(" ")
        kernels[plain_name(kernel)].append(has_run)
        lines[place] |= has_run
    for kernel, all_of in sorted(kernels.items()):
        print(f"{kernel:<36} {sum(all_of):6} of {len(all_of):6}  {sum(all_of) / len(all_of):4.0%}")
    print(f"instructions that ran: {sum(ran.values())} of {len(ran)}, {sum(ran.values()) / len(ran):.0%}")
    never = sorted(place for place, has_run in lines.items() if not has_run)
    print("lines that no kernel ran: " + (", ".join(os.path.basename(place) for place in never) or "none"))


main()
