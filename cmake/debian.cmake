# What cpack does to the Debian packages that it has made, as it does not do it itself: libraries go into the folder of their
# architecture (usr/lib/x86_64-linux-gnu), manual pages and change logs are compressed, Installed-Size counts links as links, and
# md5sums lists every file. cpack runs it with the names of the packages in CPACK_PACKAGE_FILES.

find_program(DPKG_DEB dpkg-deb)
if(NOT DPKG_DEB)
  message(STATUS "dpkg-deb is not found: libraries stay in usr/lib")
  return()
endif()
set(arch ${CPACK_TOW_MULTIARCH})

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# replace(FILE FROM TO ...): in a text
function(replace file)
  file(READ ${file} text)
  set(rest ${ARGN})
  while(rest)
    list(POP_FRONT rest from to)
    string(REPLACE "${from}" "${to}" text "${text}")
  endwhile()
  file(WRITE ${file} "${text}")
endfunction()

# Files for pkg-config and CMake find their prefix from where they are: they are one folder deeper now.
function(move_libraries root)
  file(GLOB entries ${root}/usr/lib/*)
  if(NOT arch OR NOT entries OR EXISTS ${root}/usr/lib/${arch})
    return()
  endif()
  file(MAKE_DIRECTORY ${root}/usr/lib/${arch})
  foreach(entry ${entries})
    get_filename_component(name ${entry} NAME)
    file(RENAME ${entry} ${root}/usr/lib/${arch}/${name})
  endforeach()
  file(GLOB pc ${root}/usr/lib/${arch}/pkgconfig/*.pc)
  foreach(file ${pc})
    replace(${file} "prefix=\${pcfiledir}/" "prefix=\${pcfiledir}/../" "libdir=\${prefix}/lib\n" "libdir=\${prefix}/lib/${arch}\n")
  endforeach()
  file(GLOB files ${root}/usr/lib/${arch}/cmake/tow/*.cmake)
  set(up "get_filename_component(_IMPORT_PREFIX \"\${CMAKE_CURRENT_LIST_FILE}\" PATH)\n")
  foreach(file ${files})
    replace(${file} "${up}" "${up}get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n"
      "{_IMPORT_PREFIX}/lib/" "{_IMPORT_PREFIX}/lib/${arch}/" "{PACKAGE_PREFIX_DIR}/lib/" "{PACKAGE_PREFIX_DIR}/lib/${arch}/"
      "\${CMAKE_CURRENT_LIST_DIR}/../../../" "\${CMAKE_CURRENT_LIST_DIR}/../../../../")
  endforeach()
endfunction()

# As Debian counts: a file in whole KiB, anything else as one.
function(installed_size root result)
  file(GLOB_RECURSE entries LIST_DIRECTORIES true ${root}/usr/*)
  set(size 1) # usr itself
  foreach(entry ${entries})
    if(IS_SYMLINK ${entry} OR IS_DIRECTORY ${entry})
      math(EXPR size "${size} + 1")
    else()
      file(SIZE ${entry} bytes)
      math(EXPR size "${size} + (${bytes} + 1023) / 1024")
    endif()
  endforeach()
  set(${result} ${size} PARENT_SCOPE)
endfunction()

function(finish package)
  get_filename_component(name ${package} NAME_WE)
  set(root ${CPACK_TEMPORARY_DIRECTORY}/finished/${name})
  file(REMOVE_RECURSE ${root})
  file(MAKE_DIRECTORY ${CPACK_TEMPORARY_DIRECTORY}/finished)
  run(${DPKG_DEB} --raw-extract ${package} ${root})
  move_libraries(${root})

  file(READ ${root}/DEBIAN/control control)
  string(REGEX MATCH "Package: ([^\n]+)" match "${control}")
  set(doc ${root}/usr/share/doc/${CMAKE_MATCH_1})
  string(REGEX MATCH "Maintainer: ([^\n]+)" match "${control}")
  set(maintainer "${CMAKE_MATCH_1}")
  string(REGEX MATCH "Version: ([^\n]+)" match "${control}")
  set(version "${CMAKE_MATCH_1}")
  string(REGEX MATCH "Package: ([^\n]+)" match "${control}")
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(WRITE ${doc}/changelog.Debian "tow (${version}) unstable; urgency=medium\n\n  * See CHANGELOG.md of libtow-dev.\n\n -- ${maintainer}  ${date}\n")
  file(GLOB texts ${doc}/changelog.Debian ${root}/usr/share/man/man*/*.[0-9])
  run(gzip -9 -n -f ${texts})

  # A line of at most 80 characters for each package, and a paragraph that is the same for all.
  string(REGEX REPLACE "Description: [^\n]*(\n [^\n]*)*" "Description: ${CPACK_TOW_SYNOPSIS_${CMAKE_MATCH_1}}
 Tow is a library of neural-network layers in C11, with automatic
 differentiation, rematerialization and compiled training programs."
         control "${control}")

  installed_size(${root} size)
  string(REGEX REPLACE "Installed-Size: *[0-9]+" "Installed-Size: ${size}" control "${control}")
  file(WRITE ${root}/DEBIAN/control "${control}")
  execute_process(COMMAND sh -c "find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum"
    WORKING_DIRECTORY ${root} OUTPUT_FILE ${root}/DEBIAN/md5sums COMMAND_ERROR_IS_FATAL ANY)
  run(find ${root} -type d -exec chmod 755 {} +)
  run(find ${root}/usr ${root}/DEBIAN/control ${root}/DEBIAN/md5sums -type f -not -path "*/bin/*" -exec chmod 644 {} +)
  run(${DPKG_DEB} --root-owner-group -Zxz --build ${root} ${package})
endfunction()

foreach(package ${CPACK_PACKAGE_FILES})
  finish(${package})
endforeach()
