# Writes version.cc at every build, and touches it only when something changed.
execute_process(
  COMMAND git describe --always --dirty --tags
  WORKING_DIRECTORY "${SOURCE_DIR}"
  OUTPUT_VARIABLE SLIPSTREAM_SOURCE_VERSION OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE result ERROR_QUIET)
if(NOT result EQUAL 0)
  set(SLIPSTREAM_SOURCE_VERSION "no git")
endif()
configure_file("${SOURCE_DIR}/version.cc.in" "${OUTPUT}" @ONLY)
