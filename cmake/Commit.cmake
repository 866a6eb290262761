# sru_commit: an object library that tells a program from which commit it was built (base/build_info.h). Every build asks git, but
# the source changes only with the answer, so a build without a new commit links nothing anew. Sources without a repository, such as
# a tarball or an image's build, are built with -DSRU_COMMIT=f3b37f5e; the commit is "unknown" otherwise. Run as a script (cmake -P)
# it writes the source.
if(CMAKE_SCRIPT_MODE_FILE)
  if(NOT COMMIT AND EXISTS ${SOURCE}/.git)
    execute_process(COMMAND git --no-optional-locks -C ${SOURCE} describe --always --dirty --abbrev=8 --exclude=*
                    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(NOT COMMIT MATCHES "^[0-9A-Za-z._-]+$")
    set(COMMIT unknown)
  endif()
  file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#include \"base/build_info.h\"

namespace {
const bool is_set = sru::SetBuildCommit(\"${COMMIT}\");
}  // namespace
" @ONLY)
  return()
endif()

set(SRU_COMMIT "" CACHE STRING "The commit that --version names; empty: what git says")
set(commit_source ${CMAKE_BINARY_DIR}/build_commit.cc)
add_custom_target(sru_commit_source
  COMMAND ${CMAKE_COMMAND} -DCOMMIT=${SRU_COMMIT} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${commit_source} -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${commit_source} VERBATIM)
add_library(sru_commit OBJECT ${commit_source})
sru_set_properties(sru_commit)
add_dependencies(sru_commit sru_commit_source)
