/* root.h : sequences whose prompt says nothing. Includes after specrt.h and test.h. */
#ifndef TESTS_SPECRT_ROOT_H
#define TESTS_SPECRT_ROOT_H

/* A prompt of one token, which is the root of the first tree, too. */
static inline void root_prompt(specrt_session *s, int32_t token) {
    REQUIRE(specrt_session_prefill(s, &token, 1, NULL) == SPECRT_STATUS_OK);
    REQUIRE(specrt_session_start(s, token) == SPECRT_STATUS_OK);
}

/* A new sequence with that prompt. */
static inline void root(specrt_session *s, int32_t token) {
    REQUIRE(specrt_session_begin(s, NULL) == SPECRT_STATUS_OK);
    root_prompt(s, token);
}

#endif
