# Finds the CUDA toolkit, if there is one. Sets SRU_CUDA_FOUND, and then also SRU_NVCC, SRU_CUDA_INCLUDE_DIR,
# SRU_CUDA_LIBRARY_DIR and SRU_CUDART_STATIC. nvcc is called directly and not through CMake's CUDA language: the latter makes
# CUDA the linking language of every program, and each CMake knows only the toolkits of its time.
#
#   SRU_CUDA                AUTO (where nvidia-smi finds GPUs, for these, and not under sanitizers), ON (an error without a toolkit)
#                           or OFF
#   SRU_CUDA_ARCHITECTURES  compute capabilities to compile for; the last one also as PTX, which newer
#                           GPUs compile for themselves, at each start. Clusters are only in code
#                           for 90 and later. Default with ON: all that the toolkit knows of those that the kernels are
#                           meant for
set(SRU_CUDA AUTO CACHE STRING "Build the CUDA kernels: AUTO, ON or OFF")
set_property(CACHE SRU_CUDA PROPERTY STRINGS AUTO ON OFF)
# 12.0 has cudaInitDevice() and launches with attributes; what is newer is asked for by CUDART_VERSION.
set(SRU_LEAST_CUDA 12.0)

set(SRU_CUDA_FOUND FALSE)
set(SRU_CUDA_CODE "" CACHE INTERNAL "Empty if there is none")
set(why "")
set(gpus "")
set(architectures 80 86 89 90 100 120)
if(SRU_CUDA STREQUAL "AUTO" AND NOT SRU_SANITIZE)
  find_program(SRU_NVIDIA_SMI nvidia-smi)
  if(SRU_NVIDIA_SMI)
    execute_process(COMMAND ${SRU_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE said ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" gpus "${said}")
    list(TRANSFORM gpus REPLACE "\\." "")
    list(SORT gpus COMPARE NATURAL)
    list(REMOVE_DUPLICATES gpus)
  endif()
endif()
if(SRU_CUDA STREQUAL "AUTO" AND SRU_SANITIZE)
  message(STATUS "CUDA kernels: off under sanitizers (SRU_CUDA=ON builds them)")
elseif(SRU_CUDA STREQUAL "AUTO" AND NOT gpus AND NOT SRU_CUDA_ARCHITECTURES)
  set(why "no GPU here; SRU_CUDA=ON compiles for all that the toolkit knows")
elseif(SRU_CUDA)
  set(why "no toolkit with nvcc, cublasLt.h and cudart_static")
  find_program(SRU_NVCC nvcc HINTS ENV CUDACXX PATHS ${CMAKE_CUDA_COMPILER} $ENV{CUDACXX}
               $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
  if(SRU_NVCC)
    execute_process(COMMAND ${SRU_NVCC} --version OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(NOT said MATCHES "release ([0-9]+\\.[0-9]+)")
      set(why "${SRU_NVCC} does not say its version")
    elseif(CMAKE_MATCH_1 VERSION_LESS SRU_LEAST_CUDA)
      set(why "${SRU_NVCC} is of CUDA ${CMAKE_MATCH_1}, expected ${SRU_LEAST_CUDA} or newer")
    else()
      if(gpus)
        set(architectures ${gpus})
      elseif(CMAKE_MATCH_1 VERSION_LESS 12.8)  # the first that knows Blackwell
        list(REMOVE_ITEM architectures 100 120)
      endif()
      set(SRU_CUDA_VERSION ${CMAKE_MATCH_1})
      get_filename_component(root ${SRU_NVCC} REALPATH)
      get_filename_component(root ${root}/../.. ABSOLUTE)
      set(hints ${root} ${root}/targets/${CMAKE_SYSTEM_PROCESSOR}-linux)
      find_path(SRU_CUDA_INCLUDE_DIR cublasLt.h HINTS ${hints} PATH_SUFFIXES include)
      find_library(SRU_CUDART_STATIC cudart_static HINTS ${hints} PATH_SUFFIXES lib64 lib)
      if(SRU_CUDA_INCLUDE_DIR AND SRU_CUDART_STATIC)
        set(SRU_CUDA_FOUND TRUE)
        get_filename_component(SRU_CUDA_LIBRARY_DIR ${SRU_CUDART_STATIC} DIRECTORY)
      endif()
    endif()
  endif()
endif()
if(SRU_CUDA_FOUND)  # only then, as what is set asks for kernels
  set(SRU_CUDA_ARCHITECTURES ${architectures} CACHE STRING "Compute capabilities of the CUDA kernels")
  message(STATUS "CUDA kernels: ${SRU_NVCC}, for ${SRU_CUDA_ARCHITECTURES}")
elseif(why AND SRU_CUDA STREQUAL "AUTO")
  message(STATUS "CUDA kernels: off, ${why}")
elseif(why)
  message(FATAL_ERROR "SRU_CUDA=${SRU_CUDA}: ${why}; name another toolkit's nvcc with -DSRU_NVCC=..., or set SRU_CUDA=OFF")
endif()

# -fmad=false: see kernels/cuda/kernels/scan.cuh.
set(SRU_NVCC_FLAGS -std=c++17 -O3 -fmad=false -I${SRU_SOURCE_ROOT} -Xcompiler -Wall,-Wextra,-fPIC)
if(SRU_WERROR)
  list(APPEND SRU_NVCC_FLAGS -Werror all-warnings)
endif()
# Each program has the kernels for every architecture; compressed for size they take a quarter. Only toolkits whose
# drivers all unpack that: older ones compress as they do by default.
if(SRU_CUDA_FOUND AND SRU_CUDA_VERSION VERSION_GREATER_EQUAL 13)
  list(APPEND SRU_NVCC_FLAGS --compress-mode=size)
endif()

# sru_cuda_objects(VARIABLE files.cu...): sets VARIABLE to object files, to be listed among a library's sources. In a build with tests
# nvcc leaves the machine code and the PTX in cuda_code/ beside them, which tests/kernels/cuda_ptxas_test.py looks at.
function(sru_cuda_objects variable)
  set(code)
  foreach(architecture ${SRU_CUDA_ARCHITECTURES})
    list(APPEND code -gencode arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  list(GET SRU_CUDA_ARCHITECTURES -1 newest)
  list(APPEND code -gencode arch=compute_${newest},code=compute_${newest})
  if(SRU_BUILD_TESTS)
    set(SRU_CUDA_CODE ${CMAKE_CURRENT_BINARY_DIR}/cuda_code CACHE INTERNAL "Empty if there is none")
    file(MAKE_DIRECTORY ${SRU_CUDA_CODE})
    list(APPEND code --keep --keep-dir ${SRU_CUDA_CODE})
  endif()
  set(objects)
  foreach(source ${ARGN})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
    get_filename_component(folder ${object} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${SRU_NVCC} ${SRU_NVCC_FLAGS} ${code} -MD -MF ${object}.d
              -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMENT "Compiling CUDA kernels ${source}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${variable} ${objects} PARENT_SCOPE)
endfunction()
