#!/usr/bin/env python3
"""What nvcc made of the kernels that read most: registers, spills, loads under way.

    tests/gpu/sass.py build/cuda/specrt_kernels.o    compares with tests/gpu/sass.txt (make sass)
    tests/gpu/sass.py --write FILE...                writes that file, to be read and committed

Reads the code for sm_90 by cuobjdump and nvdisasm: those of CUDA_HOME or PATH, else of Python's
packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm. A line of the table is a kernel of the
products, the sketch, packing, ranking or filters: its registers; loads and stores of local memory
(spills, and arrays that are indexed); and before its first multiply-add the loads of 16 bytes that
are under way: to shared memory ("copies": cp.async), and to registers ("loads").

A kernel is worse with more registers or local memory, or with fewer copies: that fails. Another
nvcc than the table's may place them otherwise: then only what is a must is asked for, 8 copies of
rows and no spill in products, and 8 loads in the sketch's scan. Exit 1 where something is worse,
77 without the programs."""
import glob
import os
import re
import shutil
import site
import subprocess
import sys

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'sass.txt')
DTYPES = {'0': 'f32', '1': 'f16', '8': 'q8_0', '30': 'bf16'}
INSTRUCTION = re.compile(r'\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)')
KERNELS = re.compile(r'specrt__(head_|scan_|shortlist_|sketch_name|verify_(candidates|chain|filter|propose|sum))')
MUST = [  # kernels, their column, the least
    (re.compile(r'specrt__head_(f32|tiles)<'), 'copies', 8),
    (re.compile(r'specrt__scan_places<'), 'loads', 8),
]


def program_folders():
    """Folders that may hold cuobjdump and nvdisasm, together."""
    folders = [os.path.join(os.environ.get('CUDA_HOME', '/usr/local/cuda'), 'bin')]
    folders += os.environ.get('PATH', '').split(os.pathsep)
    for base in [*sys.path, *site.getsitepackages(), site.getusersitepackages()]:
        folders += glob.glob(os.path.join(base, 'nvidia', '*', 'bin'))
    return [f for f in folders if shutil.which('cuobjdump', path=f) and shutil.which('nvdisasm', path=f)]


def cuobjdump(folder, *arguments):
    """What cuobjdump prints; it looks for nvdisasm in PATH."""
    path = folder + os.pathsep + os.environ.get('PATH', '')
    return subprocess.run([os.path.join(folder, 'cuobjdump'), '-arch', 'sm_90', *arguments], check=True,
                          capture_output=True, text=True, env={**os.environ, 'PATH': path}).stdout


def plain(names):
    """Kernels as the source writes them, without what they take."""
    out = subprocess.run(['c++filt'], input='\n'.join(names), capture_output=True, text=True, check=True).stdout
    out = [re.sub(r'\(specrt_dtype\)(\d+)', lambda m: DTYPES[m.group(1)], n) for n in out.splitlines()]
    return [re.sub(r'^void ', '', re.sub(r'\(.*', '', n)) for n in out]


def count(sass):
    """{kernel: counts} of a listing."""
    found, kernel, begun = {}, None, True
    for line in sass.splitlines():
        if 'Function :' in line:
            kernel, begun = line.split()[-1], False
            found[kernel] = {'local': 0, 'copies': 0, 'loads': 0}
        match = INSTRUCTION.match(line)
        if not match or not kernel:
            continue
        name = match.group(1)
        begun = begun or name.startswith(('HMMA', 'IMMA', 'FFMA'))
        if name.startswith(('LDL', 'STL')):
            found[kernel]['local'] += 1
        if not begun and name.startswith('LDGSTS') and name.endswith('.128'):
            found[kernel]['copies'] += 1
        if not begun and name.startswith('LDG.') and '.128' in name:
            found[kernel]['loads'] += 1
    return found


def measure(folder, path):
    """{kernel: counts} of an object file, by plain names."""
    found = count(cuobjdump(folder, '-sass', path))
    usage = re.findall(r'Function (\S+):\s*\n\s*REG:(\d+)', cuobjdump(folder, '-res-usage', path))
    for kernel, registers in usage:
        if kernel in found:
            found[kernel]['registers'] = int(registers)
    return {k: c for k, c in sorted(zip(plain(found), found.values())) if KERNELS.match(k)}


def compiler(nvcc):
    """The version of nvcc, as it says."""
    told = subprocess.run([nvcc, '--version'], capture_output=True, text=True, check=True).stdout
    return re.search(r'V(\d+\.\d+)', told).group(1)


COLUMNS = ('registers', 'local', 'copies', 'loads')


def write(found, version):
    with open(TABLE, 'w') as f:
        f.write(f'# tests/gpu/sass.py --write, sm_90 by nvcc {version}; see there\n')
        f.write(f'{"# kernel":44}' + ''.join(f'{c:>11}' for c in COLUMNS) + '\n')
        for kernel, counts in found.items():
            f.write(f'{kernel:44}' + ''.join(f'{counts[c]:11}' for c in COLUMNS) + '\n')


def read():
    """The committed table, and of which nvcc."""
    with open(TABLE) as f:
        lines = f.read().splitlines()
    rows = [re.match(r'(.*\S)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)$', line) for line in lines if line[0] != '#']
    return ({r.group(1): dict(zip(COLUMNS, map(int, r.groups()[1:]))) for r in rows},
            re.search(r'nvcc (\S+);', lines[0]).group(1))


def complaints(found, table, same_compiler):
    """A line for every way in which a kernel is worse."""
    for kernel, counts in found.items():
        for pattern, column, least in MUST:
            if not pattern.match(kernel):
                continue
            if counts[column] < least:
                yield f'{kernel}: {column}: expected at least {least}, found {counts[column]}'
            if counts['local'] > 0:
                yield f'{kernel}: expected no spill, found {counts["local"]} accesses of local memory'
        if not same_compiler:
            continue
        if kernel not in table:
            yield f'{kernel}: not in {os.path.basename(TABLE)}; add it by --write'
            continue
        for column in COLUMNS[:3]: # loads: of segments too
            before, now = table[kernel][column], counts[column]
            if now > before if column in ('registers', 'local') else now < before:
                yield f'{kernel}: {column}: expected {before}, found {now}; if that is meant, --write'
    for kernel in table:
        if kernel not in found:
            yield f'{kernel}: in {os.path.basename(TABLE)}, and not in the code; --write'


def main():
    arguments = sys.argv[1:]
    writes = arguments[:1] == ['--write']
    paths = arguments[writes:]
    if not paths or (len(paths) > 1 and not writes):
        sys.exit(__doc__)
    folders = program_folders()
    if not folders:
        print('skipped: no cuobjdump beside nvdisasm (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)')
        sys.exit(77)
    version = compiler(os.path.join(os.environ.get('CUDA_HOME', '/usr/local/cuda'), 'bin', 'nvcc'))
    found = {}
    for path in paths:
        found.update(measure(folders[0], path))
    if not found:
        sys.exit(f'{paths[0]}: none of the kernels, for sm_90')
    if writes:
        return write(found, version)
    table, of = read()
    if of != version:
        print(f'nvcc {version}, the table is of {of}: registers are not compared')
    worse = list(complaints(found, table, of == version))
    print('\n'.join(worse + [f'{len(found)} kernels, {len(worse)} complaints']))
    sys.exit(1 if worse else 0)


if __name__ == '__main__':
    main()
