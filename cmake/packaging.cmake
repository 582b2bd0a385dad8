# `cpack -G DEB` in the build directory makes packages: libtow0 (the shared library), libtow-dev, tow-tools, and with MPI
# libtow-mpi0 and libtow-mpi-dev. What they depend on is read from the files (dpkg-shlibdeps); what the archive is linked with is named here.
set(TOW_MAINTAINER "The Tow authors <root@localhost>" CACHE STRING "Maintainer that packages name")

set(CPACK_PACKAGE_NAME tow)
set(CPACK_PACKAGE_VENDOR "The Tow authors")
set(CPACK_PACKAGE_CONTACT "${TOW_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
# What is installed knows that its prefix is /usr, and not the directory in which the package is put together.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL runtime development)
if(TOW_PROGRAMS)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()
if(TARGET tow_mpi)
  list(APPEND CPACK_COMPONENTS_ALL mpi mpi-development)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME libtow${TOW_SOVERSION})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION}\nThis package holds the shared library.")

set(this_version "(= ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})")
set(archive_packages libmd-dev zlib1g-dev)
if(BLIS_FOUND)
  list(APPEND archive_packages libblis-openmp-dev)
endif()
if(LIBXSMM_FOUND)
  list(APPEND archive_packages libxsmm-dev)
endif()
if(PCRE2_FOUND)
  list(APPEND archive_packages libpcre2-dev)
endif()
list(JOIN archive_packages ", " archive_packages)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtow-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libtow${TOW_SOVERSION} ${this_version}, ${archive_packages}")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
  "${PROJECT_DESCRIPTION}\nThis package holds headers, the archive, documents, and files for CMake and pkg-config.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME tow-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "libtow${TOW_SOVERSION} ${this_version}")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION
  "${PROJECT_DESCRIPTION}\nThis package holds the command tow and the example program gpt.")

set(CPACK_DEBIAN_MPI_PACKAGE_NAME libtow-mpi${TOW_SOVERSION})
set(CPACK_DEBIAN_MPI_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_MPI_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "libtow${TOW_SOVERSION} ${this_version}")
set(CPACK_COMPONENT_MPI_DESCRIPTION
  "${PROJECT_DESCRIPTION}\nThis package holds the library that carries groups of processes over MPI.")
set(CPACK_DEBIAN_MPI-DEVELOPMENT_PACKAGE_NAME libtow-mpi-dev)
set(CPACK_DEBIAN_MPI-DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_MPI-DEVELOPMENT_PACKAGE_DEPENDS
  "libtow-mpi${TOW_SOVERSION} ${this_version}, libtow-dev ${this_version}")
set(CPACK_COMPONENT_MPI-DEVELOPMENT_DESCRIPTION
  "${PROJECT_DESCRIPTION}\nThis package holds files for CMake and pkg-config of the library for MPI.")

# Debian wants the license under each package's name. Only packages have these files: `cmake --install` leaves them out.
foreach(component ${CPACK_COMPONENTS_ALL})
  string(TOUPPER ${component} upper)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME} RENAME copyright
    COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

# Libraries of Debian are in the folder of their architecture; elsewhere than in packages they are where CMake puts them.
set(CPACK_TOW_MULTIARCH "${CMAKE_LIBRARY_ARCHITECTURE}")
set(CPACK_TOW_SYNOPSIS_libtow${TOW_SOVERSION} "neural-network layers in C (shared library)")
set(CPACK_TOW_SYNOPSIS_libtow-dev "neural-network layers in C (development files)")
set(CPACK_TOW_SYNOPSIS_tow-tools "neural-network layers in C (commands)")
set(CPACK_TOW_SYNOPSIS_libtow-mpi${TOW_SOVERSION} "neural-network layers in C (groups of processes over MPI)")
set(CPACK_TOW_SYNOPSIS_libtow-mpi-dev "neural-network layers in C (development files for MPI)")
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian.cmake)
include(CPack)
