/* The version that was compiled into the library. */
#include "tow/base.h"

const char *tow_version(void) { return TOW_VERSION; }
