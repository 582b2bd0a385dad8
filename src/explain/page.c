/* A page that shows one plan, or two side by side: share/plan/plan.html, which the build embeds, with the plans as data
 * where it says so. The page loads nothing. Data stand in a script that is not run, with <, > and & escaped, so no text
 * of theirs can end it; the page shows them as text. */
#include "src/base/arithmetic.h"
#include "src/explain/explain.h"
#include "src/io/io.h"

static const char page[] = {
#include "plan_page.inc"
    0};
static const char place[] = "@PLANS@"; /* of the data */

/* Nothing of the data may look like markup; these characters stand in strings only. */
static void add_harmless(tow__string *s, const char *data)
{
    for (const char *next; *data; data = next) {
        next = data + strcspn(data, "<>&");
        tow__string_add(s, "%.*s", (int)(next - data), data);
        if (*next) tow__string_add(s, "\\u%04x", (unsigned)(unsigned char)*next++);
    }
}

/* Adds a plan, with its residuals if it is a gradient's. */
static tow_status add_plan(tow__string *data, const tow_program *p)
{
    tow__arena scratch;
    tow_residuals list = {0};
    tow__page_residuals places;
    tow_status status = TOW_OK;
    tow__arena_init(&scratch, p->ctx);
    if (tow__origin_of(p)) status = tow__explain(p, &scratch, &list, &places);
    if (status == TOW_OK) status = tow__add_page_plan(data, p, tow__origin_of(p) ? &places : NULL);
    tow_residuals_free(&list);
    tow__arena_free(&scratch);
    return status;
}

static tow_status write_page(tow_context *ctx, const char *path, const tow__string *text)
{
    tow__output_file file = {0};
    tow_status status = tow__output_open(ctx, path, &file);
    if (status == TOW_OK) status = tow__output_write(&file, text->text, text->length);
    if (status == TOW_OK) status = tow__output_commit(&file);
    tow__output_close(&file);
    return status;
}

tow_status tow_program_write_html(const tow_program *p, const tow_program *against, const char *path)
{
    if (!p || !path) return tow__missing(p ? p->ctx : NULL, __func__, "a program and the path of a file");
    TOW__ARITHMETIC(false);
    const char *at = strstr(page, place);
    tow__string data, text;
    tow_status status = TOW_OK;
    tow__string_init(&data, p->ctx);
    tow__string_init(&text, p->ctx);
    tow__string_add(&data, "{\"version\": \"%s\", \"plans\": [", tow_version());
    TRY(add_plan(&data, p));
    if (against) tow__string_add(&data, ",\n");
    if (against) TRY(add_plan(&data, against));
    tow__string_add(&data, "]}");
    tow__string_add(&text, "%.*s", (int)(at - page), page);
    if (!data.failed) add_harmless(&text, data.text);
    tow__string_add(&text, "%s", at + sizeof place - 1);
    TRY(data.failed || text.failed ? TOW_OUT_OF_MEMORY : TOW_OK);
    TRY(write_page(p->ctx, path, &text));
done:
    tow__string_free(&data);
    tow__string_free(&text);
    return status;
}
