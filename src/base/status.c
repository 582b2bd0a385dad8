/* Texts of the status codes, from the list in base.h. */
#include "src/base/base.h"

const char *tow_status_text(tow_status status)
{
    static const char *const texts[] = {
#define X(symbol, text) [symbol] = text,
        TOW_STATUS_LIST(X)
#undef X
    };
    size_t index = (size_t)status;
    return index < sizeof texts / sizeof *texts ? texts[index] : "unknown status";
}
