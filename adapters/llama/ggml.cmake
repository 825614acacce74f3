# ggml's project, alone: repack.cpp and amx/mmq.cpp include ggml-common.h with other macros, so a
# processor with AMX cannot compile them as one piece.
set(CMAKE_UNITY_BUILD OFF)

# No AMX: compilers drop the tiles' configuration of this llama.cpp, and its first product of several
# tokens is an illegal instruction (llama.cpp's pull request 26954).
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-mno-amx-tile HAS_AMX)
if(HAS_AMX)
    add_compile_options(-mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
endif()
