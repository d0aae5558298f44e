# What ptxas made of the Hopper engine. Included by CMakeLists.txt of this folder.
if(Python3_Interpreter_FOUND)
  set(check "${CMAKE_CURRENT_SOURCE_DIR}/check_ptxas.py")
  add_test(NAME gemm_ptxas COMMAND ${Python3_EXECUTABLE} "${check}" "${CMAKE_BINARY_DIR}")
  add_test(NAME gemm_ptxas_self_test COMMAND ${Python3_EXECUTABLE} "${check}" --self-test)
  set_tests_properties(gemm_ptxas PROPERTIES TIMEOUT 600 SKIP_RETURN_CODE 77 LABELS codegen)
  set_tests_properties(gemm_ptxas_self_test PROPERTIES TIMEOUT 60 LABELS codegen)
endif()
