# Kernels: on a CPU by the harness of this folder, by nvcc, and nvcc's PTX and machine code.

# CUDA's toolkit: where CUDA_HOME says, else beside the nvcc in PATH, else where it is installed by default.
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc)))
NVCC     := $(CUDA_HOME)/bin/nvcc
# Kernels run on the CPU with its headers alone.
ifneq ($(and $(if $(SMOKE),,1),$(wildcard $(CUDA_HOME)/include/cuda_fp16.h)),)
GPU_TESTS := $(filter-out test_gpu_whole,$(patsubst tests/gpu/%.c,%,$(wildcard tests/gpu/test_gpu_*.c))) test_gpu_harness
GPU_BENCH := $(BUILD)/bench/gpu/bench_gpu
endif

# The CUDA file on the harness of tests/gpu, and its tests.
HARNESS := $(patsubst %,$(BUILD)/tests/gpu/%.o,specrt_kernels harness runtime)
HARNESS_FLAGS := -std=c++11 -fPIC -DSPECRT_HARNESS -DSPECRT__KERNEL=extern -Iinclude -Itests/gpu -idirafter $(CUDA_HOME)/include \
    $(if $(filter -fsanitize=thread,$(SAN)),-DHARNESS_CORES)
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
PTX_TWINS := whole pack logits topk route sketch real session block markov order tree filter state launches faults
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
test-ptx: $(addprefix $(PTX)/test_gpu_,$(PTX_TWINS)) ## the PTX that nvcc emits, executed and checked on the CPU; needs nvcc [PTX_TWINS=, PTX_SEED=, COVER=1, LONG=1]
	@tests/gpu/ptx/run.sh $(LONG:%=LONG=%) $(COVER:%=COVER=%) $(PTX_SEED:%=SEED=%) $(PTX) "$(PTX_ARCH)" $^

# The GPU's benchmarks on the harness: with --tiny, a look at the program, not at speed.
$(BUILD)/bench/gpu/%.o: CFLAGS += -DNO_TEST_MAIN -Itests/gpu -idirafter $(CUDA_HOME)/include
$(BUILD)/bench/gpu/%.o: bench/gpu/%.cu
	$(TELL) "CXX $<"
	$(Q)$(HARNESS_CXX) -x c++ -c $< -o $@
$(BUILD)/bench/gpu/bench_gpu: $(patsubst %,$(BUILD)/bench/gpu/%.o,bench_gpu bench_cycle bench_read) $(HARNESS) $(LIB)
	$(TELL) "LD $@"
	$(Q)$(CXX) $^ $(LDLIBS) -o $@

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

sass: ## what `make cuda` made of each kernel for sm_90: registers, spills, loads under way, against tests/gpu/sass.txt
	@CUDA_HOME=$(CUDA_HOME) tests/gpu/sass.py $(BUILD)/cuda/specrt_kernels.o

test-cuda: ## on a GPU: every kernel against its twin, compute-sanitizer, graphs, benchmarks [settings of tests/gpu/run.sh]
	@tests/gpu/run.sh $(foreach s,STEPS OUT LIMIT SEED ROUNDS DRY,$(if $(filter-out undefined,$(origin $s)),"$s=$$$s"))
