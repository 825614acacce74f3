# ggml's project, alone: repack.cpp and amx/mmq.cpp include ggml-common.h with other macros, so a
# processor with AMX cannot compile them as one piece.
set(CMAKE_UNITY_BUILD OFF)
