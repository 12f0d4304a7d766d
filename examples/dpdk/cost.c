/*
 * What a mempool costs: cycles of the time stamp counter for an object drawn and put, under each mempool driver.
 *
 *     ./cost -l 0 --no-huge --no-pci -m 256 -d librte_mempool_pagepool.so
 *
 * raw      objects by so many, past DPDK's cache: what the driver costs
 * cached   the same through DPDK's cache of 512, 64 times the number out at a time, so that the cache spills and refills
 * mbufs    bursts of 32 from a cache of 250, as a forwarder has them: 512 out at a time, each burst drawn, written to (descriptor
 *          fields and 64 bytes of packet), and put when 15 more were drawn
 *
 * The drivers take turns. Printed is the median of 31 rounds and, in brackets, the least and the most.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#define OBJECTS 8191
#define ROUNDS 31
#define BURST 32
#define BURSTS_OUT 16

static const char *const drivers[] = {"pagepool", "ring_mp_mc", "stack"};
#define DRIVERS 3

struct experiment {
    const char *name;
    unsigned int bulk, cache;
    double (*run)(struct rte_mempool *mp, unsigned int bulk);
};

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

/* Draws 64 times the number, then puts as many: cycles for one object. */
static double draw_and_put(struct rte_mempool *mp, unsigned int bulk)
{
    static void *objects[64 * 64];
    unsigned int n = RTE_MIN(bulk * 64, 64U * 64U), turns = 65536 / n;
    uint64_t begun = rte_rdtsc();
    for (unsigned int turn = 0; turn < turns; ++turn) {
        for (unsigned int at = 0; at < n; at += bulk)
            must(rte_mempool_get_bulk(mp, objects + at, bulk) == 0, "rte_mempool_get_bulk");
        for (unsigned int at = 0; at < n; at += bulk)
            rte_mempool_put_bulk(mp, objects + at, bulk);
    }
    return (double)(rte_rdtsc() - begun) / ((double)turns * n);
}

/* Bursts of mbufs that are written to: cycles for one mbuf. */
static double bursts(struct rte_mempool *mp, unsigned int bulk)
{
    static struct rte_mbuf *mbufs[BURSTS_OUT][BURST];
    unsigned int turns = 65536 / bulk;
    for (unsigned int at = 0; at < BURSTS_OUT; ++at)
        must(rte_pktmbuf_alloc_bulk(mp, mbufs[at], bulk) == 0, "rte_pktmbuf_alloc_bulk");
    uint64_t begun = rte_rdtsc();
    for (unsigned int turn = 0; turn < turns; ++turn) {
        struct rte_mbuf **burst = mbufs[turn % BURSTS_OUT];
        rte_pktmbuf_free_bulk(burst, bulk);
        must(rte_pktmbuf_alloc_bulk(mp, burst, bulk) == 0, "rte_pktmbuf_alloc_bulk");
        for (unsigned int at = 0; at < bulk; ++at) {
            burst[at]->data_len = 64;
            burst[at]->pkt_len = 64;
            memset(rte_pktmbuf_mtod(burst[at], void *), (int)turn, 64);
        }
    }
    double cycles = (double)(rte_rdtsc() - begun) / ((double)turns * bulk);
    for (unsigned int at = 0; at < BURSTS_OUT; ++at)
        rte_pktmbuf_free_bulk(mbufs[at], bulk);
    return cycles;
}

static const struct experiment experiments[] = {
    {"raw, 1 at a time", 1, 0, draw_and_put},         {"raw, 8 at a time", 8, 0, draw_and_put},
    {"raw, 32 at a time", 32, 0, draw_and_put},       {"raw, 64 at a time", 64, 0, draw_and_put},
    {"cached, 1 at a time", 1, 512, draw_and_put},    {"cached, 32 at a time", 32, 512, draw_and_put},
    {"mbufs, bursts of 32", BURST, 250, bursts},
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
        pools[at] = rte_pktmbuf_pool_create_by_ops(drivers[at], OBJECTS, what->cache, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY,
                                                   drivers[at]);
        must(pools[at] != NULL, drivers[at]);
        what->run(pools[at], what->bulk); /* touches the memory */
    }
    for (int round = 0; round < ROUNDS; ++round)
        for (int at = 0; at < DRIVERS; ++at)
            cycles[at][round] = what->run(pools[at], what->bulk);
    printf("%-22s", what->name);
    for (int at = 0; at < DRIVERS; ++at) {
        qsort(cycles[at], ROUNDS, sizeof(double), by_value);
        printf(" %7.1f (%.1f to %.1f)", cycles[at][ROUNDS / 2], cycles[at][0], cycles[at][ROUNDS - 1]);
        must(rte_mempool_avail_count(pools[at]) == OBJECTS, "bringing all objects home");
        rte_mempool_free(pools[at]);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    must(rte_eal_init(argc, argv) >= 0, "rte_eal_init");
    printf("%-22s %s, %s, %s\n", "cycles an object", drivers[0], drivers[1], drivers[2]);
    for (size_t at = 0; at < RTE_DIM(experiments); ++at)
        experiment(&experiments[at]);
    return rte_eal_cleanup();
}
