# Finds argp, which reads command lines: a part of glibc, elsewhere (musl) the library argp-standalone.
#
#   Argp_FOUND, target Argp::Argp

include(CheckCSourceCompiles)
check_c_source_compiles("#include <argp.h>
  int main(int argc, char **argv) { return argp_parse(0, argc, argv, 0, 0, 0); }" ARGP_IN_LIBC)
if(ARGP_IN_LIBC)
  set(_argp_found "libc")
else()
  find_path(ARGP_INCLUDE_DIR argp.h)
  find_library(ARGP_LIBRARY argp)
  mark_as_advanced(ARGP_INCLUDE_DIR ARGP_LIBRARY)
  set(_argp_found "${ARGP_LIBRARY}")
  if(NOT ARGP_INCLUDE_DIR)
    set(_argp_found "")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Argp REQUIRED_VARS _argp_found)

if(Argp_FOUND AND NOT TARGET Argp::Argp)
  add_library(Argp::Argp INTERFACE IMPORTED)
  if(NOT ARGP_IN_LIBC)
    set_target_properties(Argp::Argp PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${ARGP_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES "${ARGP_LIBRARY}")
  endif()
endif()
