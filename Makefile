# specrt. `make help` lists the targets. Everything is built under build/.

VERSION  := 0.1.0
CC       ?= cc
CXX      ?= c++
CLANG    ?= clang
PREFIX   ?= /usr/local
BUILD    ?= build
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(WERROR)
OPT      ?= -O2 -g
PKGS     := libzstd zlib json-c libpcre2-8 libutf8proc
APT      := gcc g++ make pkg-config libzstd-dev zlib1g-dev libjson-c-dev libpcre2-dev libutf8proc-dev libopenblas-dev zstd

ifneq ($(filter-out help test-cuda,$(or $(MAKECMDGOALS),all)),) # these need none
ifneq ($(shell pkg-config --exists $(PKGS) openblas 2>/dev/null && echo ok),ok)
$(error missing libraries; run: apt-get install -y $(APT))
endif
endif

ifdef MPI
BUILD   := $(BUILD)/mpi
CC      := mpicc
MPIFLAG := -DSPECRT_MPI
endif
CFLAGS   := -std=c99 -D_GNU_SOURCE -DSPECRT_WORKER $(OPT) $(WARN) $(SAN) $(MPIFLAG) -Iinclude -Itools/common -Iengine $(shell pkg-config --cflags $(PKGS))
LDLIBS   := $(SAN) $(shell pkg-config --libs $(PKGS)) -lm -lpthread

TOOLS    := $(notdir $(patsubst %/,%,$(dir $(wildcard tools/*/main.c))))
COMMON   := $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/common/*.c engine/*.c))
TESTS    := $(patsubst tests/%.c,%,$(wildcard tests/test_*.c))
EXAMPLES := $(patsubst examples/%.c,%,$(wildcard examples/*.c))
BENCHES  := $(patsubst bench/%.c,%,$(wildcard bench/bench_*.c))
FUZZERS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 60
LIB      := $(BUILD)/libcommon.a
# CUDA's toolkit: where CUDA_HOME says, else beside the nvcc in PATH, else where it is installed by default.
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc)))
NVCC     := $(CUDA_HOME)/bin/nvcc
# Kernels run on the CPU with its headers alone.
ifneq ($(wildcard $(CUDA_HOME)/include/cuda_fp16.h),)
GPU_TESTS := $(patsubst tests/gpu/%.c,%,$(wildcard tests/gpu/test_gpu_*.c)) test_gpu_harness gpu/bench_gpu
endif
comma    := ,

.PHONY: all tools cuda test test-build test-threads test-races test-cli test-arm64 test-long test-cuda asan ubsan tsan tsan-gpu fuzz bench benchmarks lint format install calibrate clean help
.SECONDARY:

all: tools $(EXAMPLES:%=$(BUILD)/bin/%) ## everything that runs on a CPU (default)

tools: $(TOOLS:%=$(BUILD)/bin/%) ## the command-line tools, in build/bin

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -MMD -MP -c $< -o $@

$(LIB): $(COMMON)
	@rm -f $@
	ar rcs $@ $^

# A tool is every .c file of its folder and the common library.
define TOOL
$(BUILD)/bin/$(1): $(patsubst %.c,$(BUILD)/%.o,$(wildcard tools/$(1)/*.c)) $(LIB)
	@mkdir -p $$(@D)
	$(CC) $$^ $(LDLIBS) $$($(1)_LIBS) -o $$@
endef
sketch-build_LIBS := $(shell pkg-config --libs openblas)
$(foreach t,$(TOOLS),$(eval $(call TOOL,$(t))))

$(BUILD)/tests/test_%: $(BUILD)/tests/test_%.o $(LIB)
	$(CC) $^ $(LDLIBS) -o $@

# The CUDA file on the harness of tests/gpu, and its tests.
HARNESS := $(patsubst %,$(BUILD)/tests/gpu/%.o,specrt_kernels harness runtime)
HARNESS_FLAGS := -std=c++11 -DSPECRT_HARNESS -Iinclude -Itests/gpu -idirafter $(CUDA_HOME)/include
$(BUILD)/tests/gpu/%.o: CFLAGS += -idirafter $(CUDA_HOME)/include
$(BUILD)/tests/gpu/harness.o: override SAN := $(filter-out -fsanitize=thread,$(SAN)) # fibres pass for threads
$(BUILD)/tests/gpu/specrt_kernels.o: cuda/specrt_kernels.cu
	@mkdir -p $(@D)
	$(CXX) $(HARNESS_FLAGS) $(OPT) $(WARN) $(SAN) -MMD -MP -x c++ -c $< -o $@
$(BUILD)/tests/gpu/%.o: tests/gpu/%.cc
	@mkdir -p $(@D)
	$(CXX) $(HARNESS_FLAGS) $(OPT) $(WARN) $(SAN) -MMD -MP -c $< -o $@
$(BUILD)/tests/test_gpu_%: $(BUILD)/tests/gpu/test_gpu_%.o $(HARNESS) $(LIB)
	$(CXX) $^ $(LDLIBS) -o $@

# Kernels built for debugging, which say what failed.
$(BUILD)/tests/gpu/specrt_debug.o: cuda/specrt_kernels.cu
	@mkdir -p $(@D)
	$(CXX) $(HARNESS_FLAGS) -DSPECRT_CUDA_DEBUG $(OPT) $(WARN) $(SAN) -MMD -MP -x c++ -c $< -o $@
$(BUILD)/tests/test_gpu_faults: $(patsubst %,$(BUILD)/tests/gpu/%.o,test_gpu_faults specrt_debug harness runtime) $(LIB)
	$(CXX) $^ $(LDLIBS) -o $@

# The GPU's benchmarks on the harness: with --tiny, a look at the program, not at speed.
$(BUILD)/tests/gpu/bench_gpu: $(patsubst %,$(BUILD)/tests/gpu/%.o,bench_gpu bench_cycle) $(HARNESS) $(LIB)
	$(CXX) $^ $(LDLIBS) -o $@

# Programs that interoperability tests drive.
$(BUILD)/tests/%: $(BUILD)/tests/tools/%.o $(LIB)
	$(CC) $^ $(LDLIBS) -o $@

# Examples that stand for an engine use ours.
$(patsubst %,$(BUILD)/bin/%,$(filter %_loop,$(EXAMPLES))): $(BUILD)/bin/%: $(BUILD)/examples/%.o $(LIB)
	@mkdir -p $(@D)
	$(CC) $^ $(LDLIBS) -o $@

# The others need the header and libzstd only, as their users do.
$(BUILD)/bin/%: examples/%.c include/specrt.h
	@mkdir -p $(@D)
	$(CC) -std=c99 $(OPT) $(WARN) $(SAN) -Iinclude $< $(shell pkg-config --cflags --libs libzstd) -lm -o $@

$(BUILD)/bench/bench_%: $(BUILD)/bench/bench_%.o $(LIB)
	$(CC) $^ $(LDLIBS) $(BENCH_LIBS) -o $@

test-build: all $(TESTS:%=$(BUILD)/tests/%) $(GPU_TESTS:%=$(BUILD)/tests/%) $(BUILD)/tests/trace # everything that `make test` runs

# What starts threads, for the sanitizer that is slow and looks at nothing else.
THREADED := $(sort $(patsubst tests/%.c,%,$(shell grep -lE 'parallel|pthread|worker|thread' tests/test_*.c)))
test-threads: tools $(THREADED:%=$(BUILD)/tests/%)
	@tests/run.sh $(BUILD) threads interrupt _build eval_compare eval_decode

test: test-build ## unit tests, compile tests, examples, command-line tests
	@tests/run.sh $(BUILD)

test-cli: tools $(BUILD)/tests/trace ## the command-line tests alone
	@tests/cli/run.sh $(BUILD)/bin

test-long: $(BUILD)/tests/test_lossless ## every policy against plain decoding: 200 prompts of 128 tokens [EVERY=N-th]
	@SPECRT_TEST_LONG=$(or $(EVERY),1) $<

# The vector code of another machine, emulated: kernels need no library but libm.
ARM64_CC ?= aarch64-linux-gnu-gcc
test-arm64: ## NEON kernels, cross-compiled and run under qemu-user
	@for program in $(ARM64_CC) qemu-aarch64; do command -v $$program >/dev/null || \
	    { echo "skipped: no $$program (apt-get install -y gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user)"; exit 77; }; done
	@mkdir -p $(BUILD)/arm64
	@set -e; for test in test_simd test_sketch; do \
	    $(ARM64_CC) -std=c99 -D_GNU_SOURCE -O2 $(WARN) -DSPECRT_NO_ZSTD -Iinclude -static tests/$$test.c \
	        -o $(BUILD)/arm64/$$test -lm; \
	    qemu-aarch64 $(BUILD)/arm64/$$test; \
	done

# Code for those of these that nvcc knows, and PTX of the last for what comes after it.
CUDA_ARCH ?= $(filter $(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch 2>/dev/null)),75 80 86 89 90 100 120)
CUDA_CODE = $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$(a),code=sm_$(a)) \
    -gencode arch=compute_$(lastword $(CUDA_ARCH)),code=compute_$(lastword $(CUDA_ARCH))
CUDA_FLAGS = -std=c++14 -O3 -lineinfo --threads 0 -diag-suppress 1675 $(CUDA_DEBUG:%=-DSPECRT_CUDA_DEBUG) -Iinclude -Xcompiler -fPIC,-Wall \
    $(if $(filter native,$(CUDA_ARCH)),-arch=native,$(CUDA_CODE))

cuda: ## libspecrt_cuda.a and .so, by nvcc [CUDA_HOME=, CUDA_ARCH="80 90" or native, CUDA_DEBUG=1]
	@test -x $(NVCC) || { echo "make cuda: no nvcc; install the CUDA toolkit and name it by CUDA_HOME= or in PATH"; exit 1; }
	@test "$(CUDA_ARCH)" != native || nvidia-smi -L >/dev/null 2>&1 || \
	    { echo "make cuda: CUDA_ARCH=native needs a GPU, and there is none; name architectures, as in CUDA_ARCH=\"80 90\""; exit 1; }
	@mkdir -p $(BUILD)/cuda
	$(NVCC) $(CUDA_FLAGS) -c cuda/specrt_kernels.cu -o $(BUILD)/cuda/specrt_kernels.o
	@rm -f $(BUILD)/libspecrt_cuda.a
	ar rcs $(BUILD)/libspecrt_cuda.a $(BUILD)/cuda/specrt_kernels.o
	$(CC) $(CFLAGS) -fPIC -c tools/common/specrt_impl.c -o $(BUILD)/cuda/specrt.o
	$(NVCC) -shared $(BUILD)/cuda/specrt_kernels.o $(BUILD)/cuda/specrt.o -lzstd -o $(BUILD)/libspecrt_cuda.so

test-cuda: ## on a GPU: every kernel against its twin, compute-sanitizer, graphs, benchmarks
	@tests/gpu/run.sh

# gcc warns of uninitialised values that are not, once it instruments; the plain build is the judge.
SANITIZE = $(MAKE) WERROR=-Wno-maybe-uninitialized BUILD=build/$(1) OPT="-O1 -g" SAN="-fsanitize=$(2) -fno-sanitize-recover=all -fno-omit-frame-pointer" $(or $(3),test)
asan: ## tests under AddressSanitizer and UndefinedBehaviorSanitizer
	+$(call SANITIZE,asan,address$(comma)undefined)
ubsan: ## tests under UndefinedBehaviorSanitizer alone
	+$(call SANITIZE,ubsan,undefined)
tsan: ## what starts threads, under ThreadSanitizer
	+$(call SANITIZE,tsan,thread,test-threads)

# Every test of kernels but those that end the program on purpose; then races made on purpose must be seen.
tsan-gpu: ## kernels on the CPU under ThreadSanitizer, which knows what orders their threads
	+$(call SANITIZE,tsan-gpu,thread,test-races)
test-races: $(patsubst %,$(BUILD)/tests/%,$(filter test_%,$(GPU_TESTS)))
	@set -e; filter=; for test in $^; do \
	    [ $${test##*/} != test_gpu_harness ] || filter="--filter fences"; \
	    TSAN_OPTIONS="history_size=3 $$TSAN_OPTIONS" $$test $$filter; \
	done
	@for race in race_in_block race_of_blocks; do \
	    $(BUILD)/tests/test_gpu_harness --filter $$race >/dev/null 2>&1; \
	    test $$? = 66 || { echo "FAIL $$race: ThreadSanitizer did not report it"; exit 1; }; \
	done

# Fuzzers: clang's libFuzzer, one per reader of untrusted bytes, seeded from tests/fuzz/corpus.
FUZZ_FLAGS := -g -O1 -std=c99 -D_GNU_SOURCE -fsanitize=address,undefined -fno-sanitize-recover=all \
    -Iinclude -Itools/common -Iengine $(shell pkg-config --cflags $(PKGS))
$(BUILD)/fuzz/obj/%.o: %.c $(wildcard tools/common/*.h engine/*.h) include/specrt.h
	@mkdir -p $(@D)
	$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c $< -o $@
$(BUILD)/fuzz/libcommon.a: $(patsubst %.c,$(BUILD)/fuzz/obj/%.o,$(wildcard tools/common/*.c engine/*.c))
	@rm -f $@
	ar rcs $@ $^
$(BUILD)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(BUILD)/fuzz/libcommon.a
	$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer $^ $(LDLIBS) -o $@
fuzz: $(FUZZERS:%=$(BUILD)/fuzz/%) ## every fuzzer for FUZZ_SECONDS (60) each
	@tests/fuzz/run.sh $(BUILD)/fuzz $(FUZZ_SECONDS)

bench: all $(BENCHES:%=$(BUILD)/bench/%) ## benchmarks; results belong in docs/BENCHMARKS.md
	@bench/run.sh $(BUILD)

benchmarks: all $(BENCHES:%=$(BUILD)/bench/%) $(BUILD)/tests/trace ## the figures of docs/BENCHMARKS.md and the README's table anew [NAMES=]
	@BUILD=$(BUILD) bench/benchmarks.sh $(NAMES)

LINTED := $(wildcard include/*.h tools/*/*.[ch] engine/*.[ch] tests/*.[ch] tests/*/*.[ch] tests/*/*.cc examples/*.c bench/*.c cuda/*.cu)
# Data and patterns of one line are as long as they are.
SCRIPTS := $(wildcard bench/*.sh tests/*.sh tests/*/*.sh tools/*.sh)
lint: ## format, section order, line length, white space
	@clang-format --dry-run -Werror $(LINTED)
	@awk -f tests/check_sections.awk include/specrt.h cuda/specrt_kernels.cu
	@awk 'length > 110 { printf "%s:%d: line over 110 characters\n", FILENAME, FNR; bad = 1 } END { exit bad }' $(LINTED)
	@! grep -nE '[[:space:]]+$$' $(LINTED) Makefile README.md
	@awk 'length > 100 && !/^ *(["\047]|\{"|\[\{)/ { printf "%s:%d: line over 100 characters\n", FILENAME, FNR; bad = 1 } END { exit bad }' $(SCRIPTS)

format: ## clang-format everything in place
	clang-format -i $(LINTED)

install: tools ## header, specrt.pc, CMake file and tools under PREFIX
	@tests/install.sh "$(DESTDIR)" "$(PREFIX)" "$(BUILD)/bin" "$(VERSION)"

calibrate: all ## the main job: MODEL= DRAFT= TOKENIZER= CORPUS= OUT=; with none, the sample in data/
	@tools/calibrate.sh "$(BUILD)/bin" "$(TOKENIZER)" "$(CORPUS)" "$(MODEL)" "$(DRAFT)" "$(or $(OUT),$(BUILD)/sample.specb)"

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

-include $(shell find $(BUILD) -path '$(BUILD)/text*' -prune -o -type f -name '*.d' -print 2>/dev/null)
