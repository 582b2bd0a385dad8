# Writes include/tow/ops_lines.h: a macro for every operation that ops.h declares or lists in TOW_..._LIST(X) and whose first operand
# is a value, and for tow_checkpoint_name of autodiff.h. CMakeLists.txt includes this file, so that the header follows ops.h; a header
# that is up to date is left alone. To write it without a build: cmake -P cmake/ops_lines.cmake

get_filename_component(ops_include ${CMAKE_CURRENT_LIST_DIR}/../include/tow ABSOLUTE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ops_include}/ops.h)

# operation(name parameters): appends the macro.
set(ops_macros "")
function(tow_operation name parameters)
  if(NOT parameters MATCHES "^tow_value ")
    return() # it takes the trace, or an array of values
  endif()
  if(parameters MATCHES ",")
    set(macro "#define ${name}(x, ...) ${name}(tow_at((x), TOW_HERE), __VA_ARGS__)")
  else()
    set(macro "#define ${name}(x) ${name}(tow_at((x), TOW_HERE))")
  endif()
  set(ops_macros "${ops_macros}${macro}\n" PARENT_SCOPE)
endfunction()

file(READ ${ops_include}/ops.h ops_text)
string(REPLACE ";" "" ops_text "${ops_text}") # it parts the lists of CMake
string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" ops_text "${ops_text}")
string(REGEX REPLACE "\\\\\n" "" ops_text "${ops_text}")
string(REGEX REPLACE ",\n +" ", " ops_text "${ops_text}")
# A list, then the declaration of each of its names; or a declaration.
string(REGEX MATCHALL "#define TOW_[A-Z_]+_LIST\\(X\\)[^\n]*|#define X\\(name\\)[^\n]*|TOW_API tow_value tow_[a-z0-9_]+\\([^)]*\\)"
       ops_found "${ops_text}")
foreach(found IN LISTS ops_found)
  if(found MATCHES "^#define TOW_[A-Z_]+_LIST")
    string(REGEX MATCHALL "X\\([a-z0-9_]+ *\\)" ops_names "${found}")
    list(REMOVE_ITEM ops_names "X(X)")
  elseif(found MATCHES "^#define X\\(name\\) TOW_API tow_value (tow_[a-z_]*)##name\\(([^)]*)\\)")
    set(prefix ${CMAKE_MATCH_1})
    set(parameters "${CMAKE_MATCH_2}")
    foreach(name IN LISTS ops_names)
      string(REGEX REPLACE "X\\(([a-z0-9_]+) *\\)" "\\1" name "${name}")
      tow_operation(${prefix}${name} "${parameters}")
    endforeach()
  elseif(found MATCHES "^TOW_API tow_value (tow_[a-z0-9_]+)\\(([^)]*)\\)")
    tow_operation(${CMAKE_MATCH_1} "${CMAKE_MATCH_2}")
  endif()
endforeach()

tow_operation(tow_checkpoint_name "tow_value x, const char *name")

set(ops_header "/* For every operation of ops.h a macro of the same name: the first operand carries the source line of the call.
 * Included by ops.h; define TOW_NO_SOURCE_LINES to do without. Written by cmake/ops_lines.cmake from ops.h. */
#ifndef TOW_OPS_LINES_H
#define TOW_OPS_LINES_H

#include \"tow/graph.h\"

/* clang-format off */

${ops_macros}
/* clang-format on */

#endif
")
set(ops_before "")
if(EXISTS ${ops_include}/ops_lines.h)
  file(READ ${ops_include}/ops_lines.h ops_before)
endif()
if(NOT ops_before STREQUAL ops_header)
  file(WRITE ${ops_include}/ops_lines.h "${ops_header}")
  message(STATUS "include/tow/ops_lines.h: written from ops.h")
endif()
