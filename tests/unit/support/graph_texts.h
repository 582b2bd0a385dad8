/* Tests of the textual form, part of test_graph.c: they use its context. */

/* One of everything: strings, policies, lists, dtypes, arrays, nested graphs. */
static const char rich_text[] =
    "{ lambda ; a:f32[5,4] b:f32[4]\"x\\\"y\" c:bool[] d:f32[7,4]. let\n"
    "    e:f32[5] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] a b\n"
    "    f:f32[5] = name[name=\"mid\\\\dle\"] e\n"
    "    g:f32[5] = remat[policy=\"names:p,q\" differentiated=false\n"
    "      body={ lambda ; a:f32[5]. let\n"
    "          b:f32[5] = cos a\n"
    "          c:f32[5] = name[name=\"p\"] b\n"
    "          d:f32[5] = call[name=\"deeper\"\n"
    "            body={ lambda ; a:f32[5]. let\n"
    "                b:f32[5] = const[value=f32[5](1.0 -2.5 1e+30 nan -inf)]\n"
    "                c:f32[5] = mul a b\n"
    "              in (c) }] c\n"
    "          e:f32[5] = name[name=\"q\"] d\n"
    "        in (e) }] f\n"
    "    h:f32[] = const[value=2.0]\n"
    "    i:i32[2,2] = const[value=i32[2,2](1 -2 3 2147483647)]\n"
    "    j:bool[3] = const[value=bool[3](true false true)]\n"
    "    k:f32[0] = const[value=f32[0]()]\n"
    "    l:f64[] = const[value=0.1]\n"
    "    m:f32[4] n:f32[7,4] = scan[length=7 reverse=true consts=0 carry=1\n"
    "      body={ lambda ; a:f32[4] b:f32[4]. let\n"
    "          c:f32[4] = add a b\n"
    "        in (c, b) }] b d\n"
    "    o:i32[5] = convert[dtype=i32] g\n"
    "  in (o, h, m, n, a) }\n";

static void expect_round_trip(const char *text)
{
    static char again[1 << 16];
    tow_graph *g = parse(text), *h;
    assert_text(g, text);
    tow_graph_text(g, again, sizeof again);
    h = parse(again);
    assert_true(tow__graph_equal(g, h));
    tow_graph_release(h);
    tow_graph_release(g);
}

static void test_round_trips(void **state)
{
    (void)state;
    expect_round_trip(rich_text);
    expect_round_trip("{ lambda ; . let\n  in () }\n");
    tow_graph *g = trace(closures, 3, 1), *h;
    static char text[1 << 14];
    tow_graph_text(g, text, sizeof text);
    h = parse(text);
    assert_true(tow__graph_equal(g, h)); /* captures are numbered as the reader numbers them */
    char part[20];
    assert_int_equal(tow_graph_text(g, part, sizeof part), strlen(text));
    assert_memory_equal(part, text, sizeof part - 1);
    assert_int_equal(part[sizeof part - 1], '\0');
    FILE *file = tmpfile();
    assert_int_equal(tow_graph_print(g, file), TOW_OK);
    assert_int_equal(ftell(file), strlen(text));
    fclose(file);
    file = fopen("/dev/full", "w");
    if (file) {
        setvbuf(file, NULL, _IONBF, 0);
        assert_int_equal(tow_graph_print(g, file), TOW_IO_ERROR);
        fclose(file);
    }
    tow_graph_release(g);
    tow_graph_release(h);
}

/* The bits of constants survive: every exponent of f32 with a few fractions, and special values of f64. */
static void test_scalars(void **state)
{
    (void)state;
    enum {
        N = 256 * 2 * 5
    };
    static uint32_t bits[N];
    static const uint32_t fractions[5] = {0, 1, 0x7fffff, 0x400000, 0x2aaaab};
    for (uint32_t i = 0; i < N; i++) bits[i] = (i % 2) << 31 | (i / 2 % 256) << 23 | fractions[i / 512];
    const uint64_t wide[] = {0,
                             UINT64_C(1) << 63,
                             1,
                             UINT64_C(0x7fefffffffffffff),
                             UINT64_C(0x3fb999999999999a),
                             UINT64_C(0x7ff8000000000000),
                             UINT64_C(0xfff8000000000001),
                             UINT64_C(0x7ff0000000000000)};
    tow_trace *t = tow__trace_begin(ctx);
    const tow_value values[2] = {tow_constant_data(t, vector(N), bits),
                                 tow_constant_data(t, tow_make_type(TOW_F64, 1, (int64_t[]){8}), wide)};
    tow_graph *g, *h;
    assert_int_equal(tow__trace_end(t, 2, values, false, &g), TOW_OK);
    static char text[1 << 17];
    assert_true(tow_graph_text(g, text, sizeof text) < sizeof text);
    h = parse(text);
    const tow__const_params *f32 = h->equations[0].params, *f64 = h->equations[1].params;
    assert_memory_equal(tow_array_data(f32->value), bits, sizeof bits);
    assert_memory_equal(tow_array_data(f64->value), wide, sizeof wide);
    assert_non_null(strstr(text, " 0.1 nan nan:fff8000000000001 inf)")); /* the fewest digits */
    tow_graph_release(g);
    tow_graph_release(h);
}

static void test_reading_is_lenient(void **state)
{
    (void)state;
    tow_graph *g = parse("# a comment\n{lambda;x:f32[2,3]\"in\"y:f32[3].let # more\n"
                         "  z:f32[2]=dot_general[ lhs_contract = ( 1 ), rhs_contract=(0)]x y _:f32[2] = sin z\n"
                         "  in_2:f32[2] = add z z w:f32[2,2] = const[value=f32[2,2](1, 2, 3 nan)]\n"
                         "  in(in_2,x)}# end");
    assert_text(
        g, "{ lambda ; a:f32[2,3]\"in\" b:f32[3]. let\n"
           "    c:f32[2] = dot_general[lhs_contract=(1) rhs_contract=(0) lhs_batch=() rhs_batch=()] a b\n"
           "    d:f32[2] = sin c\n    e:f32[2] = add c c\n    f:f32[2,2] = const[value=f32[2,2](1.0 2.0 3.0 nan)]\n"
           "  in (e, a) }\n");
    tow_graph_release(g);
}

static void test_locale_does_not_matter(void **state)
{
    (void)state;
    static const char *const with_comma[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8"};
    const char *found = NULL;
    for (size_t i = 0; i < 3 && !found; i++) found = setlocale(LC_ALL, with_comma[i]);
    if (!found) skip();
    expect_round_trip("{ lambda ; . let\n    a:f32[] = const[value=2.5]\n  in (a) }\n");
    setlocale(LC_ALL, "C");
}

static void test_parse_errors(void **state)
{
    (void)state;
#define BODY(text) "{ lambda ; a:f32[3] b:f32[4]. let\n  " text "\n in (a) }"
    static const struct {
        const char *text;
        tow_status status;
        const char *parts[3];
    } cases[] = {
        {"", TOW_BAD_FORMAT, {"line 1, column 1: expected '{', found the end of the text"}},
        {"{ lamda ; . let in () }", TOW_BAD_FORMAT, {"line 1, column 3: expected lambda, found 'lamda'"}},
        {"{ lambda ; a:f8[3]. let in (a) }",
         TOW_BAD_FORMAT,
         {"line 1, column 14: expected an element type", "found 'f8'"}},
        {"{ lambda ; a:f32[3,-1]. let in (a) }", TOW_BAD_FORMAT, {"column 14", "f32[3,-1]"}},
        {"{ lambda ; a:f32[1,1,1,1,1,1,1,1,1]. let in (a) }", TOW_BAD_FORMAT, {"at most 8 dimensions"}},
        {"{ lambda ; a:f32[9223372036854775807,9223372036854775807]. let in (a) }",
         TOW_BAD_FORMAT,
         {"less than 2^60 bytes"}},
        {"{ lambda ; a:f32[99999999999999999999999999999999999999]. let in (a) }", TOW_BAD_FORMAT, {"64 bits"}},
        {"{ lambda ; a:f32[9223372036854775808]. let in (a) }", TOW_BAD_FORMAT, {"64 bits"}},
        {"{ lambda ; a:f32[3] a:f32[3]. let in (a) }", TOW_BAD_FORMAT, {"column 21: the name 'a' is defined twice"}},
        {"{ lambda ; a:f32[3]\"x. let in (a) }", TOW_BAD_FORMAT, {"column 20", "closing quote"}},
        {"{ lambda ; a:f32[3]\"\\q\". let in (a) }", TOW_BAD_FORMAT, {"column 21", "\\xHH"}},
        {"{ lambda ; a:f32[3]\"\\x00\". let in (a) }", TOW_BAD_FORMAT, {"not \\x00"}},
        {"{ lambda ; a:f32[3]. let in (z) }", TOW_BAD_FORMAT, {"column 30: the name 'z' is not defined"}},
        {"{ lambda ; a:f32[3]. let in (a) } more", TOW_BAD_FORMAT, {"expected the end of the text, found 'more'"}},
        {BODY("c:f32[3] = sine a"), TOW_NOT_FOUND, {"line 2, column 14: ", "found 'sine': did you mean sin?"}},
        {BODY("c:f32[3] = dot_genaral a"), TOW_NOT_FOUND, {"did you mean dot_general?"}},
        {BODY("c:f32[3] = qqqqqqqqqqqqqqqq a"), TOW_NOT_FOUND, {"expected a primitive, found 'qqqqqqqqqqqqqqqq'"}},
        {BODY("c:f32[3] = sin a a"), TOW_INVALID_ARGUMENT, {"line 2, column 14", "expected 1 operands, found 2"}},
        {BODY("c:f32[3] = sin"), TOW_INVALID_ARGUMENT, {"expected 1 operands, found 0"}},
        {BODY("c:f32[3] d:f32[3] = sin a"), TOW_INVALID_ARGUMENT, {"expected 1 results, found 2"}},
        {BODY("c:f32[4] = sin a"), TOW_TYPE_MISMATCH, {"line 2, column 3", "declared as f32[4]", "yields f32[3]"}},
        {BODY("c:f32[3] = add a b"), TOW_SHAPE_MISMATCH, {"line 2, column 14", "f32[3]", "f32[4]"}},
        {BODY("c:f32[3] = sin[x=1] a"), TOW_BAD_FORMAT, {"expected a parameter of sin (it has none), found 'x'"}},
        {BODY("c:f32[] = reduce_sum[axis=(0)] a"),
         TOW_BAD_FORMAT,
         {"expected a parameter of reduce_sum (axes), found 'axis'"}},
        {BODY("c:f32[] = reduce_sum[axes=(0) axes=(0)] a"), TOW_BAD_FORMAT, {"given twice"}},
        {BODY("c:f32[] = reduce_sum[axes=(0,0,0,0,0,0,0,0,0)] a"), TOW_BAD_FORMAT, {"at most 8 numbers"}},
        {BODY("c:f32[3] = integer_pow a"), TOW_BAD_FORMAT, {"expected the parameter exponent of integer_pow"}},
        {BODY("c:f32[3] = convert[dtype=f99] a"), TOW_BAD_FORMAT, {"found 'f99'"}},
        {BODY("c:f32[3] = cumsum[axis=0 reverse=maybe] a"), TOW_BAD_FORMAT, {"expected true or false, found 'maybe'"}},
        {BODY("c:f32[3] = const[value=f32[3](1.0 2.0)]"), TOW_BAD_FORMAT, {"expected 3 elements for f32[3], found 2"}},
        {BODY("c:f32[3] = const[value=f32[3](1.0 2.0 3.0 4.0)]"), TOW_BAD_FORMAT, {"expected ')', found '4'"}},
        {BODY("c:f32[] = const[value=1e99]"), TOW_BAD_FORMAT, {"range of f32", "'1e99'"}},
        {BODY("c:i32[] = const[value=2147483648]"), TOW_BAD_FORMAT, {"range of i32"}},
        {BODY("c:u32[] = const[value=-1]"), TOW_BAD_FORMAT, {"range of u32"}},
        {BODY("c:f32[] = const[value=nan:3f800000]"), TOW_BAD_FORMAT, {"bits of a NaN"}},
        {BODY("c:bool[] = const[value=1]"), TOW_BAD_FORMAT, {"true or false"}},
        {BODY("c:f32[900000000000] = const[value=f32[900000000000](1.0)]"), TOW_BAD_FORMAT, {"900000000000 elements"}},
        {BODY("c:f32[3] = remat[policy=\"dotz\" body={ lambda ; a:f32[3]. let in (a) }] a"),
         TOW_BAD_FORMAT,
         {"line 2, column "}},
        {BODY("c:f32[3] = remat[policy=\"dots\"] a"), TOW_BAD_FORMAT, {"expected the parameter body of remat"}},
        {BODY("c:f32[3] = call[body={ lambda ; . let in (a) }]"), TOW_BAD_FORMAT, {"graphs are closed"}},
        {BODY("c:f32[3] = call[body={ lambda ; z:f32[3]. let y:f32[3] = sine z in (y) }] a"),
         TOW_NOT_FOUND,
         {"did you mean sin?"}},
        {BODY("c:f32[3] = call[body={ lambda ; z:f32[4]. let in (z) }] a"), TOW_OK, {"line 2, column 14"}},
        {BODY("c:f32[3] = scan[length=-4 consts=0 carry=1 body={ lambda ; z:f32[3]. let in (z) }] a"),
         TOW_OK,
         {"line 2"}},
        {BODY("c:f32[3] = scan[length=4 consts=9223372036854775807 carry=9223372036854775807\n"
              "  body={ lambda ; z:f32[3]. let in (z) }] a"),
         TOW_OK,
         {"line 2"}},
        {BODY("c:f32[3] = scan[length=4 consts=-1 carry=2 body={ lambda ; z:f32[3]. let in (z) }] a"),
         TOW_OK,
         {"line 2"}},
        {BODY("c:f32[1152921504606846976] = iota[dtype=f32 shape=(1152921504606846976) axis=0]"),
         TOW_BAD_FORMAT,
         {"line 2"}},
        {BODY("c:f32[3] = iota[dtype=f32 shape=(1152921504606846976) axis=0]"), TOW_OK, {"line 2"}},
        {BODY("\x01"), TOW_BAD_FORMAT, {"found the byte 0x01"}},
        {BODY("\xc3\xa4"), TOW_BAD_FORMAT, {"found the byte 0xc3"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tow_graph *g = NULL;
        tow_status status = tow_graph_parse(ctx, cases[i].text, &g);
        if (status == TOW_OK) fail_msg("accepted: %s", cases[i].text);
        assert_null(g);
        assert_int_equal(status, tow_context_status(ctx));
        if (cases[i].status != TOW_OK && status != cases[i].status)
            fail_msg("case %zu: %s instead of %s: %s", i, tow_status_text(status), tow_status_text(cases[i].status),
                     tow_context_error(ctx));
        for (size_t j = 0; j < 3 && cases[i].parts[j]; j++)
            if (!strstr(tow_context_error(ctx), cases[i].parts[j]))
                fail_msg("case %zu: '%s' is not in: %s", i, cases[i].parts[j], tow_context_error(ctx));
    }
}

/* Every prefix of a valid text is refused with a position. */
static void test_truncated_text(void **state)
{
    (void)state;
    static char text[sizeof rich_text];
    size_t whole = (size_t)(strrchr(rich_text, '}') - rich_text);
    for (size_t n = 0; n <= whole; n++) {
        tow_graph *g = NULL;
        memcpy(text, rich_text, n);
        text[n] = '\0';
        assert_int_not_equal(tow_graph_parse(ctx, text, &g), TOW_OK);
        assert_null(g);
        assert_non_null(strstr(tow_context_error(ctx), "line "));
    }
}

/* Bytes replaced, doubled and removed: never a crash, and what is still accepted is a correct graph. */
static void test_damaged_text(void **state)
{
    (void)state;
    static const char bytes[] = "()[]{}.,;:=\"\\#-09aef_ \n";
    static char text[sizeof rich_text + 1];
    uint32_t random = 12345;
    for (int i = 0; i < 6000; i++) {
        memcpy(text, rich_text, sizeof rich_text);
        for (int change = 0; change < 1 + i % 3; change++) {
            random = random * 1664525 + 1013904223;
            size_t at = (random >> 8) % (strlen(text)), length = strlen(text);
            if (random >> 30 == 0)
                memmove(text + at, text + at + 1, length - at);
            else
                text[at] = bytes[(random >> 3) % (sizeof bytes - 1)];
        }
        tow_graph *g = NULL;
        tow_status status = tow_graph_parse(ctx, text, &g);
        if (status == TOW_OK) assert_int_equal(tow_graph_check(g), TOW_OK);
        assert_true((status == TOW_OK) == (g != NULL));
        tow_graph_release(g);
    }
}

static tow_status parse_nested(int levels)
{
    size_t each = 80;
    char *text = malloc((size_t)levels * each + 100);
    size_t at = 0;
    for (int i = 1; i < levels; i++) at += (size_t)sprintf(text + at, "{ lambda ; a:f32[]. let b:f32[] = call[body=");
    at += (size_t)sprintf(text + at, "{ lambda ; a:f32[]. let in (a) }");
    for (int i = 1; i < levels; i++) at += (size_t)sprintf(text + at, "] a in (b) }");
    tow_graph *g = NULL;
    tow_status status = tow_graph_parse(ctx, text, &g);
    tow_graph_release(g);
    free(text);
    return status;
}

static void test_deep_nesting(void **state)
{
    (void)state;
    assert_int_equal(parse_nested(64), TOW_OK);
    assert_int_equal(parse_nested(65), TOW_UNSUPPORTED);
    assert_non_null(strstr(tow_context_error(ctx), "more than 64 levels"));
    assert_int_equal(parse_nested(20000), TOW_UNSUPPORTED);
}

/* ---- allocation failures --------------------------------------------------------------------------------------- */

/* Traces, prints, reads back, cleans and merges a nested graph; the status of the first step that failed. */
static tow_status everything(tow_context *c)
{
    static char text[1 << 14];
    tow_graph *g[5] = {NULL};
    const tow_type types[3] = {vector(3), vector(3), vector(3)};
    const char *names[3] = {"p", NULL, "q"};
    tow_status status = tow_trace_function(c, closures, NULL, 3, types, names, 1, &g[0]);
    if (status == TOW_OK) status = tow_graph_text(g[0], text, sizeof text) > 0 ? TOW_OK : tow_context_status(c);
    if (status == TOW_OK) status = tow_graph_parse(c, text, &g[1]);
    if (status == TOW_OK) status = tow_graph_parse(c, rich_text, &g[2]);
    if (status == TOW_OK) status = tow_graph_dce(g[2], &g[3]);
    if (status == TOW_OK) status = tow_graph_cse(g[2], &g[4]);
    if (status == TOW_OK) status = tow_graph_check(g[4]);
    for (size_t i = 0; i < 5; i++) tow_graph_release(g[i]);
    return status;
}

static void test_every_allocation_fails_in_turn(void **state)
{
    (void)state;
    bool done = false;
    long n = 0;
    for (; n < 10000 && !done; n++) {
        counting c;
        tow_context_options options = counting_options(&c, n);
        tow_context *own;
        if (tow_context_create(&options, &own) != TOW_OK) continue;
        tow_status status = everything(own);
        if (status != TOW_OK && status != TOW_OUT_OF_MEMORY)
            fail_msg("allocation %ld: %s: %s", n, tow_status_text(status), tow_context_error(own));
        if (status != TOW_OK) assert_int_equal(tow_context_status(own), TOW_OUT_OF_MEMORY);
        done = c.calls <= n;
        if (done != (status == TOW_OK)) fail_msg("allocation %ld failed and nobody noticed", n);
        tow_context_free(own);
        if (c.blocks != 0) fail_msg("allocation %ld: %ld blocks leaked", n, c.blocks);
        assert_int_equal(c.wrong_sizes, 0);
    }
    assert_true(done);
    assert_true(n > 100);
}
