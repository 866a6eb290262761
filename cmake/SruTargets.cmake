# Functions that every folder uses to declare its targets, so that warnings, sanitizers and include
# paths are set in one place and no global flag is edited.

# The root of the includes: a header is included by its path from here, "kernels/backend.h".
get_filename_component(SRU_SOURCE_ROOT ${CMAKE_CURRENT_LIST_DIR}/.. ABSOLUTE)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(SRU_X86 TRUE)
else()
  set(SRU_X86 FALSE)
endif()

# GCC collects its garbage from 1 GB on, not from 128 MB: a tenth to a fifth less time, and a process takes 1.5 GB instead of 1.2.
set(SRU_GCC_MEMORY $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>)

function(sru_set_properties target)
  target_compile_features(${target} PUBLIC cxx_std_17)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${SRU_SOURCE_ROOT}>)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<BOOL:${SRU_WERROR}>:-Werror>
                                           $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety> ${SRU_GCC_MEMORY})
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # takes a source that is compiled with others for a header
  endif()
  if(NOT SRU_X86)
    # Compilers make a * b + c one operation where every processor has it, as on arm64. It would depend on how a loop is compiled
    # whether they do, and with it the bits of a result.
    target_compile_options(${target} PRIVATE -ffp-contract=off)
  endif()
  if(SRU_SANITIZE)
    target_compile_options(${target} PUBLIC -fsanitize=${SRU_SANITIZE} -fno-omit-frame-pointer)
    if(SRU_SANITIZE MATCHES "undefined")
      # vptr: the distribution's libraries have no type information of their classes.
      target_compile_options(${target} PUBLIC -fno-sanitize-recover=undefined -fno-sanitize=vptr)
    endif()
    if(SRU_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      target_compile_definitions(${target} PUBLIC __SANITIZE_ADDRESS__=1)  # as GCC defines it, which code asks for
    endif()
    if(SRU_SANITIZE MATCHES "fuzzer" AND CMAKE_CURRENT_SOURCE_DIR MATCHES "^${SRU_SOURCE_ROOT}/(tests/)?kernels")
      target_compile_options(${target} PRIVATE -fno-sanitize=fuzzer-no-link)  # no fuzzer looks at its branches
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${SRU_SANITIZE})
  endif()
endfunction()

# sru_sources(VARIABLE FOLDERS/...): the sources of folders, without tests. A new one needs no line in a CMakeLists.txt.
function(sru_sources variable)
  list(TRANSFORM ARGN APPEND *.cc)
  file(GLOB sources RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS ${ARGN})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# Compiles the headers that most sources include once (SRU_PRECOMPILE_HEADERS): the standard library's and Abseil's, and for `door` those of
# the messages and of JSON, too; with TESTS also GoogleTest's, and for `door` gRPC's. Each source that takes the headers compiles anew the
# templates that their inline functions use: with gRPC's that is 0.4 s, and few sources of libraries need those. A source must include what
# it needs all the same, or a build without them fails. Where the options of a target do not go with them, the compiler reads the headers
# themselves.
function(sru_reuse_headers target kind)
  if(NOT SRU_PRECOMPILE_HEADERS)
    return()
  endif()
  cmake_parse_arguments(ARG "TESTS" "" "" ${ARGN})
  # What some of the targets would be compiled with anyway, Abseil's NOMINMAX included: the same for all, or the compiler does not take
  # the headers.
  set(flags -fopenmp -pthread -DNOMINMAX)
  set(headers sru_headers_${kind})
  if(ARG_TESTS)
    set(headers sru_test_headers_${kind})
  endif()
  if(NOT TARGET ${headers})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${headers}.cc CONTENT "int main() {}\n")
    if(ARG_TESTS)  # programs have position-independent code of another kind than libraries
      add_executable(${headers} EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${headers}.cc)
    else()
      add_library(${headers} OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/${headers}.cc)
    endif()
    sru_set_properties(${headers})
    target_compile_options(${headers} PRIVATE ${flags})
    set_target_properties(${headers} PROPERTIES PCH_WARN_INVALID OFF UNITY_BUILD OFF)
    target_link_libraries(${headers} PRIVATE absl::flat_hash_map absl::statusor absl::str_format absl::strings absl::synchronization absl::time)
    target_precompile_headers(${headers} PRIVATE <absl/container/flat_hash_map.h> <absl/status/statusor.h> <absl/strings/cord.h>
                              <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/str_split.h>
                              <absl/time/time.h> <absl/types/span.h> <algorithm> <functional> <iostream> <map> <memory> <set> <string>
                              <thread> <vector>)
    if(ARG_TESTS)
      sru_set_test_options(${headers})
      target_link_libraries(${headers} PRIVATE GTest::gmock nlohmann_json::nlohmann_json)
      target_precompile_headers(${headers} PRIVATE <filesystem> <fstream> <gmock/gmock.h> <gtest/gtest.h> <nlohmann/json.hpp> <random>)
    endif()
    if(kind STREQUAL "door")
      target_link_libraries(${headers} PRIVATE sru_proto gRPC::grpc++ nlohmann_json::nlohmann_json)
      target_precompile_headers(${headers} PRIVATE <absl/synchronization/mutex.h> <nlohmann/json.hpp> <sru/v1/inference.pb.h>)
      if(ARG_TESTS)
        target_precompile_headers(${headers} PRIVATE <grpcpp/grpcpp.h> <sru/v1/inference.grpc.pb.h>)
      endif()
    endif()
  endif()
  target_compile_options(${target} PRIVATE ${flags})
  set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF)
  target_precompile_headers(${target} REUSE_FROM ${headers})
endfunction()

# What a Release build compiles code with that nobody waits for: a fifth to a third less time than -O3. GCC inlines half of what it
# would then, and takes for uninitialized what the other half sets.
set(SRU_COLD_OPTIONS $<$<CONFIG:Release>:-O1> $<$<AND:$<CONFIG:Release>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)

# sru_cold(TARGETS...): such code. Its speed shows in no figure of docs/figures.md.
function(sru_cold)
  foreach(target IN LISTS ARGN)
    target_compile_options(${target} PRIVATE ${SRU_COLD_OPTIONS})
  endforeach()
endfunction()

# sru_library(NAME SRCS files... [DEPS targets...] [ALONE files...] [COLD files...])
# ALONE: files that give names of their own to what others of the library call the same. Where the files of a library are compiled
# together (CMAKE_UNITY_BUILD, as in most presets), they are not.
# COLD: those of SRCS that sru_cold() is for, where others of the library are not. Sanitizers have one level for all.
function(sru_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;ALONE;COLD" ${ARGN})
  if(ARG_COLD AND NOT SRU_SANITIZE)
    list(REMOVE_ITEM ARG_SRCS ${ARG_COLD})
    add_library(${name}_cold OBJECT ${ARG_COLD})
    sru_set_properties(${name}_cold)
    sru_cold(${name}_cold)
    target_link_libraries(${name}_cold PRIVATE ${ARG_DEPS})
    target_compile_definitions(${name}_cold PRIVATE $<TARGET_PROPERTY:${name},COMPILE_DEFINITIONS>)
    list(APPEND ARG_SRCS $<TARGET_OBJECTS:${name}_cold>)
  endif()
  add_library(${name} STATIC ${ARG_SRCS})
  sru_set_properties(${name})
  if(ARG_ALONE)
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_DEPS})
  foreach(target IN ITEMS ${name} ${name}_cold)
    if(NOT TARGET ${target})
      continue()
    elseif(ARG_DEPS MATCHES "sru_proto|gRPC::|protobuf::")
      sru_reuse_headers(${target} door)
    elseif(ARG_DEPS MATCHES "absl::")
      sru_reuse_headers(${target} plain)
    endif()
  endforeach()
endfunction()

# sru_binary(NAME SRCS files... [DEPS targets...])
function(sru_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  sru_set_properties(${name})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)  # commands have names in common
  if(CMAKE_INSTALL_RPATH)  # RPATH rather than RUNPATH, so that it also holds for what the libraries load
    target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# What a test's own sources are compiled with in a Release build. They mostly call the libraries, and
# compile in 60% of the time of -O3. Not -O1: GCC warns wrongly about code that it inlines half. A folder
# whose tests compute sets this to another value.
set(SRU_TEST_OPTIMIZATION -O0)

# Seconds. An emulated processor takes ten times as long.
set(SRU_TEST_TIMEOUT 300)
set(SRU_BACKEND_TEST_TIMEOUT 600)
if(SRU_SANITIZE)
  set(SRU_BACKEND_TEST_TIMEOUT 1200)
endif()
if(CMAKE_CROSSCOMPILING)
  set(SRU_TEST_TIMEOUT 3000)
  set(SRU_BACKEND_TEST_TIMEOUT 6000)
endif()

# The compile options of a program that is a test.
function(sru_set_test_options target)
  if(SRU_SANITIZE)  # with optimization, a test's instrumented code takes more than twice as long to compile
    target_compile_options(${target} PRIVATE -O0)
    if(SRU_SANITIZE MATCHES "undefined")  # nor are tests what is tested: the libraries keep it
      target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
    endif()
    if(SRU_SANITIZE MATCHES "fuzzer")
      target_compile_options(${target} PRIVATE -fno-sanitize=fuzzer-no-link)
    endif()
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${SRU_TEST_OPTIMIZATION}>)
  endif()
endfunction()

# sru_test(NAME SRCS files... [DEPS targets...] [LABELS labels...] [RUNS programs...] [ALONE]): a CTest entry that runs the GoogleTest
# tests of the first file. The tests of a folder are one program, such as server_rpc_tests; `--entry=FILE` makes it run those of one
# file (tests/testing/entry_main.cc). An ALONE test, which replaces something that others need, has a program of its own, NAME. The
# target NAME builds the program, whichever it is. Tests run in the source root, so that they name data by its path in the project.
# RUNS: programs of the project that the test starts; SRU_SERVER_BINARY is the path of sru_server, and so on.
function(sru_test name)
  if(NOT SRU_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "ALONE" "" "SRCS;DEPS;LABELS;RUNS" ${ARGN})
  if(ARG_ALONE)
    set(program ${name})
  else()
    file(RELATIVE_PATH program ${SRU_SOURCE_ROOT} ${CMAKE_CURRENT_SOURCE_DIR})
    string(REGEX REPLACE "^tests/" "" program ${program}_tests)
    string(REPLACE "/" "_" program ${program})
  endif()
  list(GET ARG_SRCS 0 file)
  get_filename_component(entry ${file} NAME_WE)
  if(NOT TARGET ${program})
    sru_binary(${program} SRCS ${SRU_SOURCE_ROOT}/tests/testing/entry_main.cc DEPS GTest::gmock)
    sru_set_test_options(${program})
    if(NOT ARG_ALONE)  # six at a time, so each name is unique in the folder
      set_target_properties(${program} PROPERTIES UNITY_BUILD "${CMAKE_UNITY_BUILD}" UNITY_BUILD_BATCH_SIZE 6)
    endif()
    if(ARG_ALONE)
      # compiled without them, as its libraries may not go with theirs
    elseif(CMAKE_CURRENT_SOURCE_DIR MATCHES "/(base|kernels|models|models/[a-z]+|server/base|server/batching)$")
      sru_reuse_headers(${program} plain TESTS)
    else()
      sru_reuse_headers(${program} door TESTS)
    endif()
  endif()
  target_sources(${program} PRIVATE ${ARG_SRCS})
  target_link_libraries(${program} PRIVATE ${ARG_DEPS})
  foreach(run IN LISTS ARG_RUNS)
    string(TOUPPER ${run}_BINARY constant)
    target_compile_definitions(${program} PRIVATE ${constant}="$<TARGET_FILE:${run}>")
    add_dependencies(${program} ${run})
  endforeach()
  if(NOT ARG_ALONE)
    add_custom_target(${name} DEPENDS ${program})
  endif()
  add_test(NAME ${name} COMMAND ${program} --entry=${entry} WORKING_DIRECTORY ${SRU_SOURCE_ROOT})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${SRU_TEST_TIMEOUT})
endfunction()

# sru_rare(PROGRAM TESTS names...): PROGRAM is not built with the rest, but by its name and for these tests of it, which get the
# label `full`.
function(sru_rare program)
  cmake_parse_arguments(ARG "" "" "TESTS" ${ARGN})
  get_target_property(known ${program} EXCLUDE_FROM_ALL)
  set_target_properties(${program} PROPERTIES EXCLUDE_FROM_ALL ON)
  if(SRU_BUILD_TESTS AND NOT known)
    add_test(NAME ${program}_build COMMAND ${CMAKE_COMMAND} --build ${CMAKE_BINARY_DIR} --target ${program})
    set_tests_properties(${program}_build PROPERTIES LABELS full FIXTURES_SETUP ${program} TIMEOUT 600 RUN_SERIAL TRUE)
  endif()
  if(ARG_TESTS)
    set_tests_properties(${ARG_TESTS} PROPERTIES LABELS full FIXTURES_REQUIRED ${program})
  endif()
endfunction()

# sru_thirds(TEST COMMAND...): of the tests of COMMAND, which CTest knows as TEST, only each third one runs there. The others are in
# TEST_2 and TEST_3, which have the label `full`. Sanitizers leave most of these tests out as it is.
function(sru_thirds test)
  if(SRU_SANITIZE OR NOT TEST ${test})
    return()
  endif()
  foreach(property ENVIRONMENT TIMEOUT SKIP_RETURN_CODE COST)
    get_test_property(${test} ${property} ${property})
    if(${property} STREQUAL "NOTFOUND")
      set(${property})
    endif()
  endforeach()
  foreach(part RANGE 1 3)
    set(name ${test})
    if(part GREATER 1)
      set(name ${test}_${part})
      add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${SRU_SOURCE_ROOT})
      set_tests_properties(${name} PROPERTIES LABELS full)
    endif()
    math(EXPR index "${part} - 1")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${ENVIRONMENT};GTEST_TOTAL_SHARDS=3;GTEST_SHARD_INDEX=${index}")
    foreach(property TIMEOUT SKIP_RETURN_CODE COST)
      if(NOT "${${property}}" STREQUAL "")
        set_tests_properties(${name} PROPERTIES ${property} ${${property}})
      endif()
    endforeach()
  endforeach()
endfunction()

# sru_tests(DEPS targets... TESTS names...): an sru_test of each NAME.cc. `FOLDER/NAME` is the test NAME.
function(sru_tests)
  cmake_parse_arguments(ARG "" "" "DEPS;TESTS" ${ARGN})
  foreach(test IN LISTS ARG_TESTS)
    get_filename_component(name ${test} NAME)
    sru_test(${name} SRCS ${test}.cc DEPS ${ARG_DEPS})
  endforeach()
endfunction()

# sru_backend_tests(NAME PROGRAM): one CTest entry per backend, data type and instruction set, so that
# one that is skipped cannot hide the result of another. The program reads them from SRU_BACKEND,
# SRU_DTYPE and SRU_CPU_ISA (tests/testing/tested_backend.h) and exits with 77 when the machine lacks
# what they name. <NAME>_cuda_host runs the CUDA backend with its kernels compiled for the host;
# <NAME>_cuda needs a GPU and has the label `gpu`. ..._fused sets SRU_CUDA_FUSE_LAYERS as well, ..._early
# and ..._reversed SRU_CUDA_HOST_MODE (tests/kernels/cuda_host/launch_shim.h).
#
# Entries with the label `full` are run by .ci/full and by `make test FULL=1`.
#
# Options for tests of what is built of the kernels, which other tests have taken through every mode of the emulated GPU:
# MODEL leaves ..._early and ..._reversed out. TRAINED is for models of full size: under sanitizers, the CPU backend alone.
function(sru_backend_tests name program)
  cmake_parse_arguments(ARG "MODEL;TRAINED" "" "" ${ARGN})
  set(variants cpu reference cpu_avx512 cpu_avx2 cpu_int8 cpu_bfloat16 cpu_bfloat16_amx cpu_bfloat16_amx_emulated cpu_bfloat16_avx512_bf16
      cpu_bfloat16_avx512 cpu_bfloat16_avx2 cuda_host cuda_host_bfloat16 cuda_host_bfloat16_fused cuda_host_reversed
      cuda_host_bfloat16_fused_early cuda_host_bfloat16_fused_reversed cuda cuda_bfloat16 cuda_bfloat16_fused)
  # int8 has products of its own and nothing else.
  if(NOT name MATCHES "^(backend|program|golden)$")
    list(REMOVE_ITEM variants cpu_int8)
  endif()
  if(ARG_MODEL OR ARG_TRAINED)
    list(FILTER variants EXCLUDE REGEX "_(early|reversed)$")
  endif()
  if(ARG_TRAINED)
    list(FILTER variants EXCLUDE REGEX "_fused$")
  endif()
  # Each kernel and each program once; the other data types, instruction sets and orders have the label `full`.
  set(presubmit cpu reference cpu_int8 cpu_bfloat16 cuda_host cuda_host_bfloat16_fused cuda cuda_bfloat16 cuda_bfloat16_fused)
  if(NOT name STREQUAL "golden")  # the others: one data type of the emulated GPU
    list(REMOVE_ITEM presubmit cuda_host_bfloat16_fused)
  endif()
  # Minutes; cuda_program_test and smaller models take the same kernels and programs through the emulated GPU.
  if(name MATCHES "^(program|trained_reader|trained_translator|translator)$")
    list(REMOVE_ITEM presubmit cuda_host)
  endif()
  # The reference backend is what every other entry of these compares with, so it runs there as well.
  set(against_reference "^(backend|program|program_pick)$")
  if(name MATCHES "${against_reference}")
    list(REMOVE_ITEM presubmit reference)
  endif()
  if(SRU_SANITIZE)  # slow: one of each kind of code
    list(FILTER variants INCLUDE REGEX "^(cpu|reference|cpu_avx2|cpu_bfloat16(_amx_emulated|_avx2)?|cuda_host(_bfloat16(_fused)?)?)$")
    # A minute each; the golden cases take the same kernels through the sanitizers in a second.
    if(name MATCHES "^(backend|program|language_model|translator|trained_reader)$")
      list(FILTER variants EXCLUDE REGEX "^cuda_host_bfloat16")
    endif()
    if(name MATCHES "${against_reference}")
      list(REMOVE_ITEM variants reference cpu_bfloat16_avx2)
    endif()
    if(ARG_TRAINED)
      list(FILTER variants INCLUDE REGEX "^cpu(_bfloat16)?$")
    endif()
    set(presubmit cpu cpu_bfloat16 cuda_host)
    # Minutes; other entries take the same kernels through the sanitizers in seconds.
    if(name MATCHES "^(backend|program)$")
      set(presubmit cpu)
    elseif(name MATCHES "^(language_model|program_pick|translator)$")
      set(presubmit cpu cpu_bfloat16)
    endif()
  endif()
  sru_set_test_options(${program})
  foreach(variant ${variants})
    set(entry ${name}_${variant})
    # The name says all: BACKEND[_DTYPE][_ISA][_fused][_MODE].
    string(REGEX MATCH "^(cpu|reference|cuda_host|cuda)_?(int8|bfloat16)?_?(a[mv]x.*)?" matched ${variant})
    set(backend ${CMAKE_MATCH_1})
    set(dtype float32 ${CMAKE_MATCH_2})
    set(isa auto ${CMAKE_MATCH_3})
    list(GET dtype -1 dtype)
    list(GET isa -1 isa)
    set(environment SRU_BACKEND=${backend} SRU_DTYPE=${dtype} SRU_CPU_ISA=${isa})
    if(variant MATCHES "_fused")
      list(APPEND environment SRU_CUDA_FUSE_LAYERS=1)
    endif()
    if(variant MATCHES "_(early|reversed)$")
      list(APPEND environment SRU_CUDA_HOST_MODE=${CMAKE_MATCH_1})
    endif()
    add_test(NAME ${entry} COMMAND ${program} WORKING_DIRECTORY ${SRU_SOURCE_ROOT})
    set_tests_properties(${entry} PROPERTIES ENVIRONMENT "${environment}"
                         TIMEOUT ${SRU_BACKEND_TEST_TIMEOUT} SKIP_RETURN_CODE 77)
    if(backend STREQUAL cuda_host)  # the longest: begin with them
      set_tests_properties(${entry} PROPERTIES COST 100)
    endif()
    if(backend STREQUAL cuda)
      set_tests_properties(${entry} PROPERTIES LABELS gpu RUN_SERIAL TRUE)
    endif()
    if(NOT variant IN_LIST presubmit)
      set_tests_properties(${entry} PROPERTIES LABELS full)
    endif()
  endforeach()
endfunction()
