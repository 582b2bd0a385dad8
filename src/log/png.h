/* Pixels as the bytes of a PNG. */
#ifndef TOW_SRC_LOG_PNG_H
#define TOW_SRC_LOG_PNG_H

#include "src/log/bytes.h"

/* pixels: u8 [height, width] or [height, width, channels], channels 1, 3 or 4. Appends to `b`. Errors: those of
 * tow_png_write. */
tow_status tow__png_encode(tow_context *ctx, const tow_array *pixels, tow__bytes *b);
/* Height, width and channels of such pixels. Error: TOW_TYPE_MISMATCH. */
tow_status tow__png_shape(tow_context *ctx, const tow_array *pixels, int64_t *height, int64_t *width,
                          int64_t *channels);

#endif
