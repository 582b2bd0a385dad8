/* The version of these headers, and of the library that a program runs with. docs/versions.md says what may change from
 * one version to the next. */
#ifndef TOW_VERSION_H
#define TOW_VERSION_H

#include "tow/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The build takes the project's version from these numbers. */
#define TOW_VERSION_MAJOR 0
#define TOW_VERSION_MINOR 1
#define TOW_VERSION_PATCH 0

/* "0.1.0" */
#define TOW_VERSION                                                                                                    \
    TOW__VERSION_TEXT(TOW_VERSION_MAJOR)                                                                               \
    "." TOW__VERSION_TEXT(TOW_VERSION_MINOR) "." TOW__VERSION_TEXT(TOW_VERSION_PATCH)
#define TOW__VERSION_TEXT(number)  TOW__VERSION_TEXT2(number)
#define TOW__VERSION_TEXT2(number) #number

/* The version of the library, for instance "0.1.0". A shared library may be newer than the headers. */
TOW_API const char *tow_version(void);

#ifdef __cplusplus
}
#endif
#endif
