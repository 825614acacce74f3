# internals.sed : specrt.h for tests of what it keeps to itself. Functions are what SPECRT_LINKAGE says:
# nothing, in the one object that has them all, or in a test known and not compiled again. Those made by
# macros, and `static inline`, stay with each file.
1i #pragma GCC system_header
/^(static inline|typedef)/b
s/^#define SPECRT_API (extern|static.*)/#define SPECRT_API SPECRT_LINKAGE/
s/^(static|SPECRT__INTERNAL) ([^=]*\()/SPECRT_LINKAGE \2/
s/^(SPECRT__SCAN_[A-Z0-9]+) SPECRT__INTERNAL ([^=]*\()/\1 SPECRT_LINKAGE \2/
s/^([a-z][a-z0-9_ ]* \**specrt_[a-z0-9_]+\()/SPECRT_LINKAGE \1/
