/* Texts of the status codes, from the list in base.h. */
#include "src/base/base.h"

static const char *const texts[] = {
#define X(symbol, text) [symbol] = text,
    TOW_STATUS_LIST(X)
#undef X
};

bool tow__status_exists(tow_status status) { return (size_t)status < sizeof texts / sizeof *texts; }

const char *tow_status_text(tow_status status)
{
    return tow__status_exists(status) ? texts[(size_t)status] : "unknown status";
}
