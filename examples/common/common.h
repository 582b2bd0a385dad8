/* Shared by the examples, besides options and progress: messages, clock, files, interrupts, random numbers. */
#ifndef EXAMPLE_COMMON_H
#define EXAMPLE_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tow/tow.h>

/* Exit statuses of the examples. */
enum {
    SUCCESS = 0,
    FAILURE = 1,
    BAD_OPTION = 2,
    INTERRUPTED = 130
};

/* Prints the message of the context as one of `program`; a context that could not be made may be NULL. Gives
 * FAILURE. */
int report_error(const char *program, const tow_context *context);

/* Seconds of a clock that only goes forward. */
double seconds_now(void);

/* The path of a file that comes with Tow ("digits/images.npy"), in share/tow beside the directory of this program: in
 * the build directory as in the installed tree. "" if there is none. Otherwise like snprintf. */
void find_shared(const char *name, char *path, size_t size);

/* From now on the first Ctrl-C, or SIGTERM, sets what interrupted() says; a second one ends the program at once. */
void catch_interrupts(void);
bool interrupted(void);

/* Makes a directory and those above it, unless they exist, in which files can be made. Prints a message of `program`
 * and returns false otherwise. */
bool make_directory(const char *program, const char *path);
/* The status of the program with `status` so far: FAILURE, with a message, if what it printed could not be written. */
int finish_output(const char *program, int status);
/* "directory/name", in memory that the caller frees. NULL with a message if there is none. */
char *path_in(const char *program, const char *directory, const char *name);

/* Number `index` of the stream of random numbers `seed`: 64 bits, a hash of both. */
uint64_t random_bits(uint64_t seed, uint64_t index);
/* Number `index` of a stream of N(0, 1). */
double random_normal(uint64_t seed, uint64_t index);

#endif
