docs: docs-api man ## the documentation as a static site, in build/site: pages, API reference, manual pages; needs pandoc and doxygen
	@docs/site/build.sh build/site build/api/html $(BUILD)/man $(PAGES)

docs-api: ## the API reference of the headers, in build/api/html; needs doxygen, and fails where a comment is missing
	@command -v doxygen >/dev/null || { echo "docs: no doxygen; run: apt-get install -y doxygen pandoc" >&2; exit 1; }
	@mkdir -p build && rm -rf build/api
	@doxygen docs/api/Doxyfile
