# Benchmarks.
BENCHES := $(patsubst bench/%.c,%,$(wildcard bench/bench_*.c))
define BENCH
$(BUILD)/bench/$(1): $(BUILD)/bench/$(1).o $(if $(shell grep -l SPECRT_IMPLEMENTATION bench/$(1).c),,$(BUILD)/single.o) $(call tools_of,bench/$(1).c) $(LIB)
	$$(call link)
endef
$(foreach b,$(BENCHES),$(eval $(call BENCH,$(b))))

SETTINGS := MACHINE PAIRS THREADS TASKS LIMIT TOKENS ALIGN WARM RUNS TEMPERATURES
bench-build: $(BENCHES:%=$(BUILD)/bench/%)
bench: all bench-build ## benchmarks; results belong in bench/results
	@bench/run.sh $(BUILD)

benchmarks: all bench-build $(BUILD)/tests/trace ## measure the figures of bench/results again [NAMES=, settings of bench/settings.bash]
	@bench/benchmarks.sh $$NAMES BUILD=$(BUILD) $(foreach s,$(SETTINGS),$(if $(filter-out undefined,$(origin $s)),"$s=$$$s"))
