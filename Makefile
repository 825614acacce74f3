# specrt. `make help` lists the targets. Everything is built under build/, on all cores unless -j says
# otherwise, with one line per file (V=1 prints commands). The rules of a folder are in a .mk file of the folder.

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
BREW     := brew install make pkgconf zstd json-c pcre2 utf8proc openblas; export PKG_CONFIG_PATH="$$(brew --prefix openblas)/lib/pkgconfig"

# What a user names reaches recipes as it was typed, by the environment: in a recipe's text, make and the shell run
# commands that are in a name. Folders that rules are about have plain names.
NAMED := MODEL DRAFT TOKENIZER CORPUS OUT ARGS NAME FILE NAMES SECTION LLAMA PREFIX DESTDIR LIBDIR
$(foreach v,$(NAMED),$(if $(filter-out undefined,$(origin $v)),$(eval override export $v := $$(value $v))))
SPECIAL := \# $$ ` " ' \ ; & | < > ( ) * ? [ ] { } ~ !
$(foreach v,BUILD CUDA_HOME,$(if $(filter command environment,$(origin $v)),\
    $(if $(strip $(word 2,$(value $v)) $(foreach c,$(SPECIAL),$(findstring $c,$(value $v)))),\
        $(error $v=$(value $v): expected a folder whose name has no blank and none of $(SPECIAL)))))

ifneq ($(filter-out help test-cuda models llama-fetch llama-patched,$(or $(MAKECMDGOALS),all)),) # these need none
ifneq ($(shell pkg-config --exists $(PKGS) openblas 2>/dev/null && echo ok),ok)
$(error missing libraries; run: $(if $(filter Darwin,$(shell uname -s)),$(BREW),apt-get install -y $(APT)))
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

# Who copies the single header has no other: so do the examples, the adapters, the benchmarks, and the tests of
# kernels and of an example's source, which compile all of it.
COPIES := $(patsubst %.c,$(BUILD)/%.o,$(wildcard examples/*.c adapters/*/*.c bench/*.c tests/llama/*.c) tests/specrt/test_simd.c tests/specrt/test_source.c)
$(COPIES): SEES := -Iinclude
$(COPIES): include/specrt.h

TOOLS    := $(filter-out specrt-llama,$(notdir $(patsubst %/,%,$(dir $(wildcard tools/*/main.c)))))
RUNTIME  := $(wildcard src/*/*.c)
LIBRARY  := $(RUNTIME) $(wildcard lib/*/*.c engine/*/*.c)
EXAMPLES := $(basename $(notdir $(wildcard examples/*.c examples/*.cpp)))
LIB      := $(BUILD)/libspecrt-tools.a
ifneq ($(filter-out help lint format clean,$(or $(MAKECMDGOALS),all)),)
$(shell mkdir -p $(BUILD)/bin $(BUILD)/bench $(addprefix $(BUILD)/,$(sort $(dir $(wildcard src/*/*.c lib/*/*.c engine/*/*.c tools/*/*.c tools/*/*/*.c adapters/*/*.c tests/*/*.c bench/*.c bench/*/*.c examples/*.c)))))
endif

.DEFAULT_GOAL := all
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

# The text of CORPUS, else answers above the sample text, into OUT, else a folder of the model's name. ARGS are
# options of specrt prepare.
PREPARE = if [ "$$CORPUS" ]; then set -- --text "$$CORPUS"; else set -- --fill data/corpus/*/; fi; \
	exec $(BUILD)/bin/specrt prepare --for specrt --target "$$MODEL" $${DRAFT:+--drafter "$$DRAFT"} \
	    --prompts data/prompts/*.jsonl "$$@" -o "$${OUT:-$(BUILD)/$$name}" $$ARGS
# The sample answers fast, the published numbers of rows would be half of its vocabulary, and no policy that is
# compared searches its index.
SAMPLE := --limit 20 --with graph,clusters,dynaspec@mean-rows=1024@schedule=flat,coral@clusters=64@mean-rows=1024,sketch,index@m=16@ef-construction=100

calibrate: tools ## the main job: MODEL= or TOKENIZER= DRAFT= CORPUS= OUT= ARGS=; with none, the sample in data/
	@if [ "$$MODEL" ] && [ "$$TOKENIZER" ]; then echo "expected MODEL= or TOKENIZER=, found both" >&2; exit 2; fi; \
	MODEL=$${MODEL:-$$TOKENIZER}; name=$${MODEL%/}; name=$${name##*/}; name=$${name%.*}; \
	if [ -z "$$MODEL" ]; then \
	    MODEL=data/sample/target.gguf DRAFT=$${DRAFT:-data/sample/draft.safetensors}; \
	    name=$${CORPUS:+corpus}; name=$${name:-sample}; ARGS="$(SAMPLE) $$ARGS"; \
	fi; $(PREPARE)

models: ## published models and text, in build/models: NAME= [FILE=, one you have]; without NAME the list
	@exec tools/models.sh $(BUILD)/models "$$NAME" "$$FILE"

# Without DRAFT= ours drafts; an empty one lets the target draft for itself.
calibrate-smollm2: tools ## the same on SmolLM2-135M, fetched (93 MB) or MODEL=, with data/smollm2 or DRAFT=
	@tools/models.sh $(BUILD)/models smollm2 "$$MODEL" >/dev/null
	@MODEL=$(BUILD)/models/smollm2.gguf DRAFT=$${DRAFT-data/smollm2/draft.safetensors} name=smollm2; $(PREPARE)

clean: ## remove build/
	rm -rf build

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(RULES)

include tests/gpu/rules.mk tests/rules.mk tests/fuzz/rules.mk bench/rules.mk adapters/llama/rules.mk
include tools/packaging.mk docs/rules.mk .ci/lint/rules.mk
RULES := $(MAKEFILE_LIST)
# A target of one plain word is a command, also where a folder has its name.
.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' $(RULES))

-include $(shell find $(BUILD) -path '$(BUILD)/text*' -prune -o -type f -name '*.d' -print 2>/dev/null)
