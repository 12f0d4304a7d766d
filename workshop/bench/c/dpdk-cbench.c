/*
 * dpdk-cbench: the work of pagepool-cbench and pagepool-cbench-remote with DPDK's default mempool, ring_mp_mc
 * with a cache of 512 objects on each lcore.
 *
 *     cc -O3 dpdk-cbench.c $(pkg-config --cflags --libs libdpdk) -o dpdk-cbench
 *     ./dpdk-cbench -l 0,1 --no-huge --no-pci -m 256
 *
 * "mempool" gets and puts objects, "mbuf" allocates and frees packet buffers and takes the address of each
 * packet. DPDK's functions are inline, so compile with -O3, as DPDK does.
 */
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "across.h"

#define OBJECTS 8191
#define CACHE 512

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s: %s\n", what, rte_strerror(rte_errno));
        exit(1);
    }
}

static void mempool_pairs(void *pool)
{
    for (int i = 0; i < LOOPS; i++) {
        void *object;
        must(rte_mempool_get(pool, &object) == 0, "rte_mempool_get");
        look(object);
        rte_mempool_put(pool, object);
    }
}

static void mempool_bulk_pairs(void *pool)
{
    void *objects[BURST];
    for (int i = 0; i < LOOPS; i += BURST) {
        must(rte_mempool_get_bulk(pool, objects, BURST) == 0, "rte_mempool_get_bulk");
        look(objects);
        rte_mempool_put_bulk(pool, objects, BURST);
    }
}

static void mbuf_pairs(void *pool)
{
    for (int i = 0; i < LOOPS; i++) {
        struct rte_mbuf *mbuf = rte_pktmbuf_alloc(pool);
        look(rte_pktmbuf_mtod(mbuf, void *));
        rte_pktmbuf_free(mbuf);
    }
}

static void mbuf_bulk_pairs(void *pool)
{
    struct rte_mbuf *mbufs[BURST];
    for (int i = 0; i < LOOPS; i += BURST) {
        must(rte_pktmbuf_alloc_bulk(pool, mbufs, BURST) == 0, "rte_pktmbuf_alloc_bulk");
        for (int at = 0; at < BURST; at++)
            look(rte_pktmbuf_mtod(mbufs[at], void *));
        rte_pktmbuf_free_bulk(mbufs, BURST);
    }
}

static struct rte_mempool *remote;

static void fill_one_by_one(void *pool, void **burst)
{
    for (int at = 0; at < BURST; at++)
        must(rte_mempool_get(pool, &burst[at]) == 0, "rte_mempool_get");
}

static void put_one_by_one(void **burst)
{
    for (int at = 0; at < BURST; at++)
        rte_mempool_put(remote, burst[at]);
}

static void fill_bulk(void *pool, void **burst)
{
    must(rte_mempool_get_bulk(pool, burst, BURST) == 0, "rte_mempool_get_bulk");
}

static void put_bulk(void **burst)
{
    rte_mempool_put_bulk(remote, burst, BURST);
}

static void fill_mbufs_one_by_one(void *pool, void **burst)
{
    for (int at = 0; at < BURST; at++)
        must((burst[at] = rte_pktmbuf_alloc(pool)) != NULL, "rte_pktmbuf_alloc");
}

static void put_mbufs_one_by_one(void **burst)
{
    for (int at = 0; at < BURST; at++)
        rte_pktmbuf_free(burst[at]);
}

static void fill_mbufs(void *pool, void **burst)
{
    must(rte_pktmbuf_alloc_bulk(pool, (struct rte_mbuf **)burst, BURST) == 0, "rte_pktmbuf_alloc_bulk");
}

static void put_mbufs(void **burst)
{
    rte_pktmbuf_free_bulk((struct rte_mbuf **)burst, BURST);
}

static void read_one_by_one(void **burst)
{
    for (int at = 0; at < BURST; at++) {
        look((void *)(uintptr_t)*(volatile char *)burst[at]);
        rte_mempool_put(remote, burst[at]);
    }
}

static void read_bulk(void **burst)
{
    for (int at = 0; at < BURST; at++)
        look((void *)(uintptr_t)*(volatile char *)burst[at]);
    put_bulk(burst);
}

static const struct way ways[] = {
    {"remote mempool", fill_one_by_one, put_one_by_one},
    {"remote mempool bulk", fill_bulk, put_bulk},
    {"remote mempool read", fill_one_by_one, read_one_by_one},
    {"remote mempool read bulk", fill_bulk, read_bulk},
    {"remote mbuf", fill_mbufs_one_by_one, put_mbufs_one_by_one},
    {"remote mbuf bulk", fill_mbufs, put_mbufs},
};
#define WAYS (sizeof(ways) / sizeof(ways[0]))

static int return_all(void *unused)
{
    for (size_t at = 0; at < WAYS; at++)
        return_across(&ways[at]);
    (void)unused;
    return 0;
}

static void measure(const char *name, void (*loop)(void *), struct rte_mempool *pool)
{
    printf("%-20s %6.2f ns\n", name, least(loop, pool));
}

int main(int argc, char **argv)
{
    must(rte_eal_init(argc, argv) >= 0, "rte_eal_init");
    struct rte_mempool *objects =
        rte_mempool_create("objects", OBJECTS, 2048, CACHE, 0, NULL, NULL, NULL, NULL, SOCKET_ID_ANY, 0);
    struct rte_mempool *mbufs =
        rte_pktmbuf_pool_create("mbufs", OBJECTS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
    must(objects != NULL && mbufs != NULL, "rte_mempool_create");
    measure("mempool", mempool_pairs, objects);
    measure("mempool bulk", mempool_bulk_pairs, objects);
    measure("mbuf data", mbuf_pairs, mbufs);
    measure("mbuf bulk data", mbuf_bulk_pairs, mbufs);
    unsigned second = rte_get_next_lcore(rte_lcore_id(), 1, 0);
    if (second >= RTE_MAX_LCORE) {
        printf("SKIP: two CPUs are required\n");
        return 0;
    }
    remote = objects;
    must(rte_eal_remote_launch(return_all, NULL, second) == 0, "rte_eal_remote_launch");
    for (size_t at = 0; at < WAYS; at++)
        printf("%-20s %6.2f ns\n", ways[at].name, measure_across(&ways[at], at < 4 ? objects : mbufs));
    rte_eal_mp_wait_lcore();
    return 0;
}
