# Writes include/tow/ops_lines.h from ops.h: a macro for every operation that the header declares or lists in TOW_..._LIST(X) and that
# has a tow_value as first or second parameter. CMakeLists.txt includes this file, so that the macros follow the declarations; a header
# that is up to date is left alone. To write it without a build: cmake -P cmake/ops_lines.cmake

get_filename_component(tow_include ${CMAKE_CURRENT_LIST_DIR}/../include/tow ABSOLUTE)

# tow_line_macro(name parameters): appends the macro to tow_macros.
function(tow_line_macro name parameters)
  if(parameters MATCHES "^tow_value [a-z_]+$")
    set(macro "#define ${name}(x) ${name}(tow_at((x), TOW_HERE))")
  elseif(parameters MATCHES "^tow_value ")
    set(macro "#define ${name}(x, ...) ${name}(tow_at((x), TOW_HERE), __VA_ARGS__)")
  elseif(parameters MATCHES "^[a-z_0-9]+ ([a-z_]+), tow_value [a-z_]+, ")
    set(first ${CMAKE_MATCH_1})
    set(macro "#define ${name}(${first}, x, ...) ${name}((${first}), tow_at((x), TOW_HERE), __VA_ARGS__)")
  else()
    return() # it takes the trace, or an array of values
  endif()
  set(tow_macros "${tow_macros}${macro}\n" PARENT_SCOPE)
endfunction()

# tow_declared_macros(header): tow_macros for what it declares.
function(tow_declared_macros header)
  file(READ ${header} text)
  string(REPLACE ";" "" text "${text}") # it parts the lists of CMake
  string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" text "${text}")
  string(REGEX REPLACE "\\\\\n" "" text "${text}")
  string(REGEX REPLACE ",\n +" ", " text "${text}")
  # A list, then the declaration of each of its names; or a declaration.
  string(REGEX MATCHALL "#define TOW_[A-Z_]+_LIST\\(X\\)[^\n]*|#define X\\(name\\)[^\n]*|TOW_API tow_value tow_[a-z0-9_]+\\([^)]*\\)"
         found "${text}")
  foreach(declaration IN LISTS found)
    if(declaration MATCHES "^#define TOW_[A-Z_]+_LIST")
      string(REGEX MATCHALL "X\\([a-z0-9_]+ *\\)" names "${declaration}")
    elseif(declaration MATCHES "^#define X\\(name\\) TOW_API tow_value (tow_[a-z_]*)##name\\(([^)]*)\\)")
      set(prefix ${CMAKE_MATCH_1})
      set(parameters "${CMAKE_MATCH_2}")
      foreach(name IN LISTS names)
        string(REGEX REPLACE "X\\(([a-z0-9_]+) *\\)" "\\1" name "${name}")
        tow_line_macro(${prefix}${name} "${parameters}")
      endforeach()
    elseif(declaration MATCHES "^TOW_API tow_value (tow_[a-z0-9_]+)\\(([^)]*)\\)")
      tow_line_macro(${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
    endif()
  endforeach()
  set(tow_macros "${tow_macros}" PARENT_SCOPE)
endfunction()

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tow_include}/ops.h)
set(tow_macros "")
tow_declared_macros(${tow_include}/ops.h)
tow_line_macro(tow_checkpoint_name "tow_value x, const char *name") # of autodiff.h
set(tow_text "/* For every operation of ops.h a macro of the same name: its first value carries the source line.
 * Included by ops.h; define TOW_NO_SOURCE_LINES to do without. Written by cmake/ops_lines.cmake. */
#ifndef TOW_OPS_LINES_H
#define TOW_OPS_LINES_H

#include \"tow/graph.h\"

/* clang-format off */

${tow_macros}
/* clang-format on */

#endif
")
set(tow_before "")
if(EXISTS ${tow_include}/ops_lines.h)
  file(READ ${tow_include}/ops_lines.h tow_before)
endif()
if(NOT tow_before STREQUAL tow_text)
  file(WRITE ${tow_include}/ops_lines.h "${tow_text}")
  message(STATUS "include/tow/ops_lines.h: written from ops.h")
endif()
