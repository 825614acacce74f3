#!/usr/bin/env python3
"""faults.py FOLDER : plants one fault at a time in a copy of the PTX for compute_90 and runs a twin on it.

Each must be named by a report of the executor or, where the fault is one of numbers, by the twin's own
comparison (WRONG). The harness compiles the source, so it can see none of them. Without a fault the same
twins pass, in run.sh. Closes with a tally."""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

WRONG = r"[1-9]\d* failed"
FORGET = "the host"  # no kernel: the stand-in for the runtime forgets events (forget=1)
TILES = "head_tilesIL12specrt_dtype1ELi2ELb0"
EXACT = "head_tilesIL12specrt_dtype1ELi2ELb1"
STEP = r"(ld\.param\.u64\s+(%rd\d+), \[%rd\d+\+{}\];)"  # of a product
ZERO = r"\1 mov.u64 \2, 0;"
WIDE = r"mul\.lo\.s64\s+(%rd\d+), (%rd\d+), (%rd\d+);"
CUT = r"mul.lo.s64 \1, \2, \3; and.b64 \1, \1, 4294967295;"
LOADED = r"(ld\.global\.u32\s+(%r\d+), \[[^\]]*\];)"
CUT_LOADED = r"\1 and.b32 \2, \2, 65535;"
# name, kernel, what to find in it, what to put there, which of those found, twin, what must be said
FAULTS = [
    ("a wait for copies that is too short", TILES, r"(cp\.async\.wait_group) \d+", r"\1 4", 1, "logits",
     "cp.async has yet to bring"),
    ("a copy of 16 bytes from half of 16", TILES, r"(cp\.async\.c\w\.[^\[]*\[[^\]]*\], \[%rd\d+)\]", r"\1+8]", 1,
     "logits", "misaligned address of cp.async"),
    ("a copy of 16 bytes to half of 16", TILES, r"(cp\.async\.c\w\.[^\[]*\[%r\d+)\]", r"\1+8]", 1, "logits",
     "misaligned address of cp.async"),
    ("a copy that no group holds", TILES, r"cp\.async\.commit_group;", "", 1, "logits", "cp.async"),
    ("a copy past what is allocated", TILES, r"(cp\.async\.c\w\.[^\[]*\[[^\]]*\], \[%rd\d+)\]",
     r"\1+1073741824]", 1, "logits", "out of bounds"),
    ("operands of a product swapped", TILES,
     r"(mma\.sync\.aligned\.m16n8k16\S+ \{[^}]*\}, )\{(%r\d+), (%r\d+),", r"\1{\3, \2,", 1, "logits", WRONG),
    ("sums of a product taken from another", TILES,
     r"(mma\.sync\.aligned\.m16n8k16\S+ \{)(%f\d+), (%f\d+)", r"\1\3, \2", 1, "logits", WRONG),
    ("a barrier left out", "shortlist_rank_kernel", r"bar\.sync\s+0;", "", 1, "topk", "shared memory"),
    ("a later barrier left out", "shortlist_rank_kernel", r"bar\.sync\s+0;", "", 2, "topk", "race"),
    ("a barrier for even threads alone", "shortlist_rank_kernel", r"bar\.sync\s+0;",
     "{ .reg .pred odd; .reg .b32 low; mov.u32 low, %tid.x; and.b32 low, low, 1; "
     "setp.eq.s32 odd, low, 0; @odd bar.sync 0; }", 2, "topk", "race"),
    ("a mask of half a warp", "shortlist_rank_kernel", r"(shfl\.sync\.\w+\.b32[^;]*), [-%\w]+;", r"\1, 65535;", 1, "topk",
     "not in its own mask"),
    ("a mask that names a lane which has returned", "shortlist_rank_kernel", r"shfl\.sync\.bfly",
     "{ .reg .pred gone; .reg .b32 id; mov.u32 id, %tid.x; setp.eq.s32 gone, id, 3; @gone exit; } shfl.sync.bfly", 1,
     "topk", "returned"),
    ("a shuffle of another kind", "shortlist_rank_kernel", r"shfl\.sync\.up", "shfl.sync.down", 1, "topk", WRONG),
    ("a load at half of its alignment", "pack_rowsIj", r"(ld\.global\.u32\s+%r\d+, \[%rd\d+)\]", r"\1+2]", 1,
     "pack", "misaligned address"),
    ("a load beyond the end", "pack_rowsI5uint4", r"(ld\.global\S*v4\.u32\s+\{[^}]*\}, \[%rd\d+)\]", r"\1+1048576]", 1,
     "pack", "out of bounds"),
    ("a shared index past the end", "shortlist_rank_kernel", r"(ld\.shared\.u64\s+%rd\d+, \[%r\d+)\]", r"\1+65536]", 1,
     "topk", "out of bounds"),
    ("shared memory as if it were a thread's own", "shortlist_rank_kernel", r"st\.shared\.u64", "st.local.u64", 1, "topk",
     "out of bounds"),
    ("keys read where they do not fit", "shortlist_rank_kernel", r"selp\.b64\s+(%rd\d+), (%rd\d+), (%rd\d+)",
     r"selp.b64 \1, \3, \2", 1, "topk", "out of bounds"),
    ("a result that is never stored", TILES, r"st\.global\.f32\s+\[[^;]*;", "", 1, "logits", WRONG),
    ("a comparison turned around", "shortlist_rank_kernel", r"setp\.gt\.u32", "setp.lt.u32", 1, "topk", WRONG),
    ("a difference of f16 the other way", "head_tilesIL12specrt_dtype8ELi2ELb0", r"sub\.rn\.f16x2 (%r\d+), (%r\d+), (%r\d+)",
     r"sub.rn.f16x2 \1, \3, \2", 1, "logits", WRONG),
    ("bytes taken from the wrong word", "head_tilesIL12specrt_dtype8ELi2ELb0", r"prmt\.b32\s+(%r\d+), (%r\d+), (%r\d+)",
     r"prmt.b32 \1, \3, \2", 1, "logits", WRONG),
    ("more threads than the bounds allow", "pack_rowsI5uint4", r"\.maxntid\s+\d+", ".maxntid 32", 0, "pack",
     "launch bounds"),
    ("a packed row's offset cut to 32 bits", "pack_rowsI5uint4", WIDE, CUT, 1, "real --filter whole_far", "uninitialised"),
    ("a head row's offset cut to 32 bits", "head_tilesIL12specrt_dtype1ELi2ELb1", WIDE, CUT, 3, "real --filter whole_far",
     "uninitialised"),
    ("a block's first id cut to 16 bits", "verify_best_kernel", r"shl\.b32\s+(%r\d+), (%r\d+), 12;",
     r"shl.b32 \1, \2, 12; and.b32 \1, \1, 65535;", 1, "whole --filter routers", WRONG),
    ("a successor's id cut to 16 bits", "successor_kernel", LOADED, CUT_LOADED, 4, "whole --filter routers", WRONG),
    ("a cluster member's id cut to 16 bits", "cluster_list_kernel", LOADED, CUT_LOADED, 9, "whole --filter routers",
     WRONG),
    ("a place of a sketch cut to 16 bits", "sketch_name_all", LOADED, CUT_LOADED, 2, "whole --filter sketch", WRONG),
    ("logits to add to, one column further", EXACT, r"(ld\.global\.f32\s+%f\d+, \[%rd\d+)\]", r"\1+4]", 1,
     "markov --filter blocks", WRONG),
    ("logits of the first sequence for all", EXACT, STEP.format(344), ZERO, 1, "markov --filter blocks", WRONG),
    ("logits of the first state for all", EXACT, STEP.format(352), ZERO, 1, "markov --filter passes", WRONG),
    ("a draw from what the first sequence has", "verify_propose_kernel",
     r"(ld\.param\.u64\s+(%rd\d+), \[\w+_param_1\];)", ZERO, 1, "block --filter sampled", WRONG),
    ("a block that counts as passes", "tree_rank_kernel", r"st\.global\.u32\s+\[%rd\d+\+28\][^;]*;", "", 1,
     "markov --filter blocks", WRONG),
    ("no barrier between keys of a level and their ranks", "tree_block_kernel", r"bar\.sync\s+0;", "", 21,
     "block --filter twins", "race"),
    ("no barrier between a block's levels", "tree_block_kernel", r"bar\.sync\s+0;", "", 23, "block --filter twins",
     "race"),
    ("a confidence compared the other way", "tree_block_kernel", r"setp\.ge\.f32", "setp.lt.f32", 1,
     "block --filter confidence", WRONG),
    ("no barrier between chosen nodes and what is written", "tree_block_kernel", r"bar\.sync\s+0;", "", 26,
     "block --filter twins", "race"),
    ("holders counted by a load and a store", "shared_count_kernel",
     r"atom\.global\.add\.u32\s+(%r\d+), \[(%rd\d+)\], 1;",
     r"ld.global.u32 \1, [\2]; { .reg .b32 more; add.s32 more, \1, 1; st.global.u32 [\2], more; }", 1,
     "block --filter twins", "race"),
    ("shared rows placed before all have counted", "shared_choose_kernel", r"bar\.sync\s+0;", "", 1,
     "block --filter twins", "out of bounds"),
    ("a mask of shared rows from half a warp", "shared_split_kernel",
     r"vote\.sync\.ballot\.b32\s+(%r\d+), (%p\d+), [-%\w]+;", r"vote.sync.ballot.b32 \1, \2, 65535;", 1,
     "block --filter twins", "not in its own mask"),
    ("candidates listed before all have counted", "verify_candidates_kernel", r"bar\.sync\s+0;", "", 3, "filter",
     WRONG),
    ("candidates sorted where others still read", "verify_candidates_kernel", r"bar\.sync\s+0;", "", 5, "filter",
     "race"),
    ("a filter that reads what others still write", "verify_filter_kernel", r"bar\.sync\s+0;", "", 2, "filter", "race"),
    ("streams that wait for no event", FORGET, "", "", 0, "session --filter greedy", "no event orders them"),
]


def planted(text, kernel, pattern, by, nth):
    """The PTX with the nth place of a kernel changed; 0: at the end of its head, what is found or not."""
    entries = [m for m in re.finditer(r"\.entry (\S+?)\(", text) if re.search(kernel, m.group(1))]
    for entry in entries:
        end = text.find(".entry", entry.end())
        body = text[entry.start():end if end > 0 else len(text)]
        found = list(re.finditer(pattern, body))
        if nth == 0 and not found:
            brace = entry.start() + body.index("\n{")
            return text[:brace] + "\n" + by + ", 1, 1" + text[brace:]
        if len(found) >= max(nth, 1):
            m = found[max(nth, 1) - 1]
            start = entry.start()
            return text[:start + m.start()] + m.expand(by) + text[start + m.end():]
    return None


def plant(folder, text, fault):
    """Runs the twin on the fault. @return why it counts as not named, or None."""
    _, kernel, pattern, by, nth, twin, said = fault
    changed = text if kernel == FORGET else planted(text, kernel, pattern, by, nth)
    if changed is None:
        return "no such place: change faults.py with the kernel"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx", encoding="utf-8") as f:
        f.write(changed)
        f.flush()
        env = dict(os.environ, SPECRT_PTX=f.name + (",forget=1" if kernel == FORGET else ""))
        command = os.path.join(folder, "test_gpu_" + twin).split() + ["long=1"] * ("--filter whole" in twin)
        done = subprocess.run(command, env=env, check=False, timeout=300,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode and re.search(said, done.stdout):
        return None
    return f'expected "{said}", found {done.stdout.strip()[-300:]}'


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "specrt_kernels.compute_90.ptx"), encoding="utf-8") as f:
        text = f.read()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(lambda fault: plant(folder, text, fault), FAULTS))
    for fault, why in zip(FAULTS, answers):
        if why is not None:
            print(f"FAIL {fault[0]}: {why}")
    n_failed = len(FAULTS) - answers.count(None)
    print(f"{len(FAULTS) - n_failed} passed, {n_failed} failed, 0 skipped")
    return n_failed > 0


sys.exit(main())
