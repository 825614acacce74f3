LINTED := $(wildcard src/*.h src/*/*.[ch] src/cuda/*.cu* lib/*/*.[ch] tools/*/*.[ch] tools/*/*/*.[ch] engine/*/*.[ch] adapters/*/*.[ch] adapters/*/*.hpp tests/*.[ch] tests/*/*.[ch] tests/*/*.cc tests/gpu/ptx/*.h tests/gpu/ptx/*.cc examples/*.[ch] examples/*.cpp bench/*.c bench/*/*.[ch])
# Data and patterns of one line are as long as they are.
SCRIPTS := $(wildcard docs/site/*.sh bench/*.sh bench/*/*.bash tests/*.sh tests/*/*.sh tests/gpu/ptx/*.sh tools/*.sh adapters/*/*.sh)
PAGES := $(wildcard *.md data/*.md docs/*.md docs/*/*.md tools/*/*.md bench/results/*.md python/*.md)
PROSE := README.md CONTRIBUTING.md $(wildcard docs/*.md docs/*/*.md tools/*/README.md python/README.md bench/results/*.md data/*.md)
lint: ## format, generated files, order of folders, lengths, one helper for no memory, one place for systems, white space, links, prose, texts of errors and help, where figures come from, what Microsoft's compiler refuses
	@printf '%s\n' $(LINTED) | xargs -n 8 -P $(shell nproc) clang-format --dry-run -Werror
	@tools/amalgamate src/single_header.h | cmp -s - include/specrt.h && \
	    tools/amalgamate src/cuda/specrt_kernels.cu src/single_header.h | cmp -s - cuda/specrt_kernels.cu || \
	    { echo "$(SINGLE): not what src/ gives; run make single-header"; exit 1; }
	@awk -f .ci/lint/includes.awk $(filter src/% lib/% engine/% tools/% adapters/%,$(filter-out src/single_header.h,$(LINTED)))
	@! grep -nE '^[a-z][a-z0-9_ ]*[ *](sl_)?[a-z0-9_]+\(' $(filter %.h,$(filter lib/%,$(LINTED))) | grep -vE '(static|typedef|sl_[a-z0-9_]+\()'
	@awk -f .ci/lint/lengths.awk $(LINTED)
	@awk 'length > 110 { printf "%s:%d: line over 110 characters\n", FILENAME, FNR; bad = 1 } END { exit bad }' $(LINTED)
	@! grep -nE 'specrt_error_set\(.*NO_MEMORY' $(filter-out lib/base/error.c,$(filter lib/% engine/% tools/%,$(LINTED)))
	@! grep -nE '__(linux|APPLE)__|_WIN32' $(filter-out src/core/os.c lib/base/system.c,$(filter %.c %.h,$(filter src/% lib/% engine/% tools/%,$(LINTED))))
	@! grep -nE '[[:space:]]+$$' $(LINTED) $(RULES) README.md
	@awk 'length > 100 && !/^ *(["\047]|\{"|\[\{)/ { printf "%s:%d: line over 100 characters\n", FILENAME, FNR; bad = 1 } END { exit bad }' $(SCRIPTS)
	@awk -f .ci/lint/links.awk $(PAGES)
	@python3 .ci/lint/prose.py $(PROSE)
	@python3 .ci/lint/errors.py --check $(filter %.c,$(filter src/% lib/% engine/% tools/% adapters/%,$(LINTED)))
	@! command -v codespell >/dev/null || codespell $(PROSE)
	@awk -f .ci/lint/readme.awk README.md
	@.ci/lint/msvc.sh include/specrt.h
	@awk -f .ci/lint/figures.awk docs/BENCHMARKS.md $(wildcard bench/results/*.md bench/results/raw/*/*.txt)

format: ## clang-format everything in place
	clang-format -i $(LINTED)
