/* Comparisons of what flax_lift.py and the like wrote with what models compute. A test program includes it once, after
 * cmocka. */
#ifndef TOW_TESTS_LIFT_GOLDEN_H
#define TOW_TESTS_LIFT_GOLDEN_H

#include "tests/unit/support/lift_cell.h"

/* Initial values and keys are words in hexadecimal: equal bits or, of f32 with `orthogonal`, whose factors JAX makes by
 * other sums, within 5e-6. Other numbers agree to 1e-5 of the largest. */
static inline void compare_array(FILE *file, const char *name, const char *what, const tow_array *array,
                                 bool orthogonal)
{
    const tow_type type = tow_array_type(array);
    const bool bits = type.dtype == TOW_U32 || strncmp(what, "param/", 6) == 0;
    double largest = 1, error = 0;
    for (int64_t i = 0; i < tow_type_element_count(type); i++) {
        if (bits) {
            unsigned expected, found;
            assert_int_equal(fscanf(file, "%x", &expected), 1);
            memcpy(&found, (const char *)tow_array_data((tow_array *)array) + 4 * i, 4);
            float drawn;
            memcpy(&drawn, &expected, sizeof drawn);
            if (orthogonal && type.dtype == TOW_F32 && fabs((double)drawn - array_element(array, i)) <= 5e-6) continue;
            if (found != expected)
                fail_msg("%s %s[%d]: expected %08x, found %08x", name, what, (int)i, expected, found);
            continue;
        }
        double expected, difference;
        assert_int_equal(fscanf(file, "%lf", &expected), 1);
        difference = fabs(expected - array_element(array, i));
        largest = fmax(largest, fabs(expected));
        if (!(difference <= error)) error = difference; /* a NaN stays */
    }
    if (!(error <= 1e-5 * largest)) fail_msg("%s %s: off by %g of %g", name, what, error, largest);
}

/* Every line of a golden file. run: the model of a case; false: there is none of that name. */
static inline void compare_lifted(const char *path, int least, bool (*run)(const char *name, lift_run *r))
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char name[64], what[128], shape[128], found[128], last[64] = "";
    lift_run r = {0};
    int lines = 0;
    while (fscanf(file, "%63s %127s %127s", name, what, shape) == 3) {
        if (strcmp(name, last) != 0 && !run(name, &r)) fail_msg("no case %s", name);
        strcpy(last, name);
        tow_array *array = lifted_result(&r, what);
        if (!array) fail_msg("%s: nothing is called %s", name, what);
        if (strcmp(shape_text(tow_array_type(array), found), shape) != 0)
            fail_msg("%s %s: expected the shape %s, found %s", name, what, shape, found);
        compare_array(file, name, what, array, false);
        lines++;
    }
    assert_true(feof(file) && lines > least);
    fclose(file);
    free_lift_run(&r);
}

#endif
