/*
 * Publishes a socket, so that `pagepool show`, `top` and `doctor` do not count frames on its fill ring as
 * held by the program. Copy this beside pool_frames.h. Without publishing, it costs a comparison.
 */
#include <net/if.h>
#include <stdio.h>

struct shown_socket {
    int entry; /* above 0 if it is published */
};

/* Publishes a socket that takes frames from a pool. Call pagepool_publish() before creating the pool. */
static struct shown_socket shown_socket(struct pagepool *pool, const char *interface, unsigned queue)
{
    static const char *const counters[] = {"in_rx", "in_tx", "rx_packets", "tx_packets"};
    struct pagepool_entry_params params = PAGEPOOL_ENTRY_PARAMS_INIT;
    char name[64], place[64];
    snprintf(name, sizeof(name), "%s:%u", interface, queue);
    snprintf(place, sizeof(place), "ifindex=%u\nqueue=%u", if_nametoindex(interface), queue);
    params.kind = "socket";
    params.id = if_nametoindex(interface);
    params.pool = pool;
    params.name = name;
    params.params = place;
    params.counters = counters;
    params.n_counters = 4;
    return (struct shown_socket){pagepool_publish_entry(&params)};
}

/* Sets the socket's counters: frames that wait for packets on the fill ring or in the kernel, frames that are
 * being sent, and packets so far. A few times a second is enough. */
static void shown_socket_set(struct shown_socket socket, uint64_t in_rx, uint64_t in_tx, uint64_t received,
    uint64_t sent)
{
    const uint64_t values[] = {in_rx, in_tx, received, sent};
    for (size_t counter = 0; socket.entry > 0 && counter < 4; counter++)
        pagepool_entry_set(socket.entry, counter, values[counter]);
}
