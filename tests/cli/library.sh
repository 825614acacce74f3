# libspecrt.so names its interface and exports what the header declares for applications, under its
# version, and nothing else.
. "$CLI_TESTS/lib.bash"
require nm
library=$(readlink -f "$CLI_BIN/../libspecrt.so")
[ -e "$library" ] || skip "no libspecrt.so (make lib)"
"$root/tools/exports.sh" cc >declared.txt
[ "$(wc -l <declared.txt)" -ge 70 ] || fail "the header declares $(wc -l <declared.txt) functions"
nm -D --defined-only "$library" | awk '$2 != "A" { print $2, $3 }' | sort >exported.txt
interface=$(sed -n 's/.*libspecrt\.so\.\([0-9]*\)\..*/\1/p' <<<"$library")
diff <(sed "s/.*/T &@@SPECRT_$interface/" declared.txt | sort) exported.txt ||
    fail "libspecrt.so exports other functions than specrt.h declares"
readelf -d "$library" | grep -qF "[libspecrt.so.$interface]" || fail "its soname is another"
