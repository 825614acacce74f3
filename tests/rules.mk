# Tests, and the same tests under sanitizers.

# SMOKE=1: enough to see that what was built runs, for a machine where all of it is tested elsewhere.
TESTS    := $(filter-out tests/gpu/%,$(wildcard tests/$(if $(SMOKE),base,*)/test_*.c))
PROGRAMS := $(addprefix $(BUILD)/tests/,trace eagle3_head mtp_gguf block_gguf json) # what scripts run; interop builds the others

# The libraries of the tools whose headers a file includes.
tools_of = $(addprefix $(BUILD)/,$(sort $(shell sed -n 's|^.include "\(tools/[a-z-]*\)/.*|\1.a|p' $(1))))

# A test has the name of its file, whatever its folder.
define TEST
$(BUILD)/tests/$(notdir $(1:.c=)): $(BUILD)/$(1:.c=.o) $(call tools_of,$(1)) $(LIB)
	$$(call link)
endef
$(foreach t,$(TESTS),$(eval $(call TEST,$(t))))
$(BUILD)/tests/test_sketch_build: LDLIBS += $(sketch-build_LIBS)

# At -O2 tests compile for three times as long and run as fast, for what takes time is the library's; but for
# test_align_layer, which computes its references.
$(BUILD)/tests/%.o: CFLAGS += -Og
$(BUILD)/tests/engine/test_align_layer.o: CFLAGS += -O2

# Programs that scripts of tests run, beside tests.
$(BUILD)/tests/%: $(BUILD)/tests/programs/%.o $(LIB)
	$(call link)

# The implementation of the single header, beside which nothing of src/ is linked: for benchmarks, and for the
# header's unit tests a second time.
$(BUILD)/single.o: include/specrt.h
	$(TELL) "CC $<"
	$(Q)$(CC) $(CFLAGS) -DSPECRT_IMPLEMENTATION -DSPECRT__INTERNAL= -x c -c $< -o $@
SINGLE_TESTS := $(patsubst tests/specrt/%.c,$(BUILD)/single/%,$(filter tests/specrt/%,$(TESTS)))
$(BUILD)/single/%: $(BUILD)/tests/specrt/%.o $(BUILD)/single.o $(BUILD)/tools/hnsw-build.a $(LIB)
	@mkdir -p $(@D)
	$(call link)
test-single: $(SINGLE_TESTS) ## the header's unit tests, over include/specrt.h instead of src/
	@printf '%s\n' $^ | xargs -P $(shell nproc) -I TEST sh -c 'TEST >TEST.log 2>&1 || { cat TEST.log; exit 255; }'

# What compiles all kernels a second time, for debugging.
SLOW_BUILDS := $(filter test_gpu_faults,$(GPU_TESTS))

# A sanitized libspecrt.so would need a sanitized Python.
test-build: $(if $(SAN),tools $(EXAMPLES:%=$(BUILD)/bin/%),all) $(patsubst %.c,$(BUILD)/tests/%,$(notdir $(TESTS))) $(patsubst %,$(BUILD)/tests/%,$(if $(SAN),$(GPU_TESTS),$(filter-out $(SLOW_BUILDS),$(GPU_TESTS)))) $(GPU_BENCH) $(PROGRAMS) # everything that `make test` runs

# What starts threads, for the sanitizer that is slow and looks at nothing else.
THREADED := $(patsubst %.c,%,$(notdir $(shell grep -lE 'parallel_|pthread|specrt_worker|threads' $(TESTS))))
test-threads: tools $(PROGRAMS) $(THREADED:%=$(BUILD)/tests/%)
	@tests/run.sh $(BUILD) threads interrupt _build eval_compare

test: test-build ## unit tests, compile tests, examples, command-line tests, each at its basic promise [TIMES=1: with seconds of CPU]
	@tests/run.sh $(TIMES:%=--times) $(BUILD) $(if $(SMOKE),bundle_info calibrate_usage)

test-all: test-build $(SLOW_BUILDS:%=$(BUILD)/tests/%) ## tests of which `make test` takes a share: all of their data [TIMES=1]
	@tests/run.sh $(TIMES:%=--times) --all $(BUILD)

test-cli: tools $(PROGRAMS) ## the command-line tests alone
	@tests/cli/run.sh $(TIMES:%=--times) $(BUILD)/bin

test-docs: all $(PROGRAMS) ## every command of pages and help texts, on the sample pair
	@tests/docs/run.sh $(TIMES:%=--times) $(BUILD)

test-long: $(BUILD)/tests/test_lossless ## every policy against plain decoding: 200 prompts of 128 tokens [EVERY=N-th]
	@$< every=$(or $(EVERY),1)

PLATFORMS := windows windows-32 windows-clang i686 arm64 armhf riscv64 macos-arm64 macos-x86_64 wasm wasm-scalar
test-platforms: include/specrt.h ## the single header's unit tests on other systems and processors, emulated [NAMES="windows arm64"]
	@tests/platforms.sh $(or $(NAMES),$(PLATFORMS))
platforms-page: ## docs/platforms.md with the last run of each platform, after `make test-platforms`
	@awk -f tests/platforms_table.awk $(BUILD)/platforms/*/said docs/platforms.md >$(BUILD)/platforms.md
	@mv $(BUILD)/platforms.md docs/platforms.md

test-python: lib tools ## the Python package over build/libspecrt.so and build/bin, and the papers' methods beside references [PYTHON=, SEEDS=, HIDE="torch numpy": as without them]
	@tests/python/run.sh $(BUILD) $(SEEDS:%=SEEDS=%) $(HIDE)

interop: tools lib ## our files in engines and clusters themselves, each with its pinned packages; opt-in, GBs [NAMES=, TORCH=]
	@tests/interop/run.sh $(TORCH:%=--torch "$$TORCH") $$NAMES

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

comma    := ,
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

# Survivors and figures by section; tests/mutants.txt lists changes without effect.
MUTATE_SEED ?= 1
mutate: test-build ## change one operator at a time: does a test notice? [SECTION=, N=100, MUTATE_SEED=1, LEAST=, SANITIZE_SURVIVORS=]
	@EVERYTHING=1 CC="$(CC)" CFLAGS="$(CFLAGS)" LDLIBS="$(LDLIBS)" \
	    python3 tests/mutate.py -n $(or $(N),100) --seed $(MUTATE_SEED) --least $(or $(LEAST),0) --build $(BUILD) \
	    $(and $(SANITIZE_SURVIVORS),--sanitize) $$SECTION
