/*
 * Sends a pattern over TCP or UDP from a pool's pages without a copy (MSG_ZEROCOPY). The kernel reads a page
 * after the call has returned. Until the socket's error queue reports completion, the page waits in the
 * pool's deferred queue.
 *
 *     cc -O2 send.c $(pkg-config --cflags --libs pagepool) -o send
 *     ./send tcp 192.0.2.1 7000 100000000
 *
 * pool_pages.h and sends.h are the parts to copy; -DPLAIN uses ring_pages.h instead of the pool, for
 * comparison. Over UDP the receiver answers every 32nd datagram, so that it is not overrun. Over loopback the
 * kernel copies the bytes nevertheless, and reports that.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../ticks.h"
#ifdef PLAIN
#define ALLOCATOR "ring"
#define WHY ""
#include "ring_pages.h"
#else
#define ALLOCATOR "pool"
#define WHY pagepool_last_error()
#include "pool_pages.h"
#endif

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif

enum { PAGES = 256, PAGE = 4096, DATAGRAM = 1400, ANSWER_EVERY = 32 };

static void must(int64_t done, const char *what)
{
    if (done < 0) {
        fprintf(stderr, "%s: %s; %s\n", what, strerror(errno), WHY);
        exit(1);
    }
}

static struct pages pages;

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

static struct page take_page(void)
{
    const uint64_t begin = ticks();
    const struct page page = pages_take(&pages);
    count_call(&takes, begin, 1); /* also counts failures: they read the error queue */
    return page;
}

static void return_page(struct page page, uint64_t cookie)
{
    const uint64_t begin = ticks();
    must(pages_return(&pages, page, cookie), "return");
    count_call(&returns, begin, 1);
}

static void send_all(struct sends *sends, uint64_t bytes, size_t most)
{
    uint64_t datagrams = 0, cookie;
    for (uint64_t from = 0; from < bytes;) {
        const size_t len = bytes - from < most ? (size_t)(bytes - from) : most;
        struct page page;
        char answer;
        while ((page = take_page()).data == NULL)
            poll(&(struct pollfd){sends->fd, 0, 0}, 1, 1000); /* POLLERR: the error queue has a report */
        pattern(from, page.data, len);
        must(sends_send(sends, page.data, len, &cookie), "send");
        return_page(page, cookie);
        from += len;
        if (most == DATAGRAM && ++datagrams % ANSWER_EVERY == 0)
            must(recv(sends->fd, &answer, 1, 0), "answer");
    }
}

int main(int argc, char **argv)
{
    const int udp = argc > 1 && !strcmp(argv[1], "udp");
    static struct sends sends;
    if (argc != 5 || (!udp && strcmp(argv[1], "tcp"))) {
        fprintf(stderr, "usage: send tcp|udp ADDRESS PORT BYTES\n");
        return 2;
    }
    sends.fd = open_socket(udp ? SOCK_DGRAM : SOCK_STREAM, argv[2], argv[3]);
    must(pages_open(&pages, &sends, PAGES), "pages");
    const uint64_t bytes = strtoull(argv[4], NULL, 10);
    send_all(&sends, bytes, udp ? DATAGRAM : PAGE);
    const uint64_t nanoseconds = thread_ns();
    if (!udp)
        must(shutdown(sends.fd, SHUT_WR), "shutdown");
    /* Before the socket is closed: its error queue reports completed sends. */
    const int64_t missing = pages_close(&pages);
    printf("sent %llu bytes, missing %lld; %llu sends without a copy, %llu copied, %llu ordinary; ",
        (unsigned long long)bytes, (long long)missing, (unsigned long long)sends.zero_copy,
        (unsigned long long)sends.copied, (unsigned long long)sends.ordinary);
    print_cost("send", ALLOCATOR, sends.next + sends.ordinary, nanoseconds);
    close(sends.fd);
    return missing != 0;
}
