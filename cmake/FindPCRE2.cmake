# Finds PCRE2 for texts of bytes, by pkg-config.
#
#   PCRE2_FOUND, PCRE2_VERSION, target PkgConfig::PCRE2

pkg_check_modules(PCRE2 QUIET IMPORTED_TARGET libpcre2-8)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PCRE2 REQUIRED_VARS PCRE2_FOUND VERSION_VAR PCRE2_VERSION)
