/*
 * A TCP echo server on a TAP, with lwIP. It receives into buffers of a pool. A custom pbuf wraps each buffer;
 * its free function returns the buffer to the pool after the last use by lwIP or by this program.
 *
 *     cc -O2 echo.c $(pkg-config --cflags --libs pagepool lwip) -o echo
 *     ./echo tap0 198.18.1.2
 *
 * It echoes on port 7 until its standard input ends. Give tap0 an address and set it up first.
 *
 * The server has one thread. pool_pbuf.h is the part to copy; -DPLAIN uses malloc_pbuf.h instead, for
 * comparison.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/if.h>
#include <linux/if_tun.h>
#include <lwip/etharp.h>
#include <lwip/init.h>
#include <lwip/tcp.h>
#include <lwip/timeouts.h>
#include <netif/ethernet.h>

#include "../ticks.h"
#ifdef PLAIN
#define ALLOCATOR "malloc"
#define WHY ""
#include "malloc_pbuf.h"
#else
#define ALLOCATOR "pool"
#define WHY pagepool_last_error()
#include "pool_pbuf.h"
#endif

enum { FRAME = 1514, BATCH = 64, PORT = 7 };

static void must(int64_t done, const char *what)
{
    if (done < 0) {
        fprintf(stderr, "%s: %s; %s\n", what, strerror(errno), WHY);
        exit(1);
    }
}

/* ---- Memory for frames, and what it costs ---- */

static uint64_t frames;

static void free_frame(struct pbuf *pbuf)
{
    const uint64_t begin = ticks();
    pbuf_memory_put(pbuf);
    count_call(&returns, begin, 1);
}

static struct pbuf_memory *take(void **data)
{
    const uint64_t begin = ticks();
    struct pbuf_memory *taken = pbuf_memory_take(data);
    count_call(&takes, begin, taken != NULL);
    if (taken != NULL)
        taken->custom.custom_free_function = free_frame;
    return taken;
}

/* ---- The TAP as an interface of lwIP ---- */

static int tap;
static struct pbuf_memory *next; /* memory for the next frame */

/* Passes up to BATCH received frames to lwIP. */
static void receive(struct netif *netif)
{
    static void *data;
    for (int i = 0; i < BATCH; i++) {
        if (next == NULL && (next = take(&data)) == NULL)
            return; /* lwIP holds all pages: the frames stay in the TAP's queue */
        const ssize_t len = read(tap, data, FRAME);
        if (len <= 0)
            return;
        struct pbuf *frame = pbuf_alloced_custom(PBUF_RAW, (u16_t)len, PBUF_REF, &next->custom, data, FRAME);
        next = NULL;
        frames++;
        if (netif->input(frame, netif) != ERR_OK)
            pbuf_free(frame);
    }
}

static err_t transmit(struct netif *netif, struct pbuf *frame)
{
    struct iovec iov[16];
    int n = 0;
    (void)netif;
    for (; frame != NULL && n < 16; frame = frame->next)
        iov[n++] = (struct iovec){frame->payload, frame->len};
    return frame == NULL && writev(tap, iov, n) > 0 ? ERR_OK : ERR_IF;
}

static err_t start(struct netif *netif)
{
    memcpy(netif->hwaddr, "\x02pp\0\0\x02", ETH_HWADDR_LEN);
    netif->hwaddr_len = ETH_HWADDR_LEN;
    netif->name[0] = 't', netif->name[1] = 'p';
    netif->mtu = 1500;
    netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_LINK_UP;
    netif->output = etharp_output;
    netif->linkoutput = transmit;
    return ERR_OK;
}

static int open_tap(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    must(fd, "/dev/net/tun");
    strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    must(ioctl(fd, TUNSETIFF, &request), name);
    return fd;
}

/* ---- The server ---- */

struct connection {
    struct pbuf *queue; /* received and not yet sent back */
    int peer_closed;    /* the peer has closed its direction */
};

static uint64_t echoed;
static int connections;

static void close_connection(struct tcp_pcb *pcb, struct connection *connection)
{
    tcp_arg(pcb, NULL);
    tcp_recv(pcb, NULL);
    tcp_sent(pcb, NULL);
    tcp_err(pcb, NULL);
    if (tcp_close(pcb) != ERR_OK)
        must(-1, "close");
    free(connection);
    connections--;
}

/* Sends back as much as the send buffer takes. lwIP copies the bytes, so their pbufs are freed at once. */
static void send_back(struct tcp_pcb *pcb, struct connection *connection)
{
    struct pbuf *first;
    while ((first = connection->queue) != NULL && first->len <= tcp_sndbuf(pcb)) {
        if (tcp_write(pcb, first->payload, first->len, TCP_WRITE_FLAG_COPY) != ERR_OK)
            break;
        echoed += first->len;
        tcp_recved(pcb, first->len);
        connection->queue = first->next;
        if (first->next != NULL)
            pbuf_ref(first->next); /* freeing its predecessor drops one reference */
        pbuf_free(first);
    }
    tcp_output(pcb);
    if (connection->queue == NULL && connection->peer_closed)
        close_connection(pcb, connection);
}

static err_t on_data(void *arg, struct tcp_pcb *pcb, struct pbuf *data, err_t error)
{
    struct connection *connection = arg;
    (void)error;
    if (data == NULL)
        connection->peer_closed = 1;
    else if (connection->queue == NULL)
        connection->queue = data;
    else
        pbuf_cat(connection->queue, data);
    send_back(pcb, connection);
    return ERR_OK;
}

static err_t on_room(void *arg, struct tcp_pcb *pcb, u16_t len)
{
    (void)len;
    send_back(pcb, arg);
    return ERR_OK;
}

static void on_error(void *arg, err_t error)
{
    struct connection *connection = arg;
    fprintf(stderr, "connection error: %d\n", error);
    if (connection->queue != NULL)
        pbuf_free(connection->queue);
    free(connection);
    connections--;
}

static err_t on_connection(void *arg, struct tcp_pcb *pcb, err_t error)
{
    struct connection *connection = calloc(1, sizeof(*connection));
    (void)arg;
    if (error != ERR_OK || connection == NULL)
        return ERR_MEM;
    connections++;
    tcp_arg(pcb, connection);
    tcp_recv(pcb, on_data);
    tcp_sent(pcb, on_room);
    tcp_err(pcb, on_error);
    return ERR_OK;
}

static struct tcp_pcb *listen_on(u16_t port)
{
    struct tcp_pcb *pcb = tcp_new();
    if (pcb == NULL || tcp_bind(pcb, IP_ADDR_ANY, port) != ERR_OK || (pcb = tcp_listen(pcb)) == NULL)
        must(-1, "listen");
    tcp_accept(pcb, on_connection);
    return pcb;
}

/* ---- Start and end ---- */

int main(int argc, char **argv)
{
    struct pollfd fds[2] = {{-1, POLLIN, 0}, {0, POLLIN, 0}};
    struct netif netif;
    ip4_addr_t address, mask;
    if (argc != 3 || !ip4addr_aton(argv[2], &address)) {
        fprintf(stderr, "usage: echo TAP ADDRESS\n");
        return 2;
    }
    must(pbuf_memory_open(), "memory");
    lwip_init();
    fds[0].fd = tap = open_tap(argv[1]);
    IP4_ADDR(&mask, 255, 255, 255, 0);
    if (netif_add(&netif, &address, &mask, NULL, NULL, start, ethernet_input) == NULL)
        must(-1, "netif");
    netif_set_default(&netif);
    netif_set_up(&netif);
    struct tcp_pcb *listener = listen_on(PORT);
    puts("ready");
    fflush(stdout);
    while (fds[1].revents == 0 || connections > 0) {
        poll(fds, fds[1].revents == 0 ? 2 : 1, 10);
        receive(&netif);
        sys_check_timeouts();
    }
    tcp_close(listener);
    netif_remove(&netif);
    if (next != NULL)
        free_frame(&next->custom.pbuf);
    const uint64_t nanoseconds = thread_ns();
    const int64_t missing = pbuf_memory_close();
    printf("echoed %llu bytes of %llu frames, missing %lld; ", (unsigned long long)echoed,
        (unsigned long long)frames, (long long)missing);
    print_cost("frame", ALLOCATOR, frames, nanoseconds);
    return missing != 0;
}
