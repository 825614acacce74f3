#!/usr/bin/env python3
"""mutate.py [SECTION...] : do the tests notice when the code is wrong?

Changes one operator of the source at a time, compiles the changed file, and runs the tests of that section
alone, the quick ones first. A mutant that no test notices survives: a test is missing there, or the change has no
effect. With --sanitize survivors are tried again with the changed file under AddressSanitizer. Mutants that have
no effect are listed in tests/mutants.txt, each with its reason, and are not drawn.

`make mutate` builds what is linked here and passes the compiler and its flags in the environment. The same
seed draws the same mutants. The exit code is 1 when fewer than --least percent were killed. Verdicts are kept in
BUILD/mutate/verdicts.json: one holds while the changed file and the test that killed it (of a survivor: all
tests of its section) are what they were, so that after a new test only survivors are tried again.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

# Files of src/ are of the section that their name begins with; these of another one.
SECTION_OF = {"reader": "trace", "writer": "trace"}
ELSEWHERE = ("arm64", "wasm")  # in the names of files that this machine does not run
# In names of functions, and as Linux calls the instruction set that they need: x86 machines differ in these.
INSTRUCTION_SETS = {"avx512": "avx512f", "vnni": "avx512_vnni"}

# Command-line tests that take long, or wait for something else.
CLI_TOO_SLOW = {"bench_compare", "bench_seen", "calibrate_make", "cograph_full_disk", "models", "specrt_ask",
                "specrt_own_pair", "specrt_own_stop", "tools_mpi"}


# --- what can be changed ---

class Mutant(NamedTuple):
    """One change. `before` and `after` are whole lines, without indentation: they name it in mutants.txt."""
    section: str
    path: str
    line: int
    start: int
    end: int
    text: str
    function: str
    before: str
    after: str

    def key(self):
        return self.section, self.function, self.before, self.after

    def __str__(self):
        return (f"{self.path}:{self.line}: {self.section} {self.function}\n"
                f"    - {self.before}\n    + {self.after}")


TOKEN = re.compile(
    r"(?P<skip>/\*.*?\*/|//[^\n]*|^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*|\s+)"
    r"|(?P<text>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)"
    r"|(?P<sign><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)",
    re.S | re.M)
SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
         "+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=", "<<": ">>", ">>": "<<"}
ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "&": "|", "|": "&", "^": "|"}
NEGATIONS = {"true": "false", "false": "true", "0": "1", "1": "0"}


# The lesser or greater of two, written out: both are the same number where they are equal.
SIDE = r"((?:->|[^?:;,=&|()<>!])+?)"
CAST = r"(?:\([a-z]\w* ?\**\))?"
CLAMPS = [re.compile(rf"\bif \((?:[^;{{}}]* (?:&&|\|\|) )?{SIDE} ([<>]=?) {SIDE}\) (?:\1 = {CAST}\3|\3 = {CAST}\1);"),
          re.compile(rf"(?:[=(,?:]|return)\s*{CAST}{SIDE} ([<>]=?) {SIDE}\s*"
                     rf"\?\s*(?:{CAST}\1\s*:\s*{CAST}\3|{CAST}\3\s*:\s*{CAST}\1)\s*[;,)]")]


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def tokens_of(source):
    return [Token(m.lastgroup, m.group(), m.start(), m.end()) for m in TOKEN.finditer(source)
            if m.lastgroup != "skip"]


def bodies(tokens):
    """(name, tokens) of each function: what stands in the braces after a parameter list at the top level."""
    depth, name, first, i = 0, "", None, 0
    while i < len(tokens):
        text = tokens[i].text
        if text == "{" and not (depth == 0 and tokens[i - 1].kind == "text"):  # extern "C" {
            if depth == 0 and tokens[i - 1].text == ")":
                first, name = i + 1, function_before(tokens, i)
            depth += 1
        elif text == "}" and depth > 0:
            depth -= 1
            if depth == 0 and first is not None:
                yield name, tokens[first:i]
                first = None
        i += 1


def function_before(tokens, brace):
    """The name before the parameter list that ends at a brace."""
    depth = 0
    for i in range(brace - 1, 0, -1):
        depth += (tokens[i].text == ")") - (tokens[i].text == "(")
        if depth == 0:
            return tokens[i - 1].text
    return "?"


def closing(tokens, i):
    """The place of the parenthesis that closes the next one from i on."""
    depth = 0
    for j in range(i, len(tokens)):
        depth += (tokens[j].text == "(") - (tokens[j].text == ")")
        if depth == 0 and tokens[j].text == ")":
            return j
    return len(tokens)


def changes(source, tokens):
    """(start, end, replacement) of all changes of a function."""
    quiet = 0  # up to here: an assertion, or what is fetched into the cache ahead
    for i, token in enumerate(tokens):
        before = tokens[i - 1] if i else token
        after = tokens[i + 1] if i + 1 < len(tokens) else token
        operand = before.kind in ("word", "number") and before.text not in ("return", "case", "else") \
            or before.text in (")", "]")
        spaced = source[token.start - 1].isspace() and source[token.end].isspace()
        if re.fullmatch(r"\w*(assert|prefetch)", token.text, re.I):
            quiet = closing(tokens, i + 1)
        if i < quiet:
            continue
        if token.text in SWAPS and operand and spaced:
            yield token.start, token.end, SWAPS[token.text]
        elif token.text in ARITHMETIC and operand and spaced:
            yield token.start, token.end, ARITHMETIC[token.text]
            if token.text in "+-" and after.text == "1":
                yield token.start, after.end, ""
        elif token.text == "!":
            yield token.start, token.end, ""
        elif token.text in NEGATIONS and before.text == "return" and after.text == ";":
            yield token.start, token.end, NEGATIONS[token.text]
        elif token.text in ("break", "continue") and after.text == ";":
            yield token.start, token.end, ""


def mutants_of(section, path):
    """All mutants of a file."""
    source = Path(path).read_text()
    clamps = {m.start(2) for clamp in CLAMPS for m in clamp.finditer(source)}
    found = []
    for function, tokens in bodies(tokens_of(source)):
        for start, end, text in changes(source, tokens):
            if start in clamps and text[:1] in "<>":
                continue
            line = source.count("\n", 0, start) + 1
            left, right = source.rfind("\n", 0, start) + 1, source.find("\n", end)
            found.append(Mutant(section, path, line, start, end, text, function, source[left:right].strip(),
                                (source[left:start] + text + source[end:right]).strip()))
    return found


def without_change(mutant):
    return mutant._replace(text=Path(mutant.path).read_text()[mutant.start:mutant.end])


# --- sections and their tests ---

class Section(NamedTuple):
    name: str
    mutants: list
    tests: list   # paths of unit tests, then of command-line tests
    tool: str     # or ""


def unit_tests(folder):
    return sorted(str(p) for p in Path("tests", folder).glob("test_*.c"))


def cli_tests(tool=""):
    """Those that run a tool; without one all."""
    named = re.compile(rf"(?<![\w/-]){tool}(?![\w-])")
    return sorted(str(p) for p in Path("tests/cli").glob("*.sh")
                  if p.stem != "run" and p.stem not in CLI_TOO_SLOW and named.search(p.read_text()))


def runtime_sections():
    """Every test of the runtime, since one reaches a section through those above it."""
    files = defaultdict(list)
    for path in sorted(Path("src").glob("*/*.[ch]")):
        stem = path.stem.split("_")[0]
        if path.parent.name != "cuda" and not path.stem.endswith(ELSEWHERE):
            files[SECTION_OF.get(stem, stem)].append(path)
    for name, paths in files.items():
        mutants = [m for path in paths for m in mutants_of(name, str(path))]
        if mutants:
            yield Section(name, mutants, unit_tests("specrt"), "")


def library_sections():
    """The tests of a library's folder, then the command line, which every library reaches."""
    for folder in sorted(Path("lib").iterdir()) + [Path("engine")]:
        name = str(folder)
        mutants = [m for p in sorted(folder.rglob("*.c")) for m in mutants_of(name, str(p))]
        yield Section(name, mutants, unit_tests(folder.name) + cli_tests(), "")


def tool_sections():
    """Unit tests that include a tool's headers, and command-line tests that run it."""
    for folder in sorted(Path("tools").iterdir()):
        if not (folder / "main.c").exists() or folder.name == "specrt-llama":  # needs llama.cpp
            continue
        name = str(folder)
        mutants = [m for p in sorted(folder.rglob("*.c")) for m in mutants_of(name, str(p))]
        tests = [str(t) for t in sorted(Path("tests").glob("*/test_*.c")) if f'"{name}/' in t.read_text()]
        yield Section(name, mutants, tests + cli_tests(folder.name), folder.name)


def listed_equivalents(path):
    """Keys of tests/mutants.txt, whose form its first lines explain. "*" stands for any line."""
    keys, head, before, after = {}, None, None, None
    for line in Path(path).read_text().split("\n"):
        if line.startswith("#"):
            continue
        if line.startswith("- "):
            before = line[2:]
        elif line.startswith("+"):
            after = line[2:]
        elif line.startswith("  ") and after is not None:
            keys[(*head, before, after)] = line.strip()
        elif line.strip():
            head, after = tuple(line.split()), None
    return keys


# --- one mutant ---

def limited(memory, seconds):
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def run(command, seconds, memory=8 << 30):
    """The exit code, or None where the command outlasts its seconds of CPU, or takes several times as long."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               preexec_fn=lambda: limited(memory, int(seconds) + 1))
    try:
        return process.wait(30 + 3 * seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def digest(*texts):
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def runs_here(function):
    """Whether this machine has the instruction set that is part of a function's name."""
    known = Path("/proc/cpuinfo")
    flags = known.read_text() if known.exists() else ""
    return all(part not in function or flag in flags for part, flag in INSTRUCTION_SETS.items())


class Memory:
    """What was found before: how long each test takes, and verdicts."""

    def __init__(self, build):
        self.build, self.path = build, Path(build, "mutate/verdicts.json")
        self.seconds = {}
        self.verdicts = json.loads(self.path.read_text()) if self.path.exists() else {}

    def keep(self):
        self.path.write_text(json.dumps(self.verdicts, indent=0))

    def guess(self, test):
        return self.seconds.get(test, 1 if test.endswith(".c") else 9)

    def time(self, test):
        """Seconds of CPU of a test, whatever else the machine does; the first time the test runs over what make has
        built, and the program ends if the test fails."""
        if test not in self.seconds:
            stem = Path(test).stem
            command = [f"{self.build}/tests/{stem}"] if test.endswith(".c") else cli_command(f"{self.build}/bin", test)
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, preexec_fn=lambda: limited(8 << 30, 600))
            _, process.returncode, usage = os.wait4(process.pid, 0)
            if process.returncode != 0:
                print(f"mutate: {test}: fails without a change", flush=True)
                os._exit(1)
            self.seconds[test] = usage.ru_utime + usage.ru_stime
        return self.seconds[test]

    def sources(self, mutant, section, killer):
        """What a verdict rests on: the changed file, and the test that killed it, or all tests where none did."""
        tests = [Path(t).read_text() for t in section.tests if killer in ("", t)]
        return digest(Path(mutant.path).read_text(), mutant.text, str(mutant.start), *tests)

    def find(self, mutant, section):
        """The verdict, or None where it does not hold now, and the test to try first, or ""."""
        verdict, sources, killer = self.verdicts.get("|".join(mutant.key()), ("", "", ""))
        return verdict if sources == self.sources(mutant, section, killer) else None, killer

    def put(self, mutant, section, verdict, killer):
        self.verdicts["|".join(mutant.key())] = verdict, self.sources(mutant, section, killer), killer


def cli_command(tools, script):
    return ["tests/cli/run.sh", str(tools), Path(script).name]


class Bench:
    """A folder where one mutant at a time is compiled, linked with what make has built, and tested."""

    def __init__(self, build, folder, memory):
        self.found = memory
        self.memory = 8 << 30  # bytes that a test may take
        self.build, self.folder = Path(build), Path(folder)
        self.cc = os.environ["CC"].split()
        self.cflags = os.environ["CFLAGS"].split() + ["-O1", "-g0", "-w", "-Wno-error"]
        self.ldlibs = os.environ["LDLIBS"].split()
        self.openblas = subprocess.check_output(["pkg-config", "--libs", "openblas"], text=True).split()
        self.sanitizer = []  # flags, while a survivor is tried again
        self.library = str(self.build / "libspecrt-tools.a")
        self.unchanged = {}  # code of each file without a change
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "bin").mkdir(parents=True)
        (self.folder / "tests").symlink_to((self.build / "tests").resolve())  # programs beside the tools

    def compile(self, source, output):
        """source: of the project, or a changed one below tree/, which stands before the project's own."""
        tree = self.folder / "tree"
        folder = os.path.dirname(self.changed)  # a changed file includes what lies beside the original
        places = [f"-I{tree}/include"] if self.includes_single_header(source) else []
        places += [f"-I{place}" for place in (tree / "src", tree / "lib", tree, folder)]
        return run(self.cc + places + self.cflags + self.sanitizer + ["-c", source, "-o", str(output)], 300) == 0

    def link(self, objects, output, *libs):
        output.unlink(missing_ok=True)
        command = self.cc + [str(o) for o in objects] + [*libs, self.library, *self.ldlibs, *self.sanitizer,
                                                            "-o", str(output)]
        if run(command, 300) != 0:
            raise RuntimeError("cannot link: " + " ".join(command))

    def write(self, mutant):
        """The mutated source under tree/; its path."""
        shutil.rmtree(self.folder / "tree", ignore_errors=True)
        self.changed = mutant.path
        changed = self.folder / "tree" / mutant.path
        changed.parent.mkdir(parents=True)
        source = Path(mutant.path).read_text()
        changed.write_text(source[:mutant.start] + mutant.text + source[mutant.end:])
        return str(changed)

    def write_single_header(self):
        """tree/include/specrt.h from the project's src/ and the mutated file."""
        tree = self.folder / "tree"
        shutil.copytree("src", self.folder / "all/src", dirs_exist_ok=True)
        shutil.copytree(tree / "src", self.folder / "all/src", dirs_exist_ok=True)
        (self.folder / "all/tools").mkdir(exist_ok=True)
        shutil.copy("tools/amalgamate", self.folder / "all/tools")
        (tree / "include").mkdir(exist_ok=True)
        with open(tree / "include/specrt.h", "w") as out:
            subprocess.run([self.folder / "all/tools/amalgamate", "src/single_header.h"], stdout=out, check=True)
        shutil.rmtree(self.folder / "all")

    def reads(self, source, path):
        """Whether a source of the project was compiled from a file."""
        depends = (self.build / source).with_suffix(".d")
        return depends.exists() and re.search(r"[\s/]" + re.escape(path) + r"\s", depends.read_text() + "\n")

    def includes_single_header(self, source):
        return source.startswith("tests/") and self.reads(source, "include/specrt.h")

    def objects_of(self, mutant):
        """Compiles the changed file, or of a header all files that include it; None where that fails."""
        changed = self.write(mutant)
        sources = {mutant.path: changed}
        if mutant.path.endswith(".h"):
            paths = [str(path) for path in sorted(Path("src").glob("*/*.c"))]
            sources = {path: path for path in paths if self.reads(path, mutant.path)}
        made = [self.folder / path.replace("/", "-").replace(".c", ".o") for path in sources]
        for source, output in zip(sources.values(), made):
            if not self.compile(source, output):
                return None
        return made

    def unit_test(self, mutant, objects, test):
        """Builds a test program with the mutant inside."""
        program, compiled = self.folder / "unit", self.build / test.replace(".c", ".o")
        single = self.includes_single_header(test) and mutant.path.startswith("src/")
        if single:
            self.write_single_header()
        inside = single or self.reads(test, mutant.path)
        if inside or self.sanitizer:
            compiled = self.folder / "unit.o"
            if not self.compile(test, compiled):
                raise RuntimeError("cannot compile " + test)
        if single or inside and mutant.path.endswith(".c"):  # the test is compiled with the file inside
            objects = []
        tools = sorted(set(re.findall(r'#include "(tools/[\w-]+)/', Path(test).read_text())))
        libraries = [word for tool in tools for word in self.libraries(tool)]
        self.link([compiled, *objects], program, *libraries)
        return [str(program)]

    def restore_tools(self):
        """All tools as make has built them, in place of those that had another mutant inside."""
        for program in (self.build / "bin").iterdir():
            here = self.folder / "bin" / program.name
            here.unlink(missing_ok=True)
            here.symlink_to(program.resolve())

    def tool(self, mutant, objects, name):
        """Builds a tool with the mutant inside, before the others in the folder of tools."""
        main = [] if Path(mutant.path).name == "main.c" else [self.build / "tools" / name / "main.o"]
        self.link(main + objects, self.folder / "bin" / name, *self.libraries(f"tools/{name}"))

    def libraries(self, tool):
        """The library of a tool, and those of others that it needs."""
        return [f"{self.build}/{tool}.a"] + (self.openblas if tool == "tools/sketch-build" else [])

    def command(self, mutant, objects, section, test, built):
        """Builds a test with the mutant inside; `built` is empty until the tools are."""
        if test.endswith(".c"):
            return self.unit_test(mutant, objects, test)
        if not built:
            self.restore_tools()
            for name in [section.tool] if section.tool else TOOLS:
                self.tool(mutant, objects, name)
            built.append(True)
        return cli_command(self.folder / "bin", test)

    def verdict(self, mutant, section, sanitize):
        """"invalid", "identical", "elsewhere" (nothing here runs the function), "survived", or what killed it:
        "killed" or "sanitizer"; and the test that did."""
        if not runs_here(mutant.function):
            return "elsewhere", ""
        verdict, first = self.found.find(mutant, section)
        if verdict and not (sanitize and verdict == "survived"):
            return verdict, first
        objects = self.objects_of(mutant)
        if objects is None:
            return "invalid", ""
        if self.identical(mutant, objects):
            return "identical", ""
        killer = self.killer(mutant, objects, section, first)
        if killer:
            return "killed", killer
        return "sanitizer" if sanitize and self.sanitized(mutant, section) else "survived", ""

    def sanitized(self, mutant, section):
        """Whether a test fails under the sanitizer that passes there without the change."""
        memory = self.memory
        self.sanitizer = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        self.memory = resource.RLIM_INFINITY  # shadow memory is larger than any limit
        try:
            killer = self.killer(mutant, self.objects_of(mutant), section, patience=20)
            unchanged, alone = without_change(mutant), section._replace(tests=[killer])
            return killer and not self.killer(unchanged, self.objects_of(unchanged), alone, patience=20)
        finally:
            self.sanitizer, self.memory = [], memory

    def killer(self, mutant, objects, section, first="", patience=4):
        """The test that fails, or takes longer than `patience` times what it took, or "". What has the section's name
        is first, then the quick ones."""
        main, built, own = Path(mutant.path).name == "main.c", [], f"_{Path(section.name).name}"
        for test in sorted(section.tests, key=lambda t: (t != first, own not in t, self.found.guess(t))):
            if main and test.endswith(".c"):  # which link no main.c
                continue
            seconds = 2 + patience * self.found.time(test)
            if run(self.command(mutant, objects, section, test, built), seconds, self.memory) != 0:
                return test
        return ""

    def identical(self, mutant, objects):
        """The optimiser makes the same code of both: the change has no effect."""
        codes = [o.read_bytes() for o in objects]
        key = mutant.section, mutant.path
        if key not in self.unchanged:
            self.unchanged[key] = [o.read_bytes() for o in self.objects_of(without_change(mutant))]
            for output, code in zip(objects, codes):
                output.write_bytes(code)
            self.write(mutant)
        return codes == self.unchanged[key]


# --- all of them ---

def keys_of(mutant):
    """Those that tests/mutants.txt may list it by: itself, any change of its line, any of its function."""
    section, function, before, after = mutant.key()
    return (section, function, before, after), (section, function, before, "*"), (section, function, "*", "*")


def judge(section, quota, equivalents, options, benches, pool, memory):
    """Verdicts of the first `quota` valid mutants in the order of the seed."""
    order = [m for m in section.mutants if not any(k in equivalents for k in keys_of(m))]
    random.Random(f"{options.seed} {section.name}").shuffle(order)
    verdicts, place = [], 0
    while len(verdicts) < quota and place < len(order):
        batch = order[place:place + quota - len(verdicts)]
        place += len(batch)

        def one(mutant):
            bench = benches.pop()
            try:
                return mutant, *bench.verdict(mutant, section, options.sanitize)
            finally:
                benches.append(bench)
        for mutant, verdict, killer in pool.map(one, batch):
            if verdict != "elsewhere":  # which another machine with the same build folder may find otherwise
                memory.put(mutant, section, verdict, killer)
            if verdict not in ("invalid", "identical", "elsewhere"):
                verdicts.append((mutant, verdict))
            if options.verbose or verdict in ("survived", "sanitizer"):
                print(f"{verdict}: {mutant}", flush=True)
    memory.keep()
    return verdicts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help="all by default")
    parser.add_argument("-n", type=int, default=100, help="mutants, as evenly of all sections as these have them (100)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--least", type=float, default=0, help="percent that tests must kill")
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--sanitize", action="store_true", help="try survivors again under AddressSanitizer")
    parser.add_argument("-v", "--verbose", action="store_true", help="name killed mutants, too")
    options = parser.parse_args()

    sections = [*runtime_sections(), *library_sections(), *tool_sections()]
    names = [s.name for s in sections]
    for name in options.sections:
        if name not in names:
            sys.exit(f"mutate: SECTION: expected one of {' '.join(names)}; found {name}")
    equivalents = listed_equivalents("tests/mutants.txt")
    present = {key for s in sections for m in s.mutants for key in keys_of(m)}
    for key in equivalents:
        if key not in present:
            print(f"mutants.txt: no such line now: {' '.join(key[:2])}: {key[2]}")
    sections = [s for s in sections if not options.sections or s.name in options.sections]

    memory = Memory(options.build)
    benches = [Bench(options.build, f"{options.build}/mutate/{i}", memory) for i in range(options.jobs)]
    results = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        left = options.n  # what small sections lack comes from those after them
        for i, section in enumerate(sections):
            quota = -(-left // (len(sections) - i))
            results[section.name] = judge(section, quota, equivalents, options, benches, pool, memory)
            left -= len(results[section.name])
    return report(results, options.least)


def report(results, least):
    """One line per section and the sum; the exit code."""
    form = "{:27} {:>8} {:>8} {:>10} {:>9}"
    print(form.format("section", "mutants", "killed", "sanitizer", "survived"))
    total = Counter()
    for name, verdicts in results.items():
        counts = Counter(verdict for _, verdict in verdicts)
        print(form.format(name, len(verdicts), *(counts[v] for v in VERDICTS)))
        total += counts
    percent = 100 * total["killed"] / max(1, sum(total.values()))
    print(form.format("all", sum(total.values()), *(total[v] for v in VERDICTS)), f"  {percent:.1f}% killed")
    if percent < least:
        print(f"mutate: expected at least {least:g}% killed, found {percent:.1f}%; add tests for the survivors above")
    return percent < least



VERDICTS = ["killed", "sanitizer", "survived"]
TOOLS = [p.parent.name for p in sorted(Path("tools").glob("*/main.c")) if p.parent.name != "specrt-llama"]
if __name__ == "__main__":
    sys.exit(main())
