/* Zip archives, as far as .npz files go: members that are stored or deflated, with sizes of 64 bits, in one file. */
#ifndef TOW_SRC_IO_ZIP_H
#define TOW_SRC_IO_ZIP_H

#include "src/io/stream.h"

typedef struct tow__zip_member {
    const char *name; /* UTF-8 or whatever the writer used, with a zero byte behind it */
    uint64_t header;  /* where its local header begins, */
    uint64_t data;    /* and where its bytes begin behind that */
    uint64_t packed;  /* bytes in the archive */
    uint64_t size;    /* bytes that they stand for */
    uint32_t crc;     /* of those */
    uint16_t method;
    bool encrypted;
} tow__zip_member;

typedef struct tow__zip {
    const tow__input_file *file;
    tow__zip_member *members;
    size_t count, capacity;
    char *directory; /* [directory_size] where the names are */
    size_t directory_size;
} tow__zip;

/* Reads and checks the directory of an archive and the local headers of its members, which must agree with it. On an
 * error nothing is held. Errors: TOW_IO_ERROR, TOW_BAD_FORMAT, TOW_UNSUPPORTED, TOW_OUT_OF_MEMORY. */
tow_status tow__zip_open(const tow__input_file *file, tow__zip *zip);
void tow__zip_close(tow__zip *zip);

/* The bytes of a member, in order. The CRC is compared with the last byte. */
typedef struct tow__zip_stream {
    tow__stream stream; /* this field comes first */
    const tow__input_file *file;
    uint64_t at, packed_left; /* what was not read from the file */
    uint32_t crc, expected;
    struct tow__inflater *inflater; /* NULL: stored */
} tow__zip_stream;
/* path: of archive and member, for messages; it must outlive the stream. Error: TOW_UNSUPPORTED for a member that is
 * encrypted or neither stored nor deflated. */
tow_status tow__zip_stream_open(const tow__zip *zip, const tow__zip_member *member, const char *path,
                                tow__zip_stream *s);
void tow__zip_stream_close(tow__zip_stream *s);

/* An archive that is being written: members one after the other, then the directory. */
typedef struct tow__zip_writer {
    tow__output_file *file;
    uint64_t at;
    tow__zip_member *members; /* [capacity], of the caller, who names how many there will be */
    size_t count;
    struct tow__deflater *deflater; /* NULL: members are stored */
} tow__zip_writer;
/* A member of `n` parts. Its name is kept, not copied. */
typedef struct tow__zip_part {
    const void *data;
    size_t size;
} tow__zip_part;
tow_status tow__zip_begin(tow__zip_writer *writer, tow__output_file *file, tow__zip_member *members, bool compress);
tow_status tow__zip_add(tow__zip_writer *writer, const char *name, size_t n, const tow__zip_part *parts);
/* Writes the directory. */
tow_status tow__zip_finish(tow__zip_writer *writer);
/* Frees what the writer holds. Accepts a struct of zeros. */
void tow__zip_end(tow__zip_writer *writer);

/* ---- the format ------------------------------------------------------------------------------------------------ */

/* Little-endian numbers of a record, one after the other. */
static inline uint64_t tow__zip_get(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}
static inline unsigned char *tow__zip_put(unsigned char *at, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++, value >>= 8) *at++ = (unsigned char)value;
    return at;
}

enum {
    TOW__ZIP_STORED = 0,
    TOW__ZIP_DEFLATED = 8,
    TOW__ZIP_LOCAL = 0x04034b50,   /* header of a member: 30 bytes, name, extra */
    TOW__ZIP_ENTRY = 0x02014b50,   /* of the directory: 46 bytes, name, extra, comment */
    TOW__ZIP_END = 0x06054b50,     /* 22 bytes, comment */
    TOW__ZIP_END64 = 0x06064b50,   /* 56 bytes or more */
    TOW__ZIP_LOCATOR = 0x07064b50, /* 20 bytes: where that is */
    TOW__ZIP_DESCRIPTOR = 0x08074b50,
    TOW__ZIP_LOCAL_SIZE = 30,
    TOW__ZIP_ENTRY_SIZE = 46,
    TOW__ZIP_END_SIZE = 22,
    TOW__ZIP_END64_SIZE = 56,
    TOW__ZIP_LOCATOR_SIZE = 20,
    TOW__ZIP_EXTRA64 = 1,
    TOW__ZIP_LATER = 8,     /* flag: sizes and CRC stand behind the data */
    TOW__ZIP_UTF8 = 1 << 11 /* flag */
};

#endif
