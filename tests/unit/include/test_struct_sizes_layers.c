/* Structs of other versions of the headers: layers and gradient transforms, as test_struct_sizes.c has options. Tests
 * base/options.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/support/struct_sizes.h"
#include "tow/tow.h"

static outcome call_layer(const void *given, void *user)
{
    tow_params *params = NULL, *variables = NULL;
    (void)user;
    const tow_status status =
        tow_model_init_with(w.ctx, (const tow_module *)given, 0, 1, &w.type, NULL, &params, &variables);
    tow_params_free(params);
    tow_params_free(variables);
    return come_to(status);
}

static outcome call_copy(const void *given, void *user)
{
    tow_module *copy = NULL;
    outcome o = come_to(tow_module_copy(w.ctx, (const tow_module *)given, &copy));
    if (o.status == TOW_OK) o = call_layer(copy, user);
    tow_module_free(copy);
    return o;
}

static outcome call_transform(const void *given, void *user)
{
    tow_optimizer_state *optimizer = NULL;
    (void)user;
    tow_status status = tow_optimizer_create(w.ctx, given, w.params, NULL, &optimizer);
    if (status == TOW_OK) status = tow_optimizer_update(optimizer, tow_params_arrays(w.params));
    tow_optimizer_free(optimizer);
    return come_to(status);
}

static void layers_read_other_versions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++) {
        const tow_module_class *cls = structs[i].layer;
        if (!cls) continue;
        const tow_module made = {.cls = cls};
        unsigned char values[LARGEST] = {0};
        sized s = structs[i].s;
        memcpy(values, &made, sizeof made);
        s.values = values;
        if (!cls->macro || strcmp(cls->macro, s.macro) != 0 || cls->size != s.size || cls->layout->size != s.size)
            fail_msg("%s: its class names another macro, or has another size", s.name);
        check_sizes(&s, call_layer, NULL);
        check_sizes(&s, call_copy, NULL);
    }
}

static void transforms_read_other_versions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof structs / sizeof *structs; i++) {
        const tow_gradient_transform_class *cls = structs[i].transform;
        if (!cls) continue;
        const tow_gradient_transform made = {.cls = cls};
        unsigned char values[LARGEST] = {0};
        sized s = structs[i].s;
        memcpy(values, &made, sizeof made);
        s.values = values;
        if (!cls->macro || strcmp(cls->macro, s.macro) != 0 || cls->size != s.size)
            fail_msg("%s: its class names another macro, or has another size", s.name);
        check_sizes(&s, call_transform, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_read_other_versions),
                                       cmocka_unit_test(transforms_read_other_versions)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
