# The grouped GEMM benchmark: a library that the CLI calls too, and a program of its own.
if(SLIPSTREAM_HAS_CUDA)
  add_library(slipstream_gemm_bench STATIC gemm_bench.cc cublas_peer.cc peer_process.cc)
  target_include_directories(slipstream_gemm_bench PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/..")
  target_link_libraries(slipstream_gemm_bench PUBLIC slipstream_core
    PRIVATE slipstream_options slipstream_gemm slipstream_schedule fmt::fmt ${CMAKE_DL_LIBS})
  add_executable(gemm_bench gemm_bench_main.cc)
  target_link_libraries(gemm_bench PRIVATE slipstream_options slipstream_gemm_bench fmt::fmt)
  target_link_options(gemm_bench PRIVATE -static-libstdc++ -static-libgcc)
endif()
