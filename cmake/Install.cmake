# cmake --install BUILD --prefix P --strip makes a folder that runs from any place and on a machine that has
# none of the libraries: bin/, lib/ (component `libraries`: the shared libraries that the programs load, except
# the C and C++ runtime, which every machine has) and share/sru/models.

# Programs look into ../lib first. These two are the defaults of target properties.
set(CMAKE_INSTALL_RPATH "\$ORIGIN/../lib")
# This holds in the build folder too: CMake would otherwise pad the RPATH with empty entries, which mean the working directory.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)

install(CODE [[
  # With SRU_CLIENT_ONLY there is sru_client alone.
  set(programs "$<$<TARGET_EXISTS:sru_server>:$<TARGET_FILE:sru_server>>" "$<TARGET_FILE:sru_client>"
               "$<$<TARGET_EXISTS:sru_bench>:$<TARGET_FILE:sru_bench>>")
  list(REMOVE_ITEM programs "")
  file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${programs}
       RESOLVED_DEPENDENCIES_VAR libraries
       UNRESOLVED_DEPENDENCIES_VAR missing
       PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv)\\.so" "^lib(stdc\\+\\+|gcc_s)\\.so")
  if(missing)
    message(FATAL_ERROR "not found, so not installed: ${missing}")
  endif()
  set(folder "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib")
  file(MAKE_DIRECTORY ${folder})
  list(LENGTH libraries count)
  message(STATUS "Installing: ${count} shared libraries in ${folder}")
  foreach(library ${libraries})
    get_filename_component(name ${library} NAME)
    file(REAL_PATH ${library} file)
    file(COPY_FILE ${file} ${folder}/${name} ONLY_IF_DIFFERENT)
  endforeach()
]] COMPONENT libraries)
