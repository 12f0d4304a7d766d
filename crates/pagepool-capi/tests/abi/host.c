/* Loads a plug-in that has another version of the library, and makes its symbols visible to all. Neither
 * library accepts a handle of the other, and each counts only its own buffers. */
#include <dlfcn.h>
#include <string.h>

#include "../c/check.h"

static size_t lines(void)
{
    char text[8192];
    size_t n = 0;
    CHECK(pagepool_dump(text, sizeof(text)) >= 0);
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        n++;
    return n;
}

int main(int argc, char **argv)
{
    struct pagepool_stats stats = PAGEPOOL_STATS_INIT;
    struct pagepool_arena *arena = arena_of(8 << 20);
    struct pagepool *pool = pool_over(arena);
    struct pagepool_buf *theirs = NULL;
    int (*run)(struct pagepool *, struct pagepool_buf *, struct pagepool_buf **);
    CHECK(argc == 2 && pagepool_bind(pool) == 0);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    void *plug_in = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (plug_in == NULL)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    *(void **)&run = dlsym(plug_in, "plugin_run");
    CHECK(run != NULL && run(pool, buf, &theirs) == 0);
    for (int round = 0; round < 3; round++) {
        CHECK(pagepool_buf_put(theirs) < 0 && pagepool_buf_data(theirs) == NULL);
        CHECK(pagepool_buf_put(buf) == 0 && (buf = pagepool_alloc_page(pool)) != NULL);
    }
    CHECK(lines() == 1); /* the plug-in's pool is not ours */
    CHECK(pagepool_buf_put(buf) == 0);
    CHECK(pagepool_read_stats(pool, &stats) == 0 && stats.recycle_cached == 4 && stats.hold == 64);
    CHECK(pagepool_destroy(pool) == 0 && pagepool_arena_put(arena) == 0);
    puts("ok");
    return 0;
}
