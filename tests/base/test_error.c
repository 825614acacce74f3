/* test_error.c : the words of errors that every library shares. */
#include "base/error.h"
#include "test.h"

TEST(no_memory, "names what asked for memory, and needs no error to write to") {
    specrt_error err;
    CHECK_INT(sl_error_no_memory(&err, "a.gguf"), SPECRT_STATUS_NO_MEMORY);
    CHECK_INT(err.status, SPECRT_STATUS_NO_MEMORY);
    CHECK_STR(err.msg, "a.gguf: out of memory");
    CHECK_INT(sl_error_no_memory(&err, NULL), SPECRT_STATUS_NO_MEMORY);
    CHECK_STR(err.msg, "out of memory");
    CHECK_INT(sl_error_no_memory_for(&err, "the rows"), SPECRT_STATUS_NO_MEMORY);
    CHECK_STR(err.msg, "out of memory for the rows");
    CHECK_INT(sl_error_no_memory_for(&err, "%d rows of %s", 7, "a.gguf"), SPECRT_STATUS_NO_MEMORY);
    CHECK_STR(err.msg, "out of memory for 7 rows of a.gguf");
    CHECK_INT(sl_error_no_memory_for(NULL, "%d rows", 7), SPECRT_STATUS_NO_MEMORY);
    CHECK_INT(sl_error_no_memory(NULL, "a.gguf"), SPECRT_STATUS_NO_MEMORY);
}
