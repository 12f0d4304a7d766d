/*
 * Measures mempool drivers: TSC cycles for one get and put of an object.
 *
 *     ./cost -l 0,1 --no-huge --no-pci -m 256 -d librte_mempool_pagepool.so
 *
 * raw      N objects per call without DPDK's cache: the cost of a driver's call
 * spilled  1024 gets and then 1024 puts through DPDK's cache of 250 objects, which refills and flushes again
 *          and again, as when one thread receives and another sends
 * mbufs    bursts as in a forwarder, through a cache of 250: 16 bursts of 32 mbufs are out; the program puts
 *          the oldest, gets it again, and writes to it (descriptor fields and 64 bytes of packet)
 * passed   one lcore gets bursts and writes to them, another lcore puts them: every object passes the driver
 *          both ways
 *
 * Each round runs every driver. The program prints the median of 31 rounds (-DROUNDS=7 for 7), and in
 * brackets the lowest and the highest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#define OBJECTS 8191
#ifndef ROUNDS
#define ROUNDS 31
#endif
#define BURST 32
#define BURSTS_OUT 16

static const char *const drivers[] = {"pagepool", "ring_mp_mc", "stack"};
#define DRIVERS 3

struct experiment {
    const char *name;
    unsigned int bulk, out, cache;
    double (*run)(struct rte_mempool *mp, unsigned int bulk, unsigned int out);
};

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

/* Gets objects and puts them. Returns cycles per object. */
static double get_and_put(struct rte_mempool *mp, unsigned int bulk, unsigned int n)
{
    static void *objects[1024];
    unsigned int turns = 65536 / n;
    uint64_t begun = rte_rdtsc();
    for (unsigned int turn = 0; turn < turns; ++turn) {
        for (unsigned int at = 0; at < n; at += bulk)
            must(rte_mempool_get_bulk(mp, objects + at, bulk) == 0, "rte_mempool_get_bulk");
        for (unsigned int at = 0; at < n; at += bulk)
            rte_mempool_put_bulk(mp, objects + at, bulk);
    }
    return (double)(rte_rdtsc() - begun) / ((double)turns * n);
}

static void write_to(struct rte_mbuf **mbufs, unsigned int n)
{
    for (unsigned int at = 0; at < n; ++at) {
        mbufs[at]->data_len = 64;
        mbufs[at]->pkt_len = 64;
        memset(rte_pktmbuf_mtod(mbufs[at], void *), (int)at, 64);
    }
}

/* Puts, gets and writes bursts of mbufs. Returns cycles per mbuf. */
static double bursts(struct rte_mempool *mp, unsigned int bulk, unsigned int out)
{
    static struct rte_mbuf *mbufs[BURSTS_OUT][BURST];
    unsigned int turns = 65536 / bulk, n = out / bulk;
    for (unsigned int at = 0; at < n; ++at)
        must(rte_pktmbuf_alloc_bulk(mp, mbufs[at], bulk) == 0, "rte_pktmbuf_alloc_bulk");
    uint64_t begun = rte_rdtsc();
    for (unsigned int turn = 0; turn < turns; ++turn) {
        struct rte_mbuf **burst = mbufs[turn % n];
        rte_pktmbuf_free_bulk(burst, bulk);
        must(rte_pktmbuf_alloc_bulk(mp, burst, bulk) == 0, "rte_pktmbuf_alloc_bulk");
        write_to(burst, bulk);
    }
    double cycles = (double)(rte_rdtsc() - begun) / ((double)turns * bulk);
    for (unsigned int at = 0; at < n; ++at)
        rte_pktmbuf_free_bulk(mbufs[at], bulk);
    return cycles;
}

/* Puts the objects that arrive, until NULL arrives. */
static int put_all(void *ring)
{
    struct rte_mbuf *mbufs[BURST];
    for (;;) {
        unsigned int n = rte_ring_dequeue_burst(ring, (void **)mbufs, BURST, NULL);
        if (n != 0 && mbufs[n - 1] == NULL) {
            rte_pktmbuf_free_bulk(mbufs, n - 1);
            return 0;
        }
        rte_pktmbuf_free_bulk(mbufs, n);
        if (n == 0)
            rte_pause();
    }
}

/* Gets and writes bursts, which the other lcore puts. Returns cycles per mbuf on this lcore. */
static double passed(struct rte_mempool *mp, unsigned int bulk, unsigned int out)
{
    struct rte_mbuf *burst[BURST], *last = NULL;
    struct rte_ring *ring = rte_ring_create("passed", out * 2, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
    must(ring != NULL, "rte_ring_create");
    must(rte_eal_remote_launch(put_all, ring, rte_get_next_lcore(rte_lcore_id(), 1, 0)) == 0,
        "rte_eal_remote_launch");
    unsigned int turns = 65536 / bulk;
    uint64_t begun = rte_rdtsc();
    for (unsigned int turn = 0; turn < turns; ++turn) {
        while (rte_ring_count(ring) + bulk > out)
            rte_pause();
        must(rte_pktmbuf_alloc_bulk(mp, burst, bulk) == 0, "rte_pktmbuf_alloc_bulk");
        write_to(burst, bulk);
        rte_ring_enqueue_bulk(ring, (void **)burst, bulk, NULL);
    }
    double cycles = (double)(rte_rdtsc() - begun) / ((double)turns * bulk);
    while (rte_ring_enqueue(ring, last) < 0)
        rte_pause();
    rte_eal_mp_wait_lcore();
    rte_ring_free(ring);
    return cycles;
}

static const struct experiment experiments[] = {
    {"raw, 1 at a time", 1, 512, 0, get_and_put},      {"raw, 8 at a time", 8, 512, 0, get_and_put},
    {"raw, 32 at a time", 32, 512, 0, get_and_put},    {"raw, 256 at a time", 256, 512, 0, get_and_put},
    {"spilled, 1 at a time", 1, 1024, 250, get_and_put},
        {"spilled, 32 at a time", 32, 1024, 250, get_and_put},
    {"mbufs, 32 at a time", BURST, BURST * BURSTS_OUT, 250, bursts},
    {"passed, 32 at a time", BURST, BURST * BURSTS_OUT, 250, passed},
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void experiment(const struct experiment *what)
{
    double cycles[DRIVERS][ROUNDS];
    struct rte_mempool *pools[DRIVERS];
    for (int at = 0; at < DRIVERS; ++at) {
        pools[at] = rte_pktmbuf_pool_create_by_ops(drivers[at], OBJECTS, what->cache, 0,
            RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY,
                                                   drivers[at]);
        must(pools[at] != NULL, drivers[at]);
        what->run(pools[at], what->bulk, what->out); /* touches the memory */
    }
    for (int round = 0; round < ROUNDS; ++round)
        for (int at = 0; at < DRIVERS; ++at)
            cycles[at][round] = what->run(pools[at], what->bulk, what->out);
    printf("%-22s", what->name);
    for (int at = 0; at < DRIVERS; ++at) {
        qsort(cycles[at], ROUNDS, sizeof(double), by_value);
        printf(" %7.1f (%.1f to %.1f)", cycles[at][ROUNDS / 2], cycles[at][0], cycles[at][ROUNDS - 1]);
        must(rte_mempool_avail_count(pools[at]) == OBJECTS, "putting all objects");
        rte_mempool_free(pools[at]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    must(rte_eal_init(argc, argv) >= 0, "rte_eal_init");
    printf("%-22s %s, %s, %s\n", "cycles per object", drivers[0], drivers[1], drivers[2]);
    for (size_t at = 0; at < RTE_DIM(experiments); ++at)
        if (experiments[at].run != passed || rte_lcore_count() > 1)
            experiment(&experiments[at]);
    return rte_eal_cleanup();
}
