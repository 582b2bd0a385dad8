# Finds libxsmm as static libraries. libxsmm calls BLAS for what it does not compile itself; libxsmmnoblas stands in for it.
#
#   LIBXSMM_FOUND, LIBXSMM_VERSION, target LIBXSMM::LIBXSMM

find_path(LIBXSMM_INCLUDE_DIR libxsmm.h PATH_SUFFIXES libxsmm)
find_library(LIBXSMM_LIBRARY libxsmm.a)
find_library(LIBXSMM_NOBLAS_LIBRARY libxsmmnoblas.a)
mark_as_advanced(LIBXSMM_INCLUDE_DIR LIBXSMM_LIBRARY LIBXSMM_NOBLAS_LIBRARY)

if(LIBXSMM_INCLUDE_DIR AND EXISTS "${LIBXSMM_INCLUDE_DIR}/libxsmm_version.h")
  file(STRINGS "${LIBXSMM_INCLUDE_DIR}/libxsmm_version.h" _libxsmm_lines REGEX "#define LIBXSMM_(CONFIG_)?VERSION_(MAJOR|MINOR) +[0-9]+")
elseif(LIBXSMM_INCLUDE_DIR)
  file(STRINGS "${LIBXSMM_INCLUDE_DIR}/libxsmm_config.h" _libxsmm_lines REGEX "#define LIBXSMM_(CONFIG_)?VERSION_(MAJOR|MINOR) +[0-9]+")
endif()
string(REGEX REPLACE ".*VERSION_MAJOR +([0-9]+).*" "\\1" _libxsmm_major "${_libxsmm_lines}")
string(REGEX REPLACE ".*VERSION_MINOR +([0-9]+).*" "\\1" _libxsmm_minor "${_libxsmm_lines}")
set(LIBXSMM_VERSION "${_libxsmm_major}.${_libxsmm_minor}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LIBXSMM
  REQUIRED_VARS LIBXSMM_LIBRARY LIBXSMM_NOBLAS_LIBRARY LIBXSMM_INCLUDE_DIR VERSION_VAR LIBXSMM_VERSION)

if(LIBXSMM_FOUND AND NOT TARGET LIBXSMM::LIBXSMM)
  add_library(LIBXSMM::LIBXSMM STATIC IMPORTED)
  set_target_properties(LIBXSMM::LIBXSMM PROPERTIES
    IMPORTED_LOCATION "${LIBXSMM_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${LIBXSMM_INCLUDE_DIR}"
    INTERFACE_LINK_LIBRARIES "${LIBXSMM_NOBLAS_LIBRARY};${CMAKE_DL_LIBS};m")
endif()
