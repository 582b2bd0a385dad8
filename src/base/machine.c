/* Facts about the machine: from the processor itself on x86-64 (cpuid), else from what Linux says of its first CPU. */
#include "src/base/machine.h"

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

static void ask(void)
{
    machine.vector_bytes = tow__has_avx512() ? 64 : tow__has_avx2() ? 32 : 0;
#if defined(__x86_64__)
    ask_processor(4);
    if (machine.l1.bytes == 0) ask_processor(0x8000001D);
#endif
    if (machine.l1.bytes == 0) ask_system();
}

const tow__machine *tow__machine_here(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, ask);
    return &machine;
}

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
