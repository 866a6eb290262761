# Functions that every folder uses to declare its targets, so that warnings, sanitizers and include
# paths are set in one place and no global flag is edited.

# The root of the includes: a header is included by its path from here, "kernels/backend.h".
get_filename_component(SRU_SOURCE_ROOT ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)

function(sru_set_properties target)
  target_compile_features(${target} PUBLIC cxx_std_17)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PUBLIC ${SRU_SOURCE_ROOT})
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${SRU_WERROR}>:-Werror>
                                           $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
  if(SRU_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${SRU_SANITIZE} -fno-omit-frame-pointer)
    if(SRU_SANITIZE MATCHES "undefined")
      target_compile_options(${target} PUBLIC -fno-sanitize-recover=undefined)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${SRU_SANITIZE})
  endif()
endfunction()

# sru_library(NAME SRCS files... [DEPS targets...])
function(sru_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  sru_set_properties(${name})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
endfunction()

# sru_binary(NAME SRCS files... [DEPS targets...])
function(sru_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  sru_set_properties(${name})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# sru_test(NAME SRCS files... [DEPS targets...] [LABELS labels...]): a GoogleTest program that is one
# CTest entry. It runs in the source root, so that test data is named by its path in the project.
function(sru_test name)
  if(NOT SRU_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;LABELS" ${ARGN})
  sru_binary(${name} SRCS ${ARG_SRCS} DEPS ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${SRU_SOURCE_ROOT})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
endfunction()

# sru_backend_tests(NAME PROGRAM): one CTest entry per backend and data type, so that one that is skipped
# cannot hide the result of another. The program reads them from SRU_BACKEND and SRU_DTYPE and exits with
# 77 where the machine lacks the backend. <NAME>_cpu_avx2 runs oneDNN's code for processors without
# AVX-512; <NAME>_cuda_host runs the CUDA backend with its kernels compiled for the host;
# <NAME>_cuda needs a GPU and has the label `gpu`.
function(sru_backend_tests name program)
  foreach(variant cpu reference cpu_avx2 cuda_host cuda_host_bfloat16 cuda cuda_bfloat16)
    # A minute under sanitizers; the golden cases take the same kernels through them in a second.
    if(SRU_SANITIZE AND "${name}_${variant}" STREQUAL "backend_cuda_host_bfloat16")
      continue()
    endif()
    string(REGEX REPLACE "_(avx2|bfloat16)$" "" backend ${variant})
    set(environment SRU_BACKEND=${backend})
    if(variant MATCHES "_bfloat16$")
      list(APPEND environment SRU_DTYPE=bfloat16)
    endif()
    if(variant STREQUAL cpu_avx2)
      list(APPEND environment DNNL_MAX_CPU_ISA=AVX2)
    endif()
    add_test(NAME ${name}_${variant} COMMAND ${program} WORKING_DIRECTORY ${SRU_SOURCE_ROOT})
    set_tests_properties(${name}_${variant} PROPERTIES ENVIRONMENT "${environment}" TIMEOUT 300
                                                       SKIP_RETURN_CODE 77)
    if(variant STREQUAL cuda_host)
      set_tests_properties(${name}_${variant} PROPERTIES TIMEOUT 600)
    endif()
    if(backend STREQUAL cuda)
      set_tests_properties(${name}_${variant} PROPERTIES LABELS gpu RUN_SERIAL TRUE)
    endif()
  endforeach()
endfunction()
