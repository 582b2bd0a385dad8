/* TensorBoard's event files: records of protocol buffers. */
#ifndef TOW_SRC_LOG_EVENTS_H
#define TOW_SRC_LOG_EVENTS_H

#include "src/log/bytes.h"

/* Record: length u64, masked CRC of these 8 bytes u32, data, masked CRC of the data u32, all little-endian. */
enum {
    TOW__RECORD_HEAD = 12,
    TOW__RECORD_TAIL = 4
};

/* CRC-32C (Castagnoli): polynomial 0x82F63B78, reflected. */
uint32_t tow__crc32c(const void *data, size_t size);
/* rotated to the right by 15 bits, plus 0xA282EAD8: so that CRCs of data that hold CRCs do not cancel out. */
uint32_t tow__masked_crc32c(const void *data, size_t size);

/* Each appends one record with one event. `time`: seconds since 1970. */
void tow__event_version(tow__bytes *b, double time);
/* Tells readers that steps from `step` on are written once more: what other files say of them is void. */
void tow__event_start(tow__bytes *b, double time, int64_t step);
void tow__event_number(tow__bytes *b, double time, int64_t step, const char *tag, double value);
void tow__event_image(tow__bytes *b, double time, int64_t step, const char *tag, int64_t height, int64_t width,
                      int64_t channels, const void *png, size_t size);

/* Finite numbers in equally wide buckets, each up to and without its limit, the last one with it. */
enum {
    TOW__BUCKETS = 30
};
typedef struct tow__histogram {
    double least, most, count, sum, squares;
    int n; /* buckets: TOW__BUCKETS, or 1 for equal numbers */
    double limits[TOW__BUCKETS], counts[TOW__BUCKETS];
} tow__histogram;
/* Of n numbers; those that are not finite are left out. */
tow__histogram tow__histogram_of(const double *values, int64_t n);
void tow__event_histogram(tow__bytes *b, double time, int64_t step, const char *tag, const tow__histogram *histogram);

#endif
