# Finds BLIS, the OpenMP build, as a static library. It has to be static: the contexts of the sub-configurations are looked up by
# a symbol that the shared library hides (src/kernels/products/gemm_blis.c).
#
#   BLIS_FOUND, BLIS_VERSION, target BLIS::BLIS (header directory, archive, OpenMP, definition TOW_BLIS_VERSION)

find_path(BLIS_INCLUDE_DIR blis.h PATH_SUFFIXES blis-openmp ${CMAKE_LIBRARY_ARCHITECTURE}/blis-openmp blis)
find_library(BLIS_LIBRARY libblis.a PATH_SUFFIXES blis-openmp)
mark_as_advanced(BLIS_INCLUDE_DIR BLIS_LIBRARY)

# The header does not tell its version, so the library is asked, which also shows that it links and has the symbol.
find_package(OpenMP QUIET COMPONENTS C)
if(BLIS_INCLUDE_DIR AND BLIS_LIBRARY AND OpenMP_C_FOUND AND NOT DEFINED BLIS_VERSION)
  set(_blis_source "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/blis_version.c")
  file(WRITE "${_blis_source}"
    "#include <stdio.h>\n#include <blis.h>\nint main(void)\n{\n    bli_init();\n"
    "    if (bli_gks_lookup_nat_cntx(bli_arch_query_id()) == NULL) return 1;\n    fputs(bli_info_get_version_str(), stdout);\n    return 0;\n}\n")
  try_run(_blis_run _blis_compiled "${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/blis" "${_blis_source}"
    COMPILE_DEFINITIONS -D_GNU_SOURCE
    CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${BLIS_INCLUDE_DIR}"
    LINK_LIBRARIES "${BLIS_LIBRARY}" OpenMP::OpenMP_C m
    RUN_OUTPUT_VARIABLE _blis_version)
  if(_blis_compiled AND _blis_run EQUAL 0)
    set(BLIS_VERSION "${_blis_version}" CACHE INTERNAL "Version of BLIS")
  else()
    message(STATUS "BLIS: ${BLIS_LIBRARY} does not link or run")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(BLIS REQUIRED_VARS BLIS_LIBRARY BLIS_INCLUDE_DIR OpenMP_C_FOUND BLIS_VERSION
  VERSION_VAR BLIS_VERSION)

if(BLIS_FOUND AND NOT TARGET BLIS::BLIS)
  add_library(BLIS::BLIS STATIC IMPORTED)
  set_target_properties(BLIS::BLIS PROPERTIES
    IMPORTED_LOCATION "${BLIS_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${BLIS_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS "TOW_BLIS_VERSION=\"${BLIS_VERSION}\""
    INTERFACE_LINK_LIBRARIES "OpenMP::OpenMP_C;m")
endif()
