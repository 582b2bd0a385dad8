# Writes include/tow/layer_options.hpp: for every layer that the headers make by TOW__LAYER or TOW__WRAPPER, a struct of its options
# with default values, in C++, and a function that makes the layer of them. CMakeLists.txt includes this file; a header that is up to
# date is left alone. To write it without a build: cmake -P cmake/layer_options.cmake

get_filename_component(tow_include ${CMAKE_CURRENT_LIST_DIR}/../include/tow ABSOLUTE)

# tow_options_of(header): appends what its layers need to tow_options.
function(tow_options_of header)
  file(READ ${tow_include}/${header}.h text)
  string(REGEX REPLACE "/\\*[^*]*\\*+([^/*][^*]*\\*+)*/" "" text "${text}")
  string(REPLACE ";" "@" text "${text}") # it parts the lists of CMake
  string(REGEX MATCHALL "#define TOW_[A-Z0-9_]+\\(\\.\\.\\.\\) +TOW__(LAYER|WRAPPER)\\(tow_[a-z0-9_]+, __VA_ARGS__\\)" macros "${text}")
  foreach(macro IN LISTS macros)
    string(REGEX MATCH "TOW__(LAYER|WRAPPER)\\(tow_([a-z0-9_]+)," match "${macro}")
    set(kind ${CMAKE_MATCH_1})
    set(name ${CMAKE_MATCH_2})
    if(NOT text MATCHES "typedef struct tow_${name} {([^}]*)}")
      message(FATAL_ERROR "${header}.h: struct tow_${name} is not found, or has braces: see cmake/layer_options.cmake")
    endif()
    string(REGEX REPLACE "[ \n]+" " " body "${CMAKE_MATCH_1}")
    string(REGEX REPLACE "^ tow_module module@" "" body "${body}")
    if(kind STREQUAL "WRAPPER")
      string(REGEX REPLACE "^ const tow_module \\*inner@" "" body "${body}")
    endif()
    # A declarator ends at its comma or at the end of the declaration; commas between parentheses belong to a function.
    set(lines "")
    while(body MATCHES "^ ([^@]+)@(.*)$")
      set(declaration "${CMAKE_MATCH_1}")
      set(body "${CMAKE_MATCH_2}")
      if(NOT declaration MATCHES "\\(")
        string(REPLACE "," "{}," declaration "${declaration}")
      endif()
      string(APPEND lines "    ${declaration}{}@\n")
    endwhile()
    set(function ${name})
    if(name MATCHES "^(switch|while)$") # words of the language
      set(function ${name}_layer)
    endif()
    string(APPEND tow_options "struct ${name}_options {\n${lines}}@\nTOW__CPP_${kind}(${function}, ${name})\n\n")
  endforeach()
  set(tow_options "${tow_options}" PARENT_SCOPE)
endfunction()

set(tow_options "")
foreach(tow_header layers attention recurrent transforms)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tow_include}/${tow_header}.h)
  tow_options_of(${tow_header})
endforeach()
string(REPLACE "@" ";" tow_options "${tow_options}")
set(tow_text "/* Options of all layers for C++, and functions that make layers of them. Included by tow.hpp, which says more. Written by
 * cmake/layer_options.cmake from the headers of layers. */
#ifndef TOW_LAYER_OPTIONS_HPP
#define TOW_LAYER_OPTIONS_HPP

namespace tow {

/* clang-format off */

${tow_options}/* clang-format on */

} // namespace tow

#endif
")
set(tow_before "")
if(EXISTS ${tow_include}/layer_options.hpp)
  file(READ ${tow_include}/layer_options.hpp tow_before)
endif()
if(NOT tow_before STREQUAL tow_text)
  file(WRITE ${tow_include}/layer_options.hpp "${tow_text}")
  message(STATUS "include/tow/layer_options.hpp: written from the headers of layers")
endif()
