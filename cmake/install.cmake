# What `cmake --install` copies, in components: the shared library (runtime), what programs are compiled with
# (development), programs with their manual pages (tools), and the same for MPI (mpi, mpi-development). `cmake --build <dir> --target uninstall` removes it again.

include(CMakePackageConfigHelpers)
set(TOW_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/tow)

# ---- libraries and headers ---------------------------------------------------------------------------------------------

# Two sets of exported targets, as users of the shared library need none of what the archive depends on.
install(TARGETS tow EXPORT tow-shared
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(TARGETS tow_static EXPORT tow-static
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(EXPORT tow-shared NAMESPACE tow:: FILE tow-shared-targets.cmake DESTINATION ${TOW_CMAKE_DIR} COMPONENT development)
install(EXPORT tow-static NAMESPACE tow:: FILE tow-static-targets.cmake DESTINATION ${TOW_CMAKE_DIR} COMPONENT development)
install(DIRECTORY include/tow DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

# ---- what the archive is linked with: for CMake and for pkg-config -----------------------------------------------------

# Modules of pkg-config that libtow.a needs; their flags go into tow.pc as well, so that users of the shared library need
# none of them installed.
set(TOW_STATIC_MODULES libmd zlib)
if(PCRE2_FOUND)
  list(APPEND TOW_STATIC_MODULES libpcre2-8)
endif()
set(TOW_PC_LIBRARIES "")
foreach(module ${TOW_STATIC_MODULES})
  pkg_check_modules(TOW_STATIC QUIET REQUIRED ${module})
  list(APPEND TOW_PC_LIBRARIES ${TOW_STATIC_STATIC_LDFLAGS})
endforeach()
set(TOW_STATIC_ARCHIVES "")
set(TOW_HAS_BLIS OFF)
set(TOW_HAS_LIBXSMM OFF)
if(BLIS_FOUND)
  set(TOW_HAS_BLIS ON)
  list(APPEND TOW_STATIC_ARCHIVES ${BLIS_LIBRARY})
endif()
if(LIBXSMM_FOUND)
  set(TOW_HAS_LIBXSMM ON)
  list(APPEND TOW_STATIC_ARCHIVES ${LIBXSMM_LIBRARY} ${LIBXSMM_NOBLAS_LIBRARY})
endif()
list(APPEND TOW_PC_LIBRARIES ${TOW_STATIC_ARCHIVES})
if(BLIS_FOUND)
  list(APPEND TOW_PC_LIBRARIES -lgomp)
endif()
foreach(library ${CMAKE_DL_LIBS} pthread m)
  list(APPEND TOW_PC_LIBRARIES -l${library})
endforeach()
list(JOIN TOW_PC_LIBRARIES " " TOW_PC_LIBRARIES)

# Both files find their prefix from where they are, so that `cmake --install --prefix` works.
configure_package_config_file(cmake/tow-config.cmake.in ${PROJECT_BINARY_DIR}/tow-config.cmake
  INSTALL_DESTINATION ${TOW_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tow-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tow-config.cmake ${PROJECT_BINARY_DIR}/tow-config-version.cmake
  DESTINATION ${TOW_CMAKE_DIR} COMPONENT development)

file(RELATIVE_PATH TOW_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" TOW_PC_PREFIX ${TOW_PC_PREFIX})
configure_file(cmake/tow.pc.in tow.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tow.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# ---- libtow_mpi ----------------------------------------------------------------------------------------------------------------

# Its source is installed in any case: it can be compiled with any MPI.
install(FILES src/mpi/tow_mpi.c DESTINATION ${CMAKE_INSTALL_DATADIR}/tow/src COMPONENT development)
if(TARGET tow_mpi)
  set_target_properties(tow_mpi PROPERTIES INSTALL_RPATH "\$ORIGIN")
  install(TARGETS tow_mpi EXPORT tow-mpi
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT mpi NAMELINK_COMPONENT mpi-development)
  install(CODE "if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}/usr/${CMAKE_INSTALL_LIBDIR}/libtow_mpi.so.${PROJECT_VERSION}\")
  endif()" COMPONENT mpi)
  install(EXPORT tow-mpi NAMESPACE tow:: FILE tow-mpi-targets.cmake DESTINATION ${TOW_CMAKE_DIR} COMPONENT mpi-development)
  configure_file(cmake/tow_mpi.pc.in tow_mpi.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/tow_mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT mpi-development)
endif()

# ---- programs, manual pages, completion --------------------------------------------------------------------------------

set(TOW_PROGRAMS "")
if(TARGET tow_command)
  list(APPEND TOW_PROGRAMS tow)
  install(TARGETS tow_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()
if(TARGET gpt)
  list(APPEND TOW_PROGRAMS gpt)
  file(RELATIVE_PATH library_from_program /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(gpt PROPERTIES INSTALL_RPATH "\$ORIGIN/${library_from_program}")
  install(TARGETS gpt RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  # In the system's own prefix the loader finds the library, and a search path would be out of place.
  install(CODE "if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}/usr/${CMAKE_INSTALL_BINDIR}/gpt\")
  endif()" COMPONENT tools)
  install(FILES ${PROJECT_BINARY_DIR}/share/tow/tow.txt DESTINATION ${CMAKE_INSTALL_DATADIR}/tow COMPONENT tools)
endif()
foreach(program ${TOW_PROGRAMS})
  install(FILES docs/man/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  install(FILES scripts/completion/${program} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
endforeach()

# Also part of the library; these are to be read, and to begin one's own from.
install(DIRECTORY share/mappings DESTINATION ${CMAKE_INSTALL_DATADIR}/tow COMPONENT development)

# ---- documents ---------------------------------------------------------------------------------------------------------

install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT development
  FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png" PATTERN man EXCLUDE)
install(FILES examples/first.cpp DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development)

# ---- removing ----------------------------------------------------------------------------------------------------------

if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(uninstall
    COMMAND ${CMAKE_COMMAND} -DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
            -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake
    COMMENT "Removing what was installed last" VERBATIM)
endif()
