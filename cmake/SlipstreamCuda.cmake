# Finds CUDA or leaves it out. Sets SLIPSTREAM_HAS_CUDA and the target slipstream_cuda_headers
# (libcu++ for host compilers: CMake 3.25's toolkit target does not add include/cccl).
set(SLIPSTREAM_HAS_CUDA OFF)
if(NOT SLIPSTREAM_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 90a-real 120a-real)
    endif()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake before 3.26 does not know that nvcc has it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(SLIPSTREAM_HAS_CUDA ON)
  elseif(SLIPSTREAM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "SLIPSTREAM_CUDA is ON and no CUDA compiler was found; put nvcc on PATH or "
                        "use -DSLIPSTREAM_CUDA=OFF")
  endif()
endif()
message(STATUS "Slipstream: CUDA backend ${SLIPSTREAM_HAS_CUDA}")

add_library(slipstream_cuda_headers INTERFACE)
if(SLIPSTREAM_HAS_CUDA)
  target_include_directories(slipstream_cuda_headers SYSTEM INTERFACE
    ${CUDAToolkit_INCLUDE_DIRS} "${CUDAToolkit_TARGET_DIR}/include/cccl"
    "${CUDAToolkit_LIBRARY_ROOT}/include/cccl")
  target_compile_definitions(slipstream_cuda_headers INTERFACE SLIPSTREAM_HAS_CUDA=1)
endif()
