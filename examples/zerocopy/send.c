/*
 * Sends a pattern over TCP or UDP from a pool's pages without a copy (MSG_ZEROCOPY). The kernel reads a page
 * after the call has returned, and reports on the socket's error queue when it is done. Until then the page
 * waits in the pool's deferred queue.
 *
 *     cc -O2 send.c $(pkg-config --cflags --libs pagepool) -o send
 *     ./send tcp 192.0.2.1 7000 100000000
 *
 * `--allocator ring` takes pages from an array that it uses in turn, for comparison. Over UDP the receiver
 * answers every 32nd datagram, so that it is not overrun. Over loopback the kernel copies the bytes after
 * all, and reports that.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/errqueue.h>

#include <pagepool.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

enum { PAGES = 256, PAGE = 4096, DATAGRAM = 1400, ANSWER_EVERY = 32, NOTES = 64, WINDOW = 4096 };

static void must(int64_t done, const char *what)
{
    if (done < 0) {
        fprintf(stderr, "%s: %s; %s\n", what, strerror(errno), pagepool_last_error());
        exit(1);
    }
}

/* ---- Sends: the kernel numbers them from 0, and reports ranges of completed ones ---- */

struct sends {
    int fd;
    uint64_t oldest, next;  /* numbers: all before `oldest` are complete, `next` is the next send's */
    uint8_t over[WINDOW];   /* from `oldest` to `next`: 1 if the send is complete */
    uint64_t zero_copy, copied, ordinary;
};

static void note(struct sends *sends, const struct sock_extended_err *error)
{
    const uint32_t count = error->ee_data - error->ee_info + 1;
    const uint64_t first = sends->oldest + (uint32_t)(error->ee_info - (uint32_t)sends->oldest);
    if (error->ee_errno != 0 || error->ee_origin != SO_EE_ORIGIN_ZEROCOPY)
        return;
    for (uint64_t at = first; at < first + count && at < sends->next; at++)
        sends->over[at % WINDOW] = 1;
    while (sends->oldest < sends->next && sends->over[sends->oldest % WINDOW])
        sends->over[sends->oldest++ % WINDOW] = 0;
    *(error->ee_code & SO_EE_CODE_ZEROCOPY_COPIED ? &sends->copied : &sends->zero_copy) += count;
}

/* Reads the error queue; the pool calls it at the start of each poll. */
static void refresh(void *arg)
{
    struct sends *sends = arg;
    for (int i = 0; i < NOTES; i++) {
        _Alignas(struct cmsghdr) char control[256];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof(control)};
        if (recvmsg(sends->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            return;
        for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at != NULL; at = CMSG_NXTHDR(&message, at))
            if ((at->cmsg_level == SOL_IP && at->cmsg_type == IP_RECVERR))
                note(sends, (const struct sock_extended_err *)CMSG_DATA(at));
    }
}

/* A page's cookie is the number of its last send plus 1. Earlier sends may have bytes of the page too, so the
 * page is in use until all sends below the cookie are complete. */
static int in_use(void *arg, uint64_t cookie)
{
    return ((struct sends *)arg)->oldest < cookie;
}

/* Sends all bytes. Returns the cookie of the page, or 0 if the kernel copied all bytes during the calls. */
static uint64_t send_page(struct sends *sends, const char *data, size_t len)
{
    uint64_t cookie = 0;
    while (len > 0) {
        const int room = sends->next - sends->oldest < WINDOW;
        ssize_t sent = room ? send(sends->fd, data, len, MSG_ZEROCOPY | MSG_NOSIGNAL) : -1;
        if (sent >= 0)
            cookie = ++sends->next;
        else if (!room || errno == ENOBUFS) { /* too many sends are incomplete: copy */
            sent = send(sends->fd, data, len, MSG_NOSIGNAL);
            sends->ordinary++;
        }
        must(sent, "send");
        data += sent;
        len -= (size_t)sent;
    }
    return cookie;
}

/* ---- The allocator: pages that the kernel does not read ---- */

static struct pagepool_arena *arena;
static struct pagepool *pool; /* NULL: the ring below */
static struct pagepool_deferred_user *user;
static struct pagepool_buf *buf; /* the page that is being sent */
static char *ring;
static uint64_t taken, cookies[PAGES], allocator_ticks;

static uint64_t ticks(void)
{
    uint64_t now;
#if defined(__x86_64__)
    now = __builtin_ia32_rdtsc();
#else
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(now));
#endif
    return now;
}

static void make_pool(struct sends *sends)
{
    struct pagepool_arena_params arena_params = PAGEPOOL_ARENA_PARAMS_INIT;
    struct pagepool_params params = PAGEPOOL_PARAMS_INIT;
    const struct pagepool_deferred_user_ops ops = {.size = sizeof(ops), .arg = sends, .in_use = in_use,
        .refresh = refresh};
    arena_params.max_bytes = (uint64_t)PAGES * PAGE;
    must(pagepool_arena_create(&arena_params, &arena), "arena");
    params.arena = arena;
    params.name = "tx";
    params.defer_capacity = PAGES;
    must(pagepool_create(&params, &pool), "pool");
    must(pagepool_bind(pool), "bind");
    must(pagepool_deferred_user_create(pool, &ops, &user), "user");
}

/* Takes a page; NULL while the kernel reads all of them. */
static char *take_page(struct sends *sends)
{
    const uint64_t begin = ticks();
    char *page = NULL;
    if (pool != NULL) {
        if ((buf = pagepool_alloc_page(pool)) != NULL) /* a refill polls the deferred queue */
            page = pagepool_buf_data(buf);
    } else {
        if (in_use(sends, cookies[taken % PAGES]))
            refresh(sends);
        if (!in_use(sends, cookies[taken % PAGES]))
            page = ring + taken++ % PAGES * PAGE;
    }
    allocator_ticks += ticks() - begin;
    return page;
}

/* Gives the page up, to be used again once the kernel is done with it. */
static void give_up_page(uint64_t cookie)
{
    const uint64_t begin = ticks();
    if (pool == NULL)
        cookies[(taken - 1) % PAGES] = cookie;
    else if (cookie == 0)
        must(pagepool_buf_put(buf), "put");
    else
        must(pagepool_defer(pool, user, buf, cookie), "defer"); /* the queue has room for every page */
    allocator_ticks += ticks() - begin;
}

/* Waits until the kernel is done with all pages, at most 10 seconds. Returns how many are still out. */
static int64_t end(struct sends *sends)
{
    struct pagepool_shutdown *shutdown;
    for (int i = 0; pool == NULL && i < 10000 && sends->oldest < sends->next; i++) {
        refresh(sends);
        poll(NULL, 0, 1);
    }
    if (pool == NULL)
        return (int64_t)(sends->next - sends->oldest);
    must(pagepool_deferred_user_put(user), "user");
    must(pagepool_destroy_watched(pool, &shutdown), "destroy");
    const int late = pagepool_shutdown_wait(shutdown, 10000000000);
    const int64_t out = late ? pagepool_arena_pages_out(arena) : 0;
    must(pagepool_shutdown_put(shutdown), "shutdown");
    must(pagepool_arena_put(arena), "arena");
    return out;
}

/* ---- The program ---- */

static void pattern(uint64_t from, char *into, size_t len)
{
    for (size_t i = 0; i < len; i++)
        into[i] = (char)((from + i) * 0x9e3779b97f4a7c15 >> 32);
}

static int open_socket(int type, const char *host, const char *port)
{
    const int fd = socket(AF_INET, type, 0), on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    must(fd, "socket");
    must(inet_aton(host, &to.sin_addr) - 1, host);
    must(connect(fd, (struct sockaddr *)&to, sizeof(to)), "connect");
    must(setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)), "SO_ZEROCOPY");
    return fd;
}

static void send_all(struct sends *sends, uint64_t bytes, size_t most)
{
    uint64_t datagrams = 0;
    for (uint64_t from = 0; from < bytes;) {
        const size_t len = bytes - from < most ? (size_t)(bytes - from) : most;
        char *page, answer;
        while ((page = take_page(sends)) == NULL)
            poll(&(struct pollfd){sends->fd, 0, 0}, 1, 1000); /* POLLERR: the error queue has a report */
        pattern(from, page, len);
        give_up_page(send_page(sends, page, len));
        from += len;
        if (most == DATAGRAM && ++datagrams % ANSWER_EVERY == 0)
            must(recv(sends->fd, &answer, 1, 0), "answer");
    }
}

int main(int argc, char **argv)
{
    const int plain = argc == 7 && !strcmp(argv[5], "--allocator") && !strcmp(argv[6], "ring");
    const int udp = argc > 1 && !strcmp(argv[1], "udp");
    static struct sends sends;
    struct timespec processor;
    if ((argc != 5 && !plain) || (!udp && strcmp(argv[1], "tcp"))) {
        fprintf(stderr, "usage: send tcp|udp ADDRESS PORT BYTES [--allocator ring]\n");
        return 2;
    }
    if (plain && (ring = aligned_alloc(PAGE, PAGES * PAGE)) == NULL)
        must(-1, "memory");
    sends.fd = open_socket(udp ? SOCK_DGRAM : SOCK_STREAM, argv[2], argv[3]);
    if (!plain)
        make_pool(&sends);
    const uint64_t bytes = strtoull(argv[4], NULL, 10);
    send_all(&sends, bytes, udp ? DATAGRAM : PAGE);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &processor);
    if (!udp)
        must(shutdown(sends.fd, SHUT_WR), "shutdown");
    /* Before the socket is closed: its error queue reports when the kernel is done. */
    const int64_t missing = end(&sends);
    const double per = (double)(sends.next + sends.ordinary > 0 ? sends.next + sends.ordinary : 1);
    printf("sent %llu bytes, missing %lld; %llu sends without a copy, %llu copied, %llu ordinary; "
           "a send took %.1f ticks in the allocator (%s), and %.0f ns in all\n",
           (unsigned long long)bytes, (long long)missing, (unsigned long long)sends.zero_copy,
           (unsigned long long)sends.copied, (unsigned long long)sends.ordinary,
           (double)allocator_ticks / per, plain ? "ring" : "pool",
           ((double)processor.tv_sec * 1e9 + (double)processor.tv_nsec) / per);
    close(sends.fd);
    free(ring);
    return missing != 0;
}
