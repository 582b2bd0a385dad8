# plan_page.inc: the bytes of share/plan/plan.html, the page that plans are shown in, which is part of the library.
set(page ${PROJECT_SOURCE_DIR}/share/plan/plan.html)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page})
file(READ ${page} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/plan_page.inc CONTENT "${bytes}\n" @ONLY)
