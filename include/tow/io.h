/* Files of arrays: NumPy's .npy and .npz, and safetensors. All of them hold arrays of every element type.
 *
 * Writers make a temporary file "NAME.16 hexadecimal digits.tmp" in the directory of the file, sync it, rename it over
 * the file and sync the directory, so that a file is either the old one or the whole new one. It keeps the permissions
 * of the old one. A writer that fails removes its temporary file; a file that a killed writer left is removed by the
 * next writer of the same path. If two write one path at once, one of them gets TOW_IO_ERROR ("another process is
 * writing this file"), or the file is the whole of what the later one wrote.
 *
 * Readers copy data into memory of their own. tow_npy_mmap and tow_safetensors_mmap leave them in the file instead:
 * pages are read when they are touched and need no memory while they are only read. Writing to such an array changes
 * its memory and never the file. In return, nobody may change or truncate that file in place as long as one of its
 * arrays lives: values would change, and touching what was cut off ends the process (SIGBUS). Replacing the file, as
 * Tow's writers do, is safe. Arrays whose data must be converted, are not aligned for their type in the file, or are
 * booleans are copied by these functions as well.
 *
 * An array has the element type that the file says, unless another one is asked for (tow_npy_read_with,
 * tow_tensors_get_with, .convert of tow_load_options). Then numbers and booleans become floats, each rounded once, to
 * nearest with ties to even, and integers and booleans become integers of another type, in which each must fit:
 * TOW_TYPE_MISMATCH says which does not. Floats do not become integers. */
#ifndef TOW_IO_H
#define TOW_IO_H

#include "tow/base.h"
#include "tow/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads version 1.0, 2.0 and 3.0 files of f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1, of either byte order, in C or Fortran
 * order.
 * Integers of 16 bits become i32. V2 is bf16: NumPy has no such type, and that is how it saves arrays of
 * ml_dtypes.bfloat16. (It reads them back as V2, to be viewed as bfloat16: numpy.load(path).view(ml_dtypes.bfloat16).)
 * Errors: TOW_IO_ERROR, TOW_BAD_FORMAT, TOW_UNSUPPORTED with the path and what was found. */
TOW_API tow_status tow_npy_read(tow_context *context, const char *path, tow_array **array);
/* The same as an array of another element type. Error: also TOW_TYPE_MISMATCH; see the top of this file. */
TOW_API tow_status tow_npy_read_with(tow_context *context, const char *path, tow_dtype dtype, tow_array **array);
/* The same without a copy of the data; see the top of this file. */
TOW_API tow_status tow_npy_mmap(tow_context *context, const char *path, tow_array **array);
/* Writes version 1.0 in C order. Errors: TOW_IO_ERROR with the path. */
TOW_API tow_status tow_npy_write(tow_context *context, const char *path, const tow_array *array);

/* Named arrays of one file, in the order of the file. */
typedef struct tow_tensors tow_tensors;

/* An empty set. */
TOW_API tow_status tow_tensors_create(tow_context *context, tow_tensors **tensors);
/* Frees it and drops its references. NULL is accepted. */
TOW_API void tow_tensors_free(tow_tensors *tensors);
/* Adds an array (retained) under a copy of `name`. Error: TOW_INVALID_ARGUMENT for a name that is there already, and
 * for "__metadata__". */
TOW_API tow_status tow_tensors_add(tow_tensors *tensors, const char *name, tow_array *array);
TOW_API size_t tow_tensors_count(const tow_tensors *tensors);
/* Of tensor `index`; NULL behind the last one. */
TOW_API const char *tow_tensors_name(const tow_tensors *tensors, size_t index);
/* Of rank -1 behind the last one, and for a tensor that Tow cannot read: one of 8-bit floats in a mapped file, or a
 * member of texts, Python objects or complex numbers in a .npz archive. */
TOW_API tow_type tow_tensors_type(const tow_tensors *tensors, size_t index);
/* The array, not retained; NULL behind the last one, and if there is none of that name. Of a mapped file, it is made
 * when it is asked for first: NULL as well if its data are damaged, memory is missing or Tow cannot read it, which the
 * context then tells. */
TOW_API tow_array *tow_tensors_at(const tow_tensors *tensors, size_t index);
TOW_API tow_array *tow_tensors_find(const tow_tensors *tensors, const char *name);
/* The array of that name, a new reference. Errors: TOW_NOT_FOUND, with names that there are; TOW_UNSUPPORTED for a
 * tensor that Tow cannot read; of mapped files also TOW_BAD_FORMAT, TOW_OUT_OF_MEMORY. */
TOW_API tow_status tow_tensors_get(const tow_tensors *tensors, const char *name, tow_array **array);
/* The same as an array of another element type: a new one, unless it has that type. Error: also TOW_TYPE_MISMATCH; see
 * the top of this file. */
TOW_API tow_status tow_tensors_get_with(const tow_tensors *tensors, const char *name, tow_dtype dtype,
                                        tow_array **array);
/* The __metadata__ of the file: strings by key, both copied. A key that is there gets the new value. Error:
 * TOW_INVALID_ARGUMENT for "tow.xxh3", "tow.xxh3.set" and keys that begin with "tow.xxh3/", which are made on writing
 * and not seen here. */
TOW_API tow_status tow_tensors_set_metadata(tow_tensors *tensors, const char *key, const char *value);
/* NULL if there is no such key. */
TOW_API const char *tow_tensors_metadata(const tow_tensors *tensors, const char *key);

/* Reads and checks everything: header length against file size and 100 MB, JSON, dtypes, offsets in bounds, no gaps, no
 * overlaps, all before memory is taken for the data; and the checksums, if the file has any. Integers of 16 bits become
 * i32.
 *
 * A path may also be that of an index, as "model.safetensors.index.json": an object whose "weight_map" names, for each
 * tensor, the file beside the index that has it. Then the set holds the tensors of all these files, and of metadata
 * that several have what the first one says. Every tensor of the index must be where it says, and is taken from there
 * if other files hold that name as well; those that it does not mention are there, too. If there is no file PATH but an
 * index "PATH.index.json", the index is read.
 *
 * Errors: TOW_IO_ERROR, TOW_BAD_FORMAT, TOW_UNSUPPORTED with the path and what was found, for wrong data the name of
 * the tensor. */
TOW_API tow_status tow_safetensors_read(tow_context *context, const char *path, tow_tensors **tensors);
/* The same without the data, which stay in the file; see the top of this file. Headers are checked as a whole now; data
 * are not read before an array is asked for (tow_tensors_at, tow_tensors_find, tow_tensors_get), which then compares
 * its checksum. Tensors that nobody asks for are never read, so a file may hold some of element types that are not
 * known here, or of more than 8 axes: asking for one of these is TOW_UNSUPPORTED. */
TOW_API tow_status tow_safetensors_mmap(tow_context *context, const char *path, tow_tensors **tensors);
/* The metadata of the file get a checksum of each tensor, "tow.xxh3/NAME": XXH3 with 64 bits of its bytes, as 16
 * hexadecimal digits, and one of the header, "tow.xxh3"; other programs see them as texts. A program that changes such
 * a file and keeps its metadata must leave these keys out. Errors: TOW_IO_ERROR with the path, TOW_INVALID_ARGUMENT
 * where the names need a header of more than 100 MB, or are not UTF-8. */
TOW_API tow_status tow_safetensors_write(const char *path, const tow_tensors *tensors);

/* The same in several files if all data together have more than `max_file_bytes` (0: no limit). Tensors go to files in
 * their order, as many as fit, at least one. Of the path "DIR/model.safetensors" the files are
 * "DIR/model-00001-of-00003.safetensors" and so on, and the index is "DIR/model.safetensors.index.json";
 * tow_safetensors_read reads them by that index or by `path`. Nothing is copied in memory; there are as many open files
 * as the set has.
 *
 * All files are written and synced beside the old ones, then they are renamed, the index last, and what an earlier
 * writing left under this path goes: the one file or the index, and files of the names above that are not of the new
 * set. A writer that fails before the renames changes nothing. One that is killed between two of them may leave files
 * of both sets, if these have equally many files; they say what they belong to, and readers refuse the mixture
 * (TOW_BAD_FORMAT). */
TOW_API tow_status tow_safetensors_write_sharded(const char *path, const tow_tensors *tensors, uint64_t max_file_bytes);

/* ---- one file, many processes -------------------------------------------------------------------------------------
 *
 * Functions whose names end with _all are collective: all processes of a group (tow/group.h) call them together, with
 * the same path and sets of the same names, types and metadata, and all get the same status; the message has the rank
 * that failed. A group of NULL is the group of one. The processes need a file system that they share. */

/* Writes the file that tow_safetensors_write writes, byte for byte, for any number of processes. Each writes its share
 * of every tensor (tow_group_share) at its place, and syncs it; then rank 0 renames the file. A tensor is an array that
 * all processes have, or a share (tow_tensors_add_share). If anything fails in one of the processes, or one is killed,
 * the old file stays as it is. Errors: those of tow_safetensors_write; TOW_INVALID_ARGUMENT, with what differs, if the
 * processes write different things; TOW_UNSUPPORTED for a device or a pipe. */
TOW_API tow_status tow_safetensors_write_all(tow_group *group, const char *path, const tow_tensors *tensors);
/* Adds a tensor of which `array`, of one axis, has the elements of this process's share in the group. Other functions
 * than tow_safetensors_write_all and tow_tensors_get_share refuse it (TOW_UNSUPPORTED), unless the group has one
 * process. Errors: those of tow_tensors_add; TOW_TYPE_MISMATCH for an array of another type than the share's. */
TOW_API tow_status tow_tensors_add_share(tow_tensors *tensors, const char *name, tow_type type, const tow_group *group,
                                         tow_array *array);
/* The elements of this process's share of a tensor, on one axis, as a new reference. Of a set that
 * tow_safetensors_mmap gave, no others are read, and no checksum is compared: a checksum is that of the whole tensor
 * (tow_safetensors_check_all). Errors: those of tow_tensors_get. */
TOW_API tow_status tow_tensors_get_share(const tow_tensors *tensors, const char *name, const tow_group *group,
                                         tow_array **array);
/* Compares the checksums of a set that tow_safetensors_mmap gave in every process: each reads its share of the tensors
 * once. Errors: TOW_BAD_FORMAT with the tensor, in all processes; TOW_IO_ERROR. */
TOW_API tow_status tow_safetensors_check_all(tow_group *group, const tow_tensors *tensors);

/* Reads an archive of .npy files, as numpy.savez and numpy.savez_compressed write them: member "NAME.npy" becomes the
 * tensor NAME, in the order of the archive. Members of other names are left out. Each member's CRC is compared, and its
 * name in the directory with that in front of its data. A member that Tow cannot read (texts, objects, complex numbers,
 * more than 8 axes, encrypted) is an error for who asks for it only. Errors: those of tow_npy_read, with the path of
 * the archive and the name of the member. */
TOW_API tow_status tow_npz_read(tow_context *context, const char *path, tow_tensors **tensors);
/* Writes such an archive, with deflated members if `compress`. Metadata are not written: .npz files have none. The
 * bytes of the file depend on the tensors alone. Errors: TOW_IO_ERROR with the path, TOW_INVALID_ARGUMENT for names
 * that are not UTF-8 or longer than 65,531 bytes. */
TOW_API tow_status tow_npz_write(const char *path, const tow_tensors *tensors, bool compress);

#ifdef __cplusplus
}
#endif
#endif
