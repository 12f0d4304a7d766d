/* In parameters zero is the default: `{.size = sizeof(params), .arena = arena}` is the usual pool. */
#include <string.h>

#include "check.h"

static const struct pagepool_params pool_init = PAGEPOOL_PARAMS_INIT;
static const struct pagepool_arena_params arena_init = PAGEPOOL_ARENA_PARAMS_INIT;

static struct pagepool *bound(struct pagepool_params params)
{
    struct pagepool *pool = NULL;
    CHECK(pagepool_create(&params, &pool) == 0 && pagepool_bind(pool) == 0);
    return pool;
}

/* How many offsets packets begin at in the pages of a pool. */
static int colours(struct pagepool_params params)
{
    struct pagepool *pool = bound(params);
    char seen[4096] = {0};
    int found = 0;
    for (int i = 0; i < 64; i++) {
        struct pagepool_buf *buf = pagepool_alloc_page(pool);
        char *start = &seen[(char *)pagepool_buf_packet(buf) - (char *)pagepool_buf_data(buf)];
        found += !*start;
        *start = 1; /* and the page stays out */
    }
    CHECK(pagepool_destroy(pool) == 0);
    return found;
}

static void colour(struct pagepool_arena *arena)
{
    struct pagepool_params params = {.size = sizeof(params), .arena = arena, .max_len = 1514};
    CHECK(colours(params) == 16);
    params.colour = 1;
    CHECK(colours(params) == 16);
    params.colour = PAGEPOOL_NO_COLOUR;
    CHECK(colours(params) == 1);
}

static uint32_t node_of_page(uint32_t page, void *arg)
{
    (void)arg;
    return page % 2;
}

/* The node of the first page of a pool. */
static uint32_t node(struct pagepool_params params)
{
    struct pagepool *pool = bound(params);
    struct pagepool_buf *buf = pagepool_alloc_page(pool);
    uint32_t node = pagepool_buf_page_index(buf) % 2;
    CHECK(pagepool_buf_put(buf) == 0 && pagepool_destroy(pool) == 0);
    return node;
}

/* This thread seems to run on node 1 of two. */
static void nodes(void)
{
    struct pagepool_arena_params params = {
        .size = sizeof(params), .max_bytes = 4 << 20, .nodes = 2, .node_of_page = node_of_page};
    struct pagepool_arena *arena;
    CHECK(pagepool_arena_create(&params, &arena) == 0 && pagepool_arena_set_current_node(arena, 1) == 0);
    struct pagepool_params pool = {.size = sizeof(pool), .arena = arena};
    CHECK(node(pool) == 1);
    pool.nid = PAGEPOOL_NODE_ANY;
    CHECK(node(pool) == 1);
    pool.nid = PAGEPOOL_NODE(-1);
    CHECK(node(pool) == 1);
    pool.nid = PAGEPOOL_NODE(0);
    CHECK(node(pool) == 0);
    pool.nid = PAGEPOOL_NODE(1);
    CHECK(pagepool_arena_set_current_node(arena, 0) == 0 && node(pool) == 1);
    struct pagepool *other = bound(pool);
    CHECK(pagepool_update_nid(other, 0) == 0 && pagepool_update_nid(other, 1) == 0);
    CHECK(pagepool_nid_changed(other, 2) == -EINVAL);
    CHECK(pagepool_update_nid(other, PAGEPOOL_NODE(1)) == -EINVAL);
    CHECK(strstr(pagepool_last_error(), "nid is 257, but must be -1, or a node up to 255: 1 without"));
    CHECK(pagepool_update_nid(other, 300) == -EINVAL && pagepool_update_nid(other, -2) == -EINVAL);
    CHECK(pagepool_update_nid(other, -1) == 0);
    CHECK(pagepool_buf_put(pagepool_alloc_page(other)) == 0);
    struct pagepool_stats before = PAGEPOOL_STATS_INIT, after = PAGEPOOL_STATS_INIT;
    CHECK(pagepool_read_stats(other, &before) == 0 && pagepool_nid_changed(other, -1) == 0);
    CHECK(pagepool_read_stats(other, &after) == 0 && after.release == before.release);
    CHECK(pagepool_destroy(other) == 0);
    CHECK(pagepool_arena_put(arena) == 0);
}

/* A struct of zeroes but for its size makes what the initialisers make. */
static void initialisers(void)
{
    struct pagepool_params pool;
    struct pagepool_arena_params params;
    struct pagepool_arena *arenas[2];
    char lines[2][400];
    memset(&pool, 0, sizeof(pool));
    memset(&params, 0, sizeof(params));
    pool.size = sizeof(pool);
    params.size = sizeof(params);
    CHECK(memcmp(&pool, &pool_init, sizeof(pool)) == 0 && memcmp(&params, &arena_init, sizeof(params)) == 0);
    CHECK(pagepool_arena_create(&params, &arenas[0]) == 0);
    params.node = PAGEPOOL_NODE_ANY;
    params.max_bytes = 64 << 20;
    params.backing = PAGEPOOL_BACKING_TRANSPARENT_HUGE;
    params.name = "arena";
    CHECK(pagepool_arena_create(&params, &arenas[1]) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(pagepool_arena_describe(arenas[i], lines[i], sizeof(lines[i])) > 0);
        CHECK(pagepool_arena_put(arenas[i]) == 0);
    }
    CHECK(strcmp(lines[0], lines[1]) == 0);
}

static void deferred(struct pagepool_arena *arena)
{
    struct pagepool_params params = {.size = sizeof(params), .arena = arena, .defer_capacity = 8};
    params.on_busy = PAGEPOOL_ON_BUSY_SKIP;
    CHECK(pagepool_destroy(bound(params)) == 0);
}

int main(void)
{
    struct pagepool_arena *arena = arena_of(16 << 20);
    initialisers();
    colour(arena);
    nodes();
    deferred(arena);
    CHECK(pagepool_arena_put(arena) == 0);
    puts("ok");
    return 0;
}
