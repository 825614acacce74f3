# What leaves this folder: manual pages and completion, an installed copy, Debian packages, the files of a
# release, the Python wheel, and the list of what libspecrt.so exports.

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

# The wheel holds the library and the tools, linked so that they need the C library alone. sketch-build is left
# out: OpenBLAS with the kernels of all processors is larger than everything else together.
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

wheels: $(SINGLE) ## the Python package without tools, for Windows, macOS and other Linux, by zig, in build/wheels [NAMES="win_amd64"]
	@tools/wheels.sh $(BUILD) $(VERSION) $$NAMES

# The functions and structs of libspecrt.so, as abidw wrote them down; additions are no change.
ABI := tests/abi/libspecrt.abi
ABI_HEADERS := $(patsubst %,--header-file src/%,specrt.h specrt_block.h specrt_tools.h specrt_adapt.h)
build/abi/libspecrt.so: $(RUNTIME) src/*.h
	+$(Q)$(MAKE) BUILD=build/abi OPT="-O1 -g" lib
abi: build/abi/libspecrt.so ## whether libspecrt.so still fits programs built before (abidiff of abigail-tools)
	@abidiff --no-added-syms $(ABI) build/abi/libspecrt.so || { echo "$(ABI): the interface changed; \
	docs/STABILITY.md says what may; make abi-accept takes it" >&2; exit 1; }
abi-accept: build/abi/libspecrt.so ## takes the interface as it is now
	abidw --exported-interfaces-only --drop-private-types $(ABI_HEADERS) --no-corpus-path --no-comp-dir-path --no-show-locs \
	    --no-elf-needed --no-parameter-names --no-write-default-sizes --type-id-style hash build/abi/libspecrt.so >$(ABI)
