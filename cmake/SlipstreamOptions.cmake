# Compiler settings shared by all targets, and slipstream_component(), which all of src/ uses.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

# -g1 keeps functions and lines, not locals, and takes a third off the compile time; Debug has all.
string(REPLACE "-g " "-g1 " CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO} ")

find_program(SLIPSTREAM_CCACHE ccache)
if(SLIPSTREAM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths below the source folder are hashed as relative ones: another clone finds the same objects.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
      CCACHE_NOHASHDIR=1 "${SLIPSTREAM_CCACHE}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

add_library(slipstream_options INTERFACE)
target_compile_options(slipstream_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-missing-field-initializers>)
if(SLIPSTREAM_SANITIZE STREQUAL "address")
  # A null pointer traps by itself, and misaligned access matters where files are read: the fuzz preset
  # checks it there. Together the two double the compile time (main.cc of the CLI: 35 s, not 25).
  set(sanitize -fsanitize=address,undefined -fno-sanitize=null,alignment
      -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(SLIPSTREAM_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(SLIPSTREAM_SANITIZE)
  message(FATAL_ERROR "SLIPSTREAM_SANITIZE is '${SLIPSTREAM_SANITIZE}', expected address or thread")
endif()
if(SLIPSTREAM_SANITIZE)
  # -O1 -g1 halves the compile time of checked code (20 s instead of 40 for the largest test) and keeps
  # line numbers in reports.
  target_compile_options(slipstream_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${sanitize};-O1;-g1>)
  target_link_options(slipstream_options INTERFACE ${sanitize})
endif()

# slipstream_component(NAME sources... DEPENDS targets...): the static library slipstream_NAME of one
# folder of src/. Includes are spelled from src/ ("schedule/golden.h") and include/.
function(slipstream_component name)
  cmake_parse_arguments(arg "" "" "DEPENDS" ${ARGN})
  set(target slipstream_${name})
  if(arg_UNPARSED_ARGUMENTS)
    add_library(${target} STATIC ${arg_UNPARSED_ARGUMENTS})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE slipstream_options)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope}
    "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
  target_link_libraries(${target} ${scope} ${arg_DEPENDS})
endfunction()
