#!/usr/bin/env python3
"""run.py PROGRAM [ARGUMENT...] : a WebAssembly program by wasmtime, with the files of this folder."""
import sys

import wasmtime

config = wasmtime.Config()
config.wasm_exceptions = True  # longjmp()
engine = wasmtime.Engine(config)
linker = wasmtime.Linker(engine)
linker.define_wasi()
wasi = wasmtime.WasiConfig()
wasi.argv = sys.argv[1:]
wasi.inherit_env()  # TEST_QUICK
wasi.inherit_stdout()
wasi.inherit_stderr()
wasi.preopen_dir(".", ".", False)  # which it cannot change
store = wasmtime.Store(engine)
store.set_wasi(wasi)
program = linker.instantiate(store, wasmtime.Module.from_file(engine, sys.argv[1]))
try:
    program.exports(store)["_start"](store)
except wasmtime.ExitTrap as ended:
    sys.exit(ended.code)
