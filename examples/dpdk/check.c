/*
 * Tests that a mempool driver keeps the promises of mempools. Run it with --mbuf-pool-ops-name=pagepool, on
 * two lcores.
 *
 *     ./check -l 0,1 --no-huge --no-pci -m 128 -d librte_mempool_pagepool.so --mbuf-pool-ops-name=pagepool
 *
 * One thread gets every object, and none twice. Objects do not overlap. Two lcores pass numbered packets to
 * each other, and packets arrive unchanged. Objects can be larger than a base page, and memory can come in
 * several areas. An object that is put twice is in the mempool once. At the end every object is in its
 * mempool.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mbuf_pool_ops.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_ring.h>

#define OBJECTS 511
#ifndef PACKETS
#define PACKETS 20000
#endif
#define MUST(what) must((what), #what, __LINE__)

static void must(int ok, const char *what, int line)
{
    if (!ok) {
        fprintf(stderr, "check.c:%d: failed: %s\n", line, what);
        exit(1);
    }
}

/* Gets all objects, fills each, checks each, and puts all. */
static void get_and_put_all(struct rte_mempool *mp)
{
    void **objects = calloc(mp->size, sizeof(*objects)), *more;
    unsigned char *written = malloc(mp->elt_size);
    MUST(objects != NULL && written != NULL);
    MUST(rte_mempool_full(mp));
    for (unsigned int at = 0; at < mp->size; ++at) {
        MUST(rte_mempool_get(mp, &objects[at]) == 0);
        memset(objects[at], (int)(at % 251), mp->elt_size);
    }
    MUST(rte_mempool_empty(mp) && rte_mempool_get(mp, &more) == -ENOBUFS);
    for (unsigned int at = 0; at < mp->size; ++at) {
        memset(written, (int)(at % 251), mp->elt_size);
        MUST(memcmp(objects[at], written, mp->elt_size) == 0 && rte_mempool_from_obj(objects[at]) == mp);
    }
    rte_mempool_put_bulk(mp, objects, mp->size);
    MUST(rte_mempool_full(mp));
    /* A bulk get returns all objects or none. */
    MUST(rte_mempool_get_bulk(mp, objects, mp->size) == 0);
    rte_mempool_put_bulk(mp, objects, mp->size / 2);
    MUST(rte_mempool_get_bulk(mp, objects, mp->size / 2 + 1) == -ENOBUFS);
    MUST(rte_mempool_avail_count(mp) == mp->size / 2);
    rte_mempool_put_bulk(mp, objects + mp->size / 2, mp->size - mp->size / 2);
    MUST(rte_mempool_full(mp));
    free(written);
    free(objects);
}

/* Objects of several sizes, without DPDK's cache, in memory that DPDK allocates. */
static void sizes(void)
{
    static const unsigned int size[] = {8, 2304, 4032, 4033, 9000};
    for (size_t at = 0; at < RTE_DIM(size); ++at) {
        struct rte_mempool *mp = rte_mempool_create_empty("sizes", OBJECTS, size[at], 0, 0, SOCKET_ID_ANY, 0);
        MUST(mp != NULL && rte_mempool_set_ops_byname(mp, rte_mbuf_best_mempool_ops(), NULL) == 0);
        MUST(rte_mempool_populate_default(mp) == OBJECTS);
        get_and_put_all(mp);
        rte_mempool_free(mp);
    }
}

/* Memory in three areas, the middle one first, none of them page-aligned. */
static void areas(void)
{
    const struct rte_memzone *zone = rte_memzone_reserve("areas", (OBJECTS + 6) * 4096, SOCKET_ID_ANY, 0);
    struct rte_mempool *mp = rte_mempool_create_empty("areas", OBJECTS, 2304, 0, 0, SOCKET_ID_ANY, 0);
    MUST(zone != NULL && mp != NULL &&
        rte_mempool_set_ops_byname(mp, rte_mbuf_best_mempool_ops(), NULL) == 0);
    size_t third = zone->len / 3 - 64;
    static const int order[] = {1, 2, 0};
    for (size_t at = 0; at < RTE_DIM(order); ++at) {
        size_t offset = third * (size_t)order[at] + 64;
        MUST(rte_mempool_populate_iova(mp, (char *)zone->addr + offset, zone->iova + offset, third, NULL,
            NULL) > 0);
    }
    MUST(mp->nb_mem_chunks == 3 && mp->populated_size == OBJECTS);
    get_and_put_all(mp);
    rte_mempool_free(mp);
    rte_memzone_free(zone);
}

/* An object that is put twice is in the mempool once. Without DPDK's cache, which would hide it. */
static void twice(void)
{
    struct rte_mempool *mp = rte_mempool_create_empty("twice", 4, 64, 0, 0, SOCKET_ID_ANY, 0);
    void *object[4];
    MUST(mp != NULL && rte_mempool_set_ops_byname(mp, rte_mbuf_best_mempool_ops(), NULL) == 0);
    MUST(rte_mempool_populate_default(mp) == 4 && rte_mempool_get_bulk(mp, object, 4) == 0);
    rte_mempool_put(mp, object[0]);
    rte_mempool_put(mp, object[0]);
    MUST(rte_mempool_avail_count(mp) == 1);
    rte_mempool_put_bulk(mp, object, 4);
    MUST(rte_mempool_full(mp));
    rte_mempool_free(mp);
}

/* ---- Two lcores ---- */

struct exchange {
    struct rte_mempool *mp;
    struct rte_ring *to_main, *to_worker;
};

/* The value of word `at` of packet `number`. */
static uint64_t word(uint64_t number, unsigned int at)
{
    return (number + 1) * UINT64_C(0x9e3779b97f4a7c15) + at;
}

/* Sends a packet, which the other side checks, if the ring has room. An mbuf is always free: the rings and
 * caches hold at most 350 of 511. */
static int send_one(struct exchange *exchange, struct rte_ring *to, uint64_t number)
{
    struct rte_mbuf *mbuf = rte_pktmbuf_alloc(exchange->mp);
    MUST(mbuf != NULL);
    uint64_t *words = (uint64_t *)rte_pktmbuf_append(mbuf, 64 + number % 128 * 8);
    for (unsigned int at = 0; at < mbuf->data_len / 8u; ++at)
        words[at] = word(number, at);
    if (rte_ring_enqueue(to, mbuf) == 0)
        return 1;
    rte_pktmbuf_free(mbuf);
    return 0;
}

static int receive_one(struct rte_ring *from, uint64_t number)
{
    struct rte_mbuf *mbuf;
    if (rte_ring_dequeue(from, (void **)&mbuf) < 0)
        return 0;
    MUST(mbuf->data_len == 64 + number % 128 * 8);
    for (unsigned int at = 0; at < mbuf->data_len / 8u; ++at)
        MUST(rte_pktmbuf_mtod(mbuf, uint64_t *)[at] == word(number, at));
    rte_pktmbuf_free(mbuf);
    return 1;
}

/* Sends PACKETS packets and receives as many from the other side. */
static void exchange_packets(struct exchange *exchange, struct rte_ring *to, struct rte_ring *from)
{
    uint64_t sent = 0, received = 0;
    for (uint64_t idle = 0; sent < PACKETS || received < PACKETS; ++idle) {
        unsigned int done = 0;
        if (sent < PACKETS)
            done += send_one(exchange, to, sent);
        sent += done;
        if (received < PACKETS && receive_one(from, received)) {
            ++received;
            ++done;
        }
        if (done != 0)
            idle = 0;
        else
            rte_delay_us_sleep(10);
        MUST(idle < 1000000);
    }
}

static int worker(void *arg)
{
    struct exchange *exchange = arg;
    exchange_packets(exchange, exchange->to_main, exchange->to_worker);
    return 0;
}

static void two_lcores(unsigned int cache)
{
    struct exchange exchange = {
        .mp = rte_pktmbuf_pool_create("packets", OBJECTS, cache, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY),
        .to_main = rte_ring_create("to_main", 128, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ),
        .to_worker = rte_ring_create("to_worker", 128, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ),
    };
    unsigned int other = rte_get_next_lcore(rte_lcore_id(), 1, 0);
    MUST(exchange.mp != NULL && exchange.to_main != NULL && exchange.to_worker != NULL);
    MUST(other < RTE_MAX_LCORE);
    MUST(rte_eal_remote_launch(worker, &exchange, other) == 0);
    exchange_packets(&exchange, exchange.to_worker, exchange.to_main);
    MUST(rte_eal_wait_lcore(other) == 0);
    MUST(rte_mempool_in_use_count(exchange.mp) == 0);
    rte_ring_free(exchange.to_main);
    rte_ring_free(exchange.to_worker);
    rte_mempool_free(exchange.mp);
}

int main(int argc, char **argv)
{
    MUST(rte_eal_init(argc, argv) >= 0);
    sizes();
    areas();
    twice();
    two_lcores(0);
    two_lcores(32);
    printf("all objects of %s are in the pool\n", rte_mbuf_best_mempool_ops());
    return rte_eal_cleanup();
}
