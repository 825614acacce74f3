# Fuzzers: clang's libFuzzer, one per reader of untrusted bytes, seeded from tests/fuzz/corpus.
FUZZERS  := $(patsubst tests/fuzz/%.c,%,$(wildcard tests/fuzz/fuzz_*.c))
FUZZ_SECONDS ?= 60
FUZZ_FLAGS := -g -O1 -std=c99 -D_GNU_SOURCE -DSPECRT_WORKER -fsanitize=address,undefined -fno-sanitize-recover=all \
    $(INCLUDES) $(shell pkg-config --cflags $(PKGS))
$(BUILD)/fuzz/obj/%.o: %.c $(wildcard src/*.h src/*/*.h lib/*/*.h engine/*/*.h)
	@mkdir -p $(@D)
	$(TELL) "CLANG $<"
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -c $< -o $@
$(BUILD)/fuzz/libspecrt-tools.a: $(LIBRARY:%.c=$(BUILD)/fuzz/obj/%.o)
	$(call archive)
$(BUILD)/fuzz/fuzz_%: tests/fuzz/fuzz_%.c $(BUILD)/fuzz/libspecrt-tools.a $(wildcard tests/fuzz/*.h tests/*.h)
	$(TELL) "CLANG $<"
	$(Q)$(CLANG) $(FUZZ_FLAGS) -fsanitize=fuzzer $(filter-out %.h,$^) $(LDLIBS) -o $@
fuzz: $(FUZZERS:%=$(BUILD)/fuzz/%) ## every fuzzer for FUZZ_SECONDS (60) each
	@tests/fuzz/run.sh $(BUILD)/fuzz $(FUZZ_SECONDS)
