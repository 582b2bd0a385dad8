/* Facts about the machine: from the processor itself on x86-64 (cpuid), else from what Linux says of its first CPU; and
 * the rates that follow from them. */
#include "src/base/machine.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clones.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static tow__machine machine;

static tow__cache *cache_at(int level)
{
    return level == 1 ? &machine.l1 : level == 2 ? &machine.l2 : level == 3 ? &machine.l3 : NULL;
}

#if defined(__x86_64__)
/* Intel's leaf 4 and AMD's leaf 0x8000001D have one layout. */
static void ask_processor(unsigned leaf)
{
    enum {
        MOST = 8,
        INSTRUCTIONS = 2 /* the type of a cache for instructions alone; 0: behind the last cache */
    };
    for (unsigned i = 0, a, b, c, d; i < MOST && __get_cpuid_count(leaf, i, &a, &b, &c, &d) && (a & 31) != 0; i++) {
        tow__cache *cache = cache_at((int)(a >> 5 & 7));
        if ((a & 31) == INSTRUCTIONS || !cache) continue;
        cache->line = (int)(b & 4095) + 1;
        cache->ways = (int)(b >> 22) + 1;
        cache->bytes = (int64_t)cache->ways * ((b >> 12 & 1023) + 1) * cache->line * ((int64_t)c + 1);
    }
}
#endif

/* A file of /sys/devices/system/cpu/cpu0/cache/indexN. False: there is none. */
static bool read_fact(int index, const char *name, char *text, int size)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    FILE *file = fopen(path, "r");
    if (!file) return false;
    const bool found = fgets(text, size, file) != NULL;
    fclose(file);
    return found;
}

static void ask_system(void)
{
    char text[32];
    for (int i = 0; read_fact(i, "level", text, sizeof text); i++) {
        tow__cache *cache = cache_at(atoi(text));
        if (!cache || !read_fact(i, "type", text, sizeof text) || text[0] == 'I') continue;
        if (!read_fact(i, "size", text, sizeof text)) continue;
        char *unit;
        cache->bytes = strtoll(text, &unit, 10);
        cache->bytes <<= *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0;
        cache->ways = read_fact(i, "ways_of_associativity", text, sizeof text) ? atoi(text) : 0;
        cache->line = read_fact(i, "coherency_line_size", text, sizeof text) ? atoi(text) : 0;
    }
}

static bool avx512_allowed;

static void ask_environment(void)
{
#ifndef TOW_WITHOUT_AVX512
    const char *text = getenv("TOW_INSTRUCTIONS");
    avx512_allowed = !text || strcmp(text, "avx2") != 0;
#endif
}

bool tow__allows_avx512(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask_environment);
    return avx512_allowed;
}

static void ask(void)
{
    machine.vector_bytes = tow__has_avx512() ? 64 : tow__has_avx2() ? 32 : 0;
#if defined(__x86_64__)
    ask_processor(4);
    if (machine.l1.bytes == 0) ask_processor(0x8000001D);
#endif
    if (machine.l1.bytes == 0) ask_system();
    machine.rates = tow__machine_nominal(&machine);
}

const tow__machine *tow__machine_here(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask);
    return &machine;
}

/* ---- rates ------------------------------------------------------------------------------------------------------- */

/* A cycle of 3 GHz does two fused multiply-adds of full vectors, or one cheap function, and moves one and a half
 * vectors from or to L1, one from L2, half of one from L3. Memory gives one thread 24 GB/s, which saturates it; where
 * there are many threads there are more channels. Processors without vectors that Tow has kernels for have such of 16
 * bytes, without fused multiply-adds. */
tow__rates tow__machine_nominal(const tow__machine *m)
{
    const double clock = 3e9, vector = m->vector_bytes > 0 ? m->vector_bytes : 16, memory = 24e9;
    const double f32 = (m->vector_bytes > 0 ? 4 : 2) * (vector / 4) * clock;
    return (tow__rates){.f32 = f32,
                        .f64 = f32 / 2,
                        .functions = vector / 4 * clock,
                        .bytes = {1.5 * vector * clock, vector * clock, vector / 2 * clock, memory},
                        .shared = memory * fmax(1, m->threads / 4.0),
                        .meeting = 5e-6,
                        .call = 50e-9};
}

double tow__machine_correct(double nominal, double measured)
{
    return measured > 0 && nominal > 0 ? nominal * pow(16, round(log2(measured / nominal) / 4)) : nominal;
}

tow__memory_level tow__machine_level(const tow__machine *m, double bytes)
{
    if (bytes <= (double)m->l1.bytes / 2) return TOW__IN_L1;
    if (bytes <= (double)m->l2.bytes / 2) return TOW__IN_L2;
    return bytes <= (double)m->l3.bytes / 8 ? TOW__IN_L3 : TOW__IN_MEMORY;
}

/* ---- a machine that is given ------------------------------------------------------------------------------------- */

typedef struct key {
    const char *name;
    double *where;
    double unit;
    double least;
} key;

enum {
    FACTS = 5, /* keys before those of rates */
    KEYS = FACTS + 10
};

/* Reads NUMBER, with K, M or G behind it if it is a fact. Integers only: no locale is asked. */
static bool read_number(const char **text, bool is_fact, double *number)
{
    char *end;
    const long long value = strtoll(*text, &end, 10);
    if (end == *text || value < 0) return false;
    const char *suffixes = "KMG", *suffix = is_fact && *end ? strchr(suffixes, *end) : NULL;
    *number = (double)value * (suffix ? (double)(1LL << 10 * (1 + (suffix - suffixes))) : 1);
    *text = end + (suffix != NULL);
    return *number <= 1e15;
}

/* Reads KEY=NUMBER of the keys from `first` to `end`; others are passed over. */
static bool read_keys(const char *text, const key *keys, int first, int end)
{
    for (;; text++) {
        double number;
        int i = 0;
        const size_t length = strcspn(text, "=");
        while (i < KEYS && (strlen(keys[i].name) != length || strncmp(keys[i].name, text, length) != 0)) i++;
        if (i == KEYS || text[length] != '=') return false;
        text += length + 1;
        if (!read_number(&text, i < FACTS, &number) || number < keys[i].least) return false;
        if (i >= first && i < end) *keys[i].where = number * keys[i].unit;
        if (*text == '\0') return true;
        if (*text != ',') return false;
    }
}

static void set_cache(tow__cache *cache, double bytes)
{
    if ((int64_t)bytes != cache->bytes) *cache = (tow__cache){.bytes = (int64_t)bytes, .ways = 8, .line = 64};
}

bool tow__machine_read(const char *text, tow__machine *m)
{
    *m = *tow__machine_here();
    double facts[FACTS] = {(double)m->l1.bytes, (double)m->l2.bytes, (double)m->l3.bytes, m->vector_bytes, m->threads};
    tow__rates *r = &m->rates;
    const key keys[KEYS] = {
        {"l1", &facts[0], 1, 0},
        {"l2", &facts[1], 1, 0},
        {"l3", &facts[2], 1, 0},
        {"vector", &facts[3], 1, 0},
        {"threads", &facts[4], 1, 0},
        {"f32", &r->f32, 1e9, 1},
        {"f64", &r->f64, 1e9, 1},
        {"functions", &r->functions, 1e9, 1},
        {"l1_rate", &r->bytes[TOW__IN_L1], 1e9, 1},
        {"l2_rate", &r->bytes[TOW__IN_L2], 1e9, 1},
        {"l3_rate", &r->bytes[TOW__IN_L3], 1e9, 1},
        {"memory_rate", &r->bytes[TOW__IN_MEMORY], 1e9, 1},
        {"shared_rate", &r->shared, 1e9, 1},
        {"meeting", &r->meeting, 1e-9, 0},
        {"overhead", &r->call, 1e-9, 0},
    };
    if (!read_keys(text, keys, 0, FACTS) || facts[3] > 1024 || facts[4] > 4096) return false;
    set_cache(&m->l1, facts[0]);
    set_cache(&m->l2, facts[1]);
    set_cache(&m->l3, facts[2]);
    m->vector_bytes = (int)facts[3];
    m->threads = (int)facts[4];
    *r = tow__machine_nominal(m);
    return read_keys(text, keys, FACTS, KEYS);
}

bool tow__machine_given(tow__machine *m)
{
    const char *text = getenv("TOW_MACHINE");
    return text && *text && tow__machine_read(text, m);
}

/* ---- description ------------------------------------------------------------------------------------------------- */

static size_t describe_cache(const tow__cache *cache, const char *name, char *text, size_t size)
{
    const bool large = cache->bytes >= 1 << 20 && cache->bytes % (1 << 20) == 0;
    if (cache->bytes == 0) return 0;
    const int n = snprintf(text, size, "%s %lld %s %d-way", name, (long long)(cache->bytes >> (large ? 20 : 10)),
                           large ? "MiB" : "KiB", cache->ways);
    return n < 0 ? 0 : (size_t)n;
}

size_t tow__machine_describe(const tow__machine *m, char *text, size_t size)
{
    const tow__cache *const caches[] = {&m->l1, &m->l2, &m->l3};
    static const char *const names[] = {"L1", ", L2", ", L3"};
    size_t used = 0;
    if (m->l1.bytes == 0) {
        const int n = snprintf(text, size, "caches unknown");
        return n < 0 ? 0 : (size_t)n;
    }
    for (int i = 0; i < 3; i++)
        used += describe_cache(caches[i], names[i], used < size ? text + used : NULL, used < size ? size - used : 0);
    return used;
}

size_t tow__machine_describe_rates(const tow__machine *m, char *text, size_t size)
{
    const tow__rates *r = &m->rates;
    const int n = snprintf(text, size,
                           "f32 %.0f, f64 %.0f GFLOP/s; L1 %.0f, L2 %.0f, L3 %.0f, memory %.0f GB/s by one thread, "
                           "%.0f by all; threads meet "
                           "in %.0f ns, a call takes %.0f ns",
                           r->f32 / 1e9, r->f64 / 1e9, r->bytes[TOW__IN_L1] / 1e9, r->bytes[TOW__IN_L2] / 1e9,
                           r->bytes[TOW__IN_L3] / 1e9, r->bytes[TOW__IN_MEMORY] / 1e9, r->shared / 1e9,
                           r->meeting * 1e9, r->call * 1e9);
    return n < 0 ? 0 : (size_t)n;
}
