/* Tests of dead code elimination and common subexpressions, part of test_graph.c: they use its context. */

/* ---- dead code ------------------------------------------------------------------------------------------------- */

static void expect_dce(const char *text, const char *expected)
{
    tow_graph *g = parse(text), *h = NULL;
    assert_int_equal(tow_graph_dce(g, &h), TOW_OK);
    assert_text(h, expected);
    tow_graph_release(h);
    tow_graph_release(g);
}

static void test_dce(void **state)
{
    (void)state;
    expect_dce("{ lambda ; a:f32[3] b:f32[3]\"kept\". let c:f32[3] = sin a d:f32[3] = cos c e:f32[3] = exp c in (e) }",
               "{ lambda ; a:f32[3] b:f32[3]\"kept\". let\n    c:f32[3] = sin a\n    d:f32[3] = exp c\n  in (d) }\n");
    /* Of the body, the second output, what it needs and the operand b go. */
    expect_dce("{ lambda ; a:f32[3] b:f32[3]. let\n"
               "  c:f32[3] d:f32[3] = call[name=\"f\" body={ lambda ; a:f32[3] b:f32[3]. let\n"
               "    c:f32[3] = sin a d:f32[3] = cos b in (c, d) }] a b\n"
               "  in (c) }",
               "{ lambda ; a:f32[3] b:f32[3]. let\n"
               "    c:f32[3] = call[name=\"f\"\n"
               "      body={ lambda ; a:f32[3]. let\n"
               "          b:f32[3] = sin a\n"
               "        in (b) }] a\n"
               "  in (c) }\n");
    /* Two levels at once, in a remat. */
    expect_dce(
        "{ lambda ; a:f32[3]. let\n"
        "  c:f32[3] d:f32[3] = remat[policy=\"dots\" body={ lambda ; a:f32[3]. let\n"
        "    e:f32[3] f:f32[3] = call[name=\"g\" body={ lambda ; a:f32[3]. let b:f32[3] = sin a c:f32[3] = cos a\n"
        "      in (b, c) }] a in (e, f) }] a\n"
        "  in (d) }",
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = remat[policy=\"dots\" differentiated=false\n"
        "      body={ lambda ; a:f32[3]. let\n"
        "          b:f32[3] = call[name=\"g\"\n"
        "            body={ lambda ; a:f32[3]. let\n"
        "                b:f32[3] = cos a\n"
        "              in (b) }] a\n"
        "        in (b) }] a\n"
        "  in (b) }\n");
}

/* Carries p <- p + q, q <- q * k, r <- r * u; y = x + l. Wanted is p alone: q feeds p, so q and its constant k stay; r
 * with its constant u, and y with x and l, go. */
static void test_dce_of_scan(void **state)
{
    (void)state;
    expect_dce("{ lambda ; k:f32[] u:f32[] l:f32[] p:f32[] q:f32[] r:f32[] x:f32[5]. let\n"
               "  a:f32[] b:f32[] c:f32[] y:f32[5] = scan[length=5 reverse=true consts=3 carry=3\n"
               "    body={ lambda ; k:f32[] u:f32[] l:f32[] p:f32[] q:f32[] r:f32[] x:f32[]. let\n"
               "      p2:f32[] = add p q\n"
               "      q2:f32[] = mul q k\n"
               "      r2:f32[] = mul r u\n"
               "      y:f32[] = add x l\n"
               "    in (p2, q2, r2, y) }] k u l p q r x\n"
               "  in (a) }",
               "{ lambda ; a:f32[] b:f32[] c:f32[] d:f32[] e:f32[] f:f32[] g:f32[5]. let\n"
               "    h:f32[] i:f32[] = scan[length=5 reverse=true consts=1 carry=2\n"
               "      body={ lambda ; a:f32[] b:f32[] c:f32[]. let\n"
               "          d:f32[] = add b c\n"
               "          e:f32[] = mul c a\n"
               "        in (d, e) }] a d e\n"
               "  in (h) }\n");
    /* Only ys wanted: the carry that no y depends on goes, the one that is read stays although it is never written
     * anew. */
    expect_dce("{ lambda ; p:f32[] q:f32[] x:f32[5]. let\n"
               "  a:f32[] b:f32[] y:f32[5] = scan[length=5 consts=0 carry=2\n"
               "    body={ lambda ; p:f32[] q:f32[] x:f32[]. let\n"
               "      q2:f32[] = add q x\n"
               "      y:f32[] = mul x p\n"
               "    in (p, q2, y) }] p q x\n"
               "  in (y) }",
               "{ lambda ; a:f32[] b:f32[] c:f32[5]. let\n"
               "    d:f32[] e:f32[5] = scan[length=5 reverse=false consts=0 carry=1\n"
               "      body={ lambda ; a:f32[] b:f32[]. let\n"
               "          c:f32[] = mul b a\n"
               "        in (a, c) }] a c\n"
               "  in (e) }\n");
}

static void test_dce_of_chosen_outputs(void **state)
{
    (void)state;
    tow_graph *g =
                  parse("{ lambda ; a:f32[3]\"x\" b:f32[3]\"y\". let c:f32[3] = sin a d:f32[3] = cos b in (c, d, b) }"),
              *h;
    bool kept[2] = {true, true};
    assert_int_equal(tow__dce(g, (bool[]){false, true, false}, true, kept, &h), TOW_OK);
    assert_false(kept[0]);
    assert_true(kept[1]);
    assert_text(h, "{ lambda ; a:f32[3]\"y\". let\n    b:f32[3] = cos a\n  in (b) }\n");
    tow_graph_release(h);
    g->equations[0].source.phase = TOW__RECOMPUTED;
    assert_int_equal(tow__dce(g, (bool[]){true, false, true}, false, kept, &h), TOW_OK);
    assert_int_equal(tow_graph_input_count(h), 2);
    assert_int_equal(h->equations[0].source.phase, TOW__RECOMPUTED);
    assert_true(kept[0] && kept[1]);
    tow_graph_release(h);
    tow_graph_release(g);
}

/* 60 nested scans whose dead carry shows at the second look: marking must not take 2^60 steps. */
static void test_dce_of_deep_scans(void **state)
{
    (void)state;
    enum {
        DEEP = 60
    };
    static char text[1 << 16];
    size_t at = 0;
    for (int i = 0; i < DEEP; i++)
        at +=
            (size_t)snprintf(text + at, sizeof text - at,
                             "{ lambda ; p:f32[] q:f32[]. let a:f32[] b:f32[] = scan[length=2 consts=0 carry=2 body=");
    at +=
        (size_t)snprintf(text + at, sizeof text - at, "{ lambda ; p:f32[] q:f32[]. let c:f32[] = add p q in (c, q) }");
    for (int i = 0; i < DEEP; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "] p q in (%s) }", i < DEEP - 1 ? "a, b" : "a");
    tow_graph *g = parse(text), *h;
    assert_int_equal(tow_graph_dce(g, &h), TOW_OK);
    assert_int_equal(tow_graph_primitive_count(h, "scan"), DEEP);
    tow_graph_release(h);
    tow_graph_release(g);
}

/* ---- common subexpressions ------------------------------------------------------------------------------------- */

static void expect_cse(const char *text, const char *expected)
{
    tow_graph *g = parse(text), *h = NULL;
    assert_int_equal(tow_graph_cse(g, &h), TOW_OK);
    assert_text(h, expected);
    tow_graph_release(h);
    tow_graph_release(g);
}

static void test_cse(void **state)
{
    (void)state;
    /* Chains merge; other parameters do not. */
    expect_cse(
        "{ lambda ; a:f32[3]. let b:f32[3] = sin a c:f32[3] = sin a d:f32[3] = cos b e:f32[3] = cos c\n"
        "  f:f32[] = reduce_sum[axes=(0)] d g:f32[] = reduce_max[axes=(0)] e h:f32[3] = integer_pow[exponent=2] a\n"
        "  i:f32[3] = integer_pow[exponent=3] a in (f, g, h, i) }",
        "{ lambda ; a:f32[3]. let\n    b:f32[3] = sin a\n    c:f32[3] = cos b\n    d:f32[] = reduce_sum[axes=(0)] c\n"
        "    e:f32[] = reduce_max[axes=(0)] c\n    f:f32[3] = integer_pow[exponent=2] a\n"
        "    g:f32[3] = integer_pow[exponent=3] a\n  in (d, e, f, g) }\n");
    /* Constants merge bit for bit: 0 and -0 are two. */
    expect_cse("{ lambda ; . let a:f32[] = const[value=0.0] b:f32[] = const[value=-0.0] c:f32[] = const[value=0.0] in "
               "(a, b, c) }",
               "{ lambda ; . let\n    a:f32[] = const[value=0.0]\n    b:f32[] = const[value=-0.0]\n  in (a, b, a) }\n");
    /* Within the body, but not across its border. */
    expect_cse("{ lambda ; a:f32[3]. let b:f32[3] = sin a\n"
               "  c:f32[3] = remat[policy=none body={ lambda ; a:f32[3]. let b:f32[3] = sin a c:f32[3] = sin a "
               "d:f32[3] = mul b c\n"
               "    in (d) }] a in (b, c) }",
               "{ lambda ; a:f32[3]. let\n    b:f32[3] = sin a\n"
               "    c:f32[3] = remat[policy=none differentiated=false\n"
               "      body={ lambda ; a:f32[3]. let\n          b:f32[3] = sin a\n          c:f32[3] = mul b b\n        "
               "in (c) }] a\n"
               "  in (b, c) }\n");
    /* Equal regions merge; those with other policies do not. */
    tow_graph *g = parse(
                  "{ lambda ; a:f32[3]. let\n"
                  " b:f32[3] = remat[policy=\"dots\" body={ lambda ; a:f32[3]. let b:f32[3] = sin a in (b) }] a\n"
                  " c:f32[3] = remat[policy=\"dots\" body={ lambda ; a:f32[3]. let b:f32[3] = sin a in (b) }] a\n"
                  " d:f32[3] = remat[policy=\"nothing\" body={ lambda ; a:f32[3]. let b:f32[3] = sin a in (b) }] a\n"
                  " e:f32[3] = remat[policy=\"dots\" body={ lambda ; a:f32[3]. let b:f32[3] = cos a in (b) }] a\n"
                  "in (b, c, d, e) }"),
              *h;
    assert_int_equal(tow_graph_cse(g, &h), TOW_OK);
    assert_int_equal(tow_graph_primitive_count(h, "remat"), 3);
    assert_int_equal(h->outputs[0], h->outputs[1]);
    tow_graph_release(h);
    tow_graph_release(g);
}

static void test_cse_keeps_phases_apart(void **state)
{
    (void)state;
    tow_graph *g = parse("{ lambda ; a:f32[3]. let b:f32[3] = sin a c:f32[3] = sin a d:f32[3] = sin a e:f32[3] = sin a "
                         "in (b, c, d, e) }"),
              *h;
    g->equations[2].source.phase = g->equations[3].source.phase = TOW__BACKWARD;
    assert_int_equal(tow_graph_cse(g, &h), TOW_OK);
    assert_int_equal(tow_graph_equation_count(h), 2);
    assert_int_equal(h->equations[0].source.phase, TOW__FORWARD);
    assert_int_equal(h->equations[1].source.phase, TOW__BACKWARD);
    tow_graph_release(h);
    tow_graph_release(g);
}
