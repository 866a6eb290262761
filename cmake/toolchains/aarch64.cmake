# Cross-compiles for 64-bit Arm (Linux) on a machine that is not one: scripts/arm64.sh uses it. By hand:
#
#   cmake --preset release -B build-arm64 -DCMAKE_TOOLCHAIN_FILE=cmake/toolchains/aarch64.cmake -DSRU_SYSROOT=DIR
#
# DIR has the libraries and headers of a Debian for arm64 (scripts/arm64.sh sysroot makes it). The compiler is
# g++-aarch64-linux-gnu; programs run by qemu-aarch64-static (package qemu-user-static), in tests and while building.
# protoc and grpc_cpp_plugin are this machine's, so both have to have the same version of protobuf.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(SRU_SYSROOT "$ENV{SRU_SYSROOT}" CACHE PATH "Root of a Debian for arm64 with the libraries")
if(NOT EXISTS ${SRU_SYSROOT}/usr/lib/aarch64-linux-gnu)
  message(FATAL_ERROR "SRU_SYSROOT: expected a folder with usr/lib/aarch64-linux-gnu, found '${SRU_SYSROOT}'; "
                      "scripts/arm64.sh sysroot makes one")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES SRU_SYSROOT)
set(CMAKE_SYSROOT ${SRU_SYSROOT})
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_DIR} "")
set(ENV{PKG_CONFIG_LIBDIR} ${SRU_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${SRU_SYSROOT}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${SRU_SYSROOT})

find_program(SRU_QEMU NAMES qemu-aarch64-static qemu-aarch64 DOC "Runs programs for arm64")
if(SRU_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${SRU_QEMU} -L ${SRU_SYSROOT})
endif()
