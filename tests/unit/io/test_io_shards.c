/* Sets of tensors written as several files. Tests safetensors_shards.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>

#include "tests/unit/support/counting_allocator.h"
#include "tests/unit/support/file_faults.h"
#include "tests/unit/support/io_files.h"

static void path_of(const fixture *f, const char *name, char path[128])
{
    snprintf(path, 128, "%s/%s", f->directory, name);
}

static bool is_there(const fixture *f, const char *name)
{
    char path[128];
    struct stat info;
    path_of(f, name, path);
    return stat(path, &info) == 0;
}

static size_t count_files(const fixture *f)
{
    size_t n = 0;
    DIR *directory = opendir(f->directory);
    for (const struct dirent *entry; (entry = readdir(directory));) n += entry->d_name[0] != '.';
    closedir(directory);
    return n;
}

/* Tensors "t0", "t1", ... of f32[4], 16 bytes, which are all `number`. */
static tow_tensors *numbers(tow_context *ctx, size_t n, float number)
{
    tow_tensors *tensors;
    const float x[4] = {number, number, number, number};
    assert_int_equal(tow_tensors_create(ctx, &tensors), TOW_OK);
    for (size_t i = 0; i < n; i++) {
        char name[24];
        tow_array *array;
        snprintf(name, sizeof name, "t%zu", i);
        assert_int_equal(tow_array_from_data(ctx, tow_make_type(TOW_F32, 1, (int64_t[]){4}), x, &array), TOW_OK);
        assert_int_equal(tow_tensors_add(tensors, name, array), TOW_OK);
        tow_array_release(array);
    }
    return tensors;
}

static void write_numbers(const fixture *f, size_t n, float number, uint64_t limit)
{
    char path[128];
    path_of(f, "model.safetensors", path);
    tow_tensors *tensors = numbers(f->ctx, n, number);
    if (tow_safetensors_write_sharded(path, tensors, limit) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
    tow_tensors_free(tensors);
}

/* Checks what is read by the path, and by the index if `sharded`. */
static void assert_numbers(const fixture *f, size_t n, float number, bool sharded)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (int by_index = 0; by_index <= sharded; by_index++) {
        char path[128], name[24];
        tow_tensors *tensors;
        path_of(f, names[by_index], path);
        if (tow_safetensors_read(f->ctx, path, &tensors) != TOW_OK) fail_msg("%s", tow_context_error(f->ctx));
        assert_int_equal(tow_tensors_count(tensors), n);
        for (size_t i = 0; i < n; i++) {
            snprintf(name, sizeof name, "t%zu", i);
            const tow_array *array = tow_tensors_find(tensors, name);
            assert_non_null(array);
            for (int j = 0; j < 4; j++) assert_true(((const float *)tow_array_data(array))[j] == number);
        }
        tow_tensors_free(tensors);
    }
}

static void a_set_goes_to_several_files(void **state)
{
    fixture *f = *state;
    write_numbers(f, 5, 1, 32);
    assert_true(is_there(f, "model-00001-of-00003.safetensors"));
    assert_true(is_there(f, "model-00003-of-00003.safetensors"));
    assert_int_equal(count_files(f), 4);
    assert_numbers(f, 5, 1, true);
    write_numbers(f, 5, 2, 47); /* a limit that the data do not meet exactly */
    assert_int_equal(count_files(f), 4);
    assert_numbers(f, 5, 2, true);
    write_numbers(f, 5, 3, 1); /* each tensor is larger than the limit */
    assert_int_equal(count_files(f), 6);
    assert_true(!is_there(f, "model-00001-of-00003.safetensors"));
    assert_numbers(f, 5, 3, true);
    write_numbers(f, 5, 4, 80); /* fits exactly */
    assert_int_equal(count_files(f), 1);
    assert_numbers(f, 5, 4, false);
    write_numbers(f, 5, 5, 79);
    assert_int_equal(count_files(f), 3);
    assert_numbers(f, 5, 5, true);
    write_numbers(f, 5, 6, 0);
    assert_int_equal(count_files(f), 1);
    assert_numbers(f, 5, 6, false);
    write_numbers(f, 0, 7, 1); /* no tensors at all */
    assert_numbers(f, 0, 7, false);
}

static void other_files_stay(void **state)
{
    fixture *f = *state;
    static const char *const others[] = {"model-00001-of-0000x.safetensors", "model-0001-of-00003.safetensors",
                                         "model2-00001-of-00003.safetensors", "model-00001-of-00003.safetensors.bak",
                                         "config.json"};
    enum {
        N = sizeof others / sizeof *others
    };
    char path[128];
    for (size_t i = 0; i < N; i++) {
        path_of(f, others[i], path);
        write_bytes(path, "x", 1);
    }
    write_numbers(f, 4, 1, 16);
    write_numbers(f, 4, 1, 32);
    write_numbers(f, 4, 1, 0);
    assert_int_equal(count_files(f), N + 1);
    for (size_t i = 0; i < N; i++) assert_true(is_there(f, others[i]));
}

/* Every element type, metadata and names that need escapes, one tensor in each file. */
static void everything_comes_back(void **state)
{
    fixture *f = *state;
    char path[128];
    path_of(f, "all.safetensors", path);
    tow_tensors *set = sample(f), *back;
    for (int map = 0; map < 2; map++) {
        assert_int_equal(tow_safetensors_write_sharded(path, set, 1), TOW_OK);
        assert_int_equal(count_files(f), tow_tensors_count(set) + 1);
        assert_int_equal((map ? tow_safetensors_mmap : tow_safetensors_read)(f->ctx, path, &back), TOW_OK);
        assert_int_equal(tow_tensors_count(back), tow_tensors_count(set));
        for (size_t i = 0; i < tow_tensors_count(set); i++) {
            const tow_array *want = tow_tensors_at(set, i);
            assert_string_equal(tow_tensors_name(back, i), tow_tensors_name(set, i));
            assert_array(tow_tensors_at(back, i), tow_array_type(want), tow_array_data(want));
        }
        assert_string_equal(tow_tensors_metadata(back, "note"), "line\nbreak");
        assert_null(tow_tensors_metadata(back, "tow.xxh3.set"));
        tow_tensors_free(set);
        set = back; /* the second time: files are replaced while their old versions are read */
    }
    assert_int_equal(tow_safetensors_write_sharded(path, set, 1), TOW_OK);
    tow_tensors_free(set);
}

static void a_mixture_of_sets_is_refused(void **state)
{
    fixture *f = *state;
    char one[128], saved[128], path[128];
    path_of(f, "model-00001-of-00002.safetensors", one);
    path_of(f, "saved", saved);
    path_of(f, "model.safetensors", path);
    write_numbers(f, 2, 1, 16);
    assert_int_equal(rename(one, saved), 0);
    write_numbers(f, 2, 2, 16);
    assert_numbers(f, 2, 2, true);
    assert_int_equal(rename(saved, one), 0);
    tow_tensors *tensors;
    assert_int_equal(tow_safetensors_read(f->ctx, path, &tensors), TOW_BAD_FORMAT);
    assert_message(f, "are not of one set");
    assert_null(tensors);
}

/* Every system call fails in turn: the old set is whole, or the new one, or, between renames, readers refuse both. */
static void calls_fail_in_turn(void **state)
{
    fixture *f = *state;
    char path[128];
    path_of(f, "model.safetensors", path);
    f->ctx->file_calls = &faulty;
    size_t old_sets = 0, new_sets = 0, mixtures = 0;
    bool struck = true;
    for (long n = 0; struck; n++) {
        plan_fault(-1, 0);
        write_numbers(f, 2, 1, 16);
        tow_tensors *set = numbers(f->ctx, 2, 2), *read;
        plan_fault(n, EIO);
        const tow_status status = tow_safetensors_write_sharded(path, set, 16);
        const bool renamed = faults.renamed;
        struck = faults.failed != NULL;
        tow_tensors_free(set);
        plan_fault(-1, 0);
        if (tow_safetensors_read(f->ctx, path, &read) != TOW_OK) {
            assert_message(f, "are not of one set");
            assert_true(renamed);
            mixtures++;
            continue;
        }
        const float number = *(const float *)tow_array_data(tow_tensors_find(read, "t0"));
        assert_true(number == 2 || (status != TOW_OK && number == 1));
        (number == 2 ? &new_sets : &old_sets)[0]++;
        tow_tensors_free(read);
        assert_numbers(f, 2, number, true);
    }
    assert_in_range(old_sets, 10, 100);
    assert_in_range(new_sets, 1, 50);
    assert_in_range(mixtures, 1, 5);
    f->ctx->file_calls = NULL;
}

static void allocations_fail_in_turn(void **state)
{
    fixture *f = *state;
    char path[128];
    counting c;
    const tow_context_options options = counting_options(&c, -1);
    tow_context *ctx;
    path_of(f, "model.safetensors", path);
    write_numbers(f, 3, 1, 16);
    assert_int_equal(tow_context_create(&options, &ctx), TOW_OK);
    tow_tensors *set = numbers(ctx, 3, 2);
    const long idle = c.blocks;
    tow_status status = TOW_OUT_OF_MEMORY;
    for (long n = 0; status != TOW_OK; n++) {
        c.calls = 0;
        c.fail_at = n;
        status = tow_safetensors_write_sharded(path, set, 16);
        c.fail_at = -1;
        if (status != TOW_OK) assert_int_equal(status, TOW_OUT_OF_MEMORY);
        assert_int_equal(c.blocks, idle);
    }
    tow_tensors_free(set);
    tow_context_free(ctx);
    assert_int_equal(c.blocks, 0);
    assert_numbers(f, 3, 2, true);
    assert_int_equal(count_files(f), 4);
}

static void bad_arguments(void **state)
{
    fixture *f = *state;
    char path[128];
    tow_tensors *set = numbers(f->ctx, 2, 1);
    assert_int_equal(tow_safetensors_write_sharded("x", NULL, 1), TOW_INVALID_ARGUMENT);
    assert_int_equal(tow_safetensors_write_sharded(NULL, set, 1), TOW_INVALID_ARGUMENT);
    static const char *const bad[] = {"model", ".safetensors", "safetensors", ""};
    for (size_t i = 0; i < 4; i++) {
        path_of(f, bad[i], path);
        assert_int_equal(tow_safetensors_write_sharded(path, set, 1), TOW_INVALID_ARGUMENT);
        assert_message(f, "expected a path such as DIR/model.safetensors");
    }
    path_of(f, "none/model.safetensors", path);
    assert_int_equal(tow_safetensors_write_sharded(path, set, 16), TOW_IO_ERROR);
    assert_int_equal(tow_tensors_set_metadata(set, "tow.xxh3.set", "x"), TOW_INVALID_ARGUMENT);
    tow_tensors_free(set);
    assert_int_equal(count_files(f), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_set_goes_to_several_files),
        TEST(other_files_stay),
        TEST(everything_comes_back),
        TEST(a_mixture_of_sets_is_refused),
        TEST(calls_fail_in_turn),
        TEST(allocations_fail_in_turn),
        TEST(bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
