/* The version that was compiled into the library. */
#include "tow/version.h"

const char *tow_version(void) { return TOW_VERSION; }
