"""The sources of the training text: what is read from which package, under which licence."""
from collections import namedtuple

from text_readers import (dictionary, files, gsm8k, gutenberg, humaneval, legal_tasks, licences,
                          manuals, medquad, pages, python_help, r_books, wordnet)

DOMAINS = ("prose", "code", "legal", "medical", "technical", "qa", "math")
TOOLS = ("deb:mandoc",)  # unpacked first: readers use them

# package: "deb:NAME", "wheel:NAME==VERSION", "sdist:NAME==VERSION" or "shared:PATH"
Source = namedtuple("Source", "domain name package licence cap_mb read")

SPHINX = dict(start=r"<h1", end=r'<div class="(sphinxsidebar|clearer|related)|<footer')
DJANGO = dict(SPHINX, start=r'<div class="section"|<section')
APACHE = dict(end=r'<div class="bottomlang"|id="comments_section',
              drop=r'<div class="toplang">.*?</div>|<div id="quickview">.*?</div>')
BIG = "textcode/data/gibberish/big.txt"
SCANCODE = "wheel:scancode-toolkit-mini==32.5.0"
BROTLI = "sdist:brotli==1.2.1"
PD = "public domain"
WHEELS = (  # the Python code of these, tests left out
    ("django==5.2.19", "BSD-3-Clause"), ("flask==3.1.3", "BSD-3-Clause"),
    ("sqlalchemy==2.1.9", "MIT"), ("networkx==3.6.1", "BSD-3-Clause"),
    ("sympy==1.14.0", "BSD-3-Clause"), ("requests==2.34.2", "Apache-2.0"),
    ("rich==15.0.0", "MIT"), ("fastapi==0.165.0", "MIT"), ("click==8.5.1", "BSD-3-Clause"),
    ("attrs==26.1.0", "MIT"), ("tornado==6.6.1", "Apache-2.0"),
    ("aiohttp==3.14.5", "Apache-2.0 AND MIT"), ("jinja2==3.1.6", "BSD-3-Clause"),
    ("black==26.10.1", "MIT"), ("pytest==9.2.0", "MIT"),
    ("marshmallow==4.4.0", "MIT"), ("httpx==0.28.1", "BSD-3-Clause"), ("trio==0.35.0", "MIT"),
    ("werkzeug==3.1.9", "BSD-3-Clause"), ("scikit-learn==1.9.1", "BSD-3-Clause"),
    ("pandas==3.1.1", "BSD-3-Clause"), ("pydantic==2.14.3", "MIT"),
    ("scrapy==2.19.0", "BSD-3-Clause"), ("dask==2026.8.0", "BSD-3-Clause"),
    ("twisted==26.10.0", "MIT"), ("sphinx==9.0.4", "BSD-2-Clause"),
    ("poetry-core==2.5.0", "MIT"), ("starlette==1.10.0", "BSD-3-Clause"),
)
HELPFUL = ("django", "sqlalchemy", "networkx", "sympy", "rich", "tornado", "scikit-learn",
           "pandas", "dask", "twisted", "sphinx")  # docstrings that answer questions
NO_TESTS = r"/(tests?|testing|testdata|fixtures|locale|_?vendor(ed)?|conf/locale)/|_test\.go"

SOURCES = [
    Source("prose", "austen", "deb:r-cran-janeaustenr", PD, 5,
           r_books("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")),
    Source("prose", "moby-dick", "deb:r-cran-tokenizers", PD, 2,
           r_books("usr/lib/R/site-library/tokenizers/data/Rdata.rdb")),
    Source("prose", "sherlock-holmes", SCANCODE, PD, 1, gutenberg(BIG, "SHERLOCK HOLMES")),
    Source("prose", "war-and-peace", SCANCODE, PD, 4, gutenberg(BIG, "WAR AND PEACE")),
    Source("prose", "us-history", SCANCODE, PD, 2, gutenberg(BIG, "HISTORY OF THE UNITED STATES")),
    Source("prose", "botchan", "sdist:sentencepiece==0.2.3", PD, 1,
           files("*/test/botchan.txt", unwrap=True)),
    Source("prose", "canterbury", BROTLI, PD, 1,
           files("*/tests/testdata/alice29.txt", "*/tests/testdata/asyoulik.txt",
                 "*/tests/testdata/lcet10.txt", "*/tests/testdata/plrabn12.txt", unwrap=True)),
    Source("prose", "opticks", "deb:golang-1.19-src", PD, 1,
           files("usr/share/go-1.19/src/testdata/Isaac.Newton-Opticks.txt", unwrap=True)),
    Source("prose", "devils-dictionary", "deb:dict-devil", PD, 1,
           dictionary("usr/share/dictd/devil.dict.dz")),
    Source("prose", "jargon-file", "deb:dict-jargon", PD, 2,
           dictionary("usr/share/dictd/jargon.dict.dz")),

    Source("code", "python-library", "deb:libpython3.11-stdlib", "PSF-2.0", 8,
           files("**/*.py", skip=NO_TESTS)),
    Source("code", "python-help", "deb:libpython3.11-stdlib", "PSF-2.0", 2, python_help),
    Source("code", "humaneval", "shared:prompts/humaneval/HumanEval.jsonl.gz",
           "MIT; HumanEval, OpenAI", 1, humaneval),
    Source("code", "go", "deb:golang-1.19-src", "BSD-3-Clause", 5,
           files("usr/share/go-1.19/src/*/**/*.go", skip=NO_TESTS + r"|/(cmd|vendor)/|tables\.go")),
    Source("code", "rust", "deb:rust-src", "MIT OR Apache-2.0", 5,
           files("**/library/[a-su-z]*/**/*.rs", skip=NO_TESTS + "|stdarch")),
    Source("code", "stb", "deb:libstb-dev", "MIT OR public domain", 2, files("usr/include/**/*.h")),
    Source("code", "c-extensions", "sdist:psutil==7.2.2", "BSD-3-Clause", 1, files("**/*.[ch]")),
    Source("code", "zstandard", "sdist:zstandard==0.25.0", "BSD-3-Clause", 3, files("**/*.[ch]")),
    Source("code", "brotli", BROTLI, "MIT", 1,
           files("*/c/**/*.[ch]", "*/js/*.ts", "*/java/**/*.java", skip="dictionary|lut")),
    Source("code", "libuv", "sdist:uvloop==0.23.0", "MIT", 2,
           files("*/vendor/libuv/**/*.[ch]", skip="/test/")),
    Source("code", "abseil", "deb:libabsl-dev", "Apache-2.0", 2, files("usr/include/**/*.h")),
    Source("code", "fmt", "deb:libfmt-dev", "MIT", 1, files("usr/include/**/*.h")),
    Source("code", "json-cpp", "deb:nlohmann-json3-dev", "MIT", 1, files("usr/include/**/*.hpp")),
    Source("code", "uthash", "deb:uthash-dev", "BSD-1-Clause", 1, files("usr/include/**/*.h")),
    Source("code", "ruby", "deb:libruby3.1", "BSD-2-Clause OR Ruby", 3,
           files("usr/lib/ruby/3*/**/*.rb", skip="/rdoc/|rubygems/ssl|unicode")),
    Source("code", "lodash", "deb:node-lodash", "MIT", 1,
           files("usr/share/nodejs/lodash/*.js", skip="min")),
    Source("code", "jquery", "deb:libjs-jquery", "MIT", 1,
           files("usr/share/nodejs/jquery/src/**/*.js", "usr/share/javascript/jquery/jquery.js")),
    Source("code", "erlang", "deb:erlang-src", "Apache-2.0", 2,
           files("**/stdlib*/src/*.erl", "**/kernel*/src/*.erl")),
    *(Source("code", "py-" + wheel.split("==")[0], "wheel:" + wheel, licence, 2,
             files("**/*.py", skip=NO_TESTS)) for wheel, licence in WHEELS),
    *(Source("code", "help-" + wheel.split("==")[0], "wheel:" + wheel, licence, 1, python_help)
      for wheel, licence in WHEELS if wheel.split("==")[0] in HELPFUL),

    Source("legal", "licences", SCANCODE, "CC-BY-4.0 (the collection), verbatim copying (texts)", 8,
           licences),
    Source("legal", "legalbench", "shared:domains/legal/legalbench_tasks.tar.gz",
           "CC-BY-4.0, some MIT; LegalBench (CUAD and MAUD by The Atticus Project, ContractNLI by "
           "Y. Koreeda and C. Manning, and others)", 3, legal_tasks),
    Source("legal", "us-founding", "deb:miscfiles", PD, 1,
           files("usr/share/state/*.gz", unwrap=True)),

    Source("medical", "medquad", "shared:domains/medical/medquad.tar.gz",
           "CC-BY-4.0; MedQuAD, A. Ben Abacha and D. Demner-Fushman", 20, medquad),
    Source("medical", "manual-of-surgery", SCANCODE, PD, 2, gutenberg(BIG, "MANUAL OF SURGERY")),

    Source("technical", "python", "deb:python3.11-doc", "PSF-2.0", 8,
           pages("usr/share/doc/python3.11/html/**/*.html",
                 skip="genindex|contents|whatsnew/ch|faq/|search|modindex|/_", **SPHINX)),
    Source("technical", "postgresql", "deb:postgresql-doc-15", "PostgreSQL", 6,
           pages("**/html/*.html", start='<h[12] class="title"', end='class="navfooter"',
                 skip="index")),
    Source("technical", "sqlite", "deb:sqlite3-doc", PD, 5,
           pages("usr/share/doc/sqlite3/*.html", "usr/share/doc/sqlite3/c3ref/*.html",
                 start="<h1|<h2|class=.?fancy",
                 skip="requirements|xref|backlink|syntaxdiag|keyword")),
    Source("technical", "apache", "deb:apache2-doc", "Apache-2.0", 4,
           pages("**/manual/en/**/*.html", **APACHE)),
    Source("technical", "rust-book", "deb:rust-doc", "MIT OR Apache-2.0", 5,
           pages("**/html/book/**/*.html", "**/html/reference/**/*.html", "**/html/nomicon/*.html",
                 "**/html/rust-by-example/**/*.html", "**/html/edition-guide/**/*.html",
                 start="<main>", end="</main>", skip="print.html|404|toc")),
    Source("technical", "nodejs", "deb:nodejs-doc", "MIT", 3,
           files("**/api/*.md.gz", skip="all.md")),
    Source("technical", "django", "deb:python-django-doc", "BSD-3-Clause", 5,
           pages("**/html/**/*.html", skip="/_|index.html|releases/", **DJANGO)),
    Source("technical", "flask", "deb:python-flask-doc", "BSD-3-Clause", 1,
           pages("**/html/**/*.html", skip="/_|genindex|search", **SPHINX)),
    Source("technical", "cmake", "deb:cmake-doc", "BSD-3-Clause", 4,
           pages("**/html/**/*.html", skip="/_|genindex|search", **SPHINX)),
    Source("technical", "llvm", "deb:llvm-14-doc", "Apache-2.0 WITH LLVM-exception", 4,
           pages("**/html/*.html", "**/html/tutorial/**/*.html",
                 skip="genindex|search|/_", **SPHINX)),
    Source("technical", "varnish", "deb:varnish-doc", "BSD-2-Clause", 1,
           pages("**/html/**/*.html", skip="genindex|search|/_", **SPHINX)),
    Source("technical", "zsh", "deb:zsh-doc", "MIT-like (zsh)", 2,
           pages("**/html/*.html", start="<h[12]", skip="Index|toc")),
    Source("technical", "openssl", "deb:libssl-doc", "Apache-2.0", 3,
           manuals("usr/share/man/man*/*")),
    Source("technical", "freebsd-manuals", "deb:freebsd-manpages", "BSD-2-Clause, BSD-4-Clause", 5,
           manuals("usr/share/man/man*/*")),
    Source("technical", "curl", "deb:libcurl4-doc", "curl (MIT-like)", 2,
           files("usr/share/doc/libcurl4/*.md", "usr/share/doc/libcurl4/*.md.gz")),
    Source("technical", "curl-manuals", "deb:libcurl4-doc", "curl (MIT-like)", 2,
           manuals("usr/share/man/man3/*")),

    Source("qa", "wordnet", "deb:wordnet-base", "WordNet (MIT-like)", 6, wordnet),
    Source("qa", "python-faq", "deb:python3.11-doc", "PSF-2.0", 2,
           pages("usr/share/doc/python3.11/html/**/*.html", question=True, **SPHINX)),
    Source("qa", "sqlite-faq", "deb:sqlite3-doc", PD, 1,
           pages("usr/share/doc/sqlite3/*.html", start="<h1|<h2", question=True)),
    Source("qa", "apache-faq", "deb:apache2-doc", "Apache-2.0", 1,
           pages("**/manual/en/**/*.html", question=True, **APACHE)),
    Source("qa", "django-faq", "deb:python-django-doc", "BSD-3-Clause", 1,
           pages("**/html/**/*.html", question=True, **DJANGO)),
    Source("qa", "rust-faq", "deb:rust-doc", "MIT OR Apache-2.0", 1,
           pages("**/html/complement*.html", "**/html/book/**/*.html", "**/html/nomicon/*.html",
                 start="<main>|<h1", end="</main>|</body", question=True, skip="print.html")),
    Source("qa", "llvm-faq", "deb:llvm-14-doc", "Apache-2.0 WITH LLVM-exception", 1,
           pages("**/html/*.html", question=True, **SPHINX)),

    Source("math", "gsm8k", "shared:prompts/gsm8k/train.jsonl", "MIT; GSM8K, OpenAI", 8,
           gsm8k),
]
