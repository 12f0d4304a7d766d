/*
 * Sends with MSG_ZEROCOPY and tracks completed sends, with any allocator. Copy this with pool_pages.h.
 *
 * The kernel numbers the sends of a socket from 0. The error queue reports ranges of completed sends.
 */
#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

#include <linux/errqueue.h>
#include <netinet/in.h>

enum { MAX_SENDS = 4096, REPORTS = 64 };

struct sends {
    int fd;
    uint64_t oldest, next;         /* numbers: all before `oldest` are complete, `next` is the next send's */
    uint8_t complete[MAX_SENDS];   /* from `oldest` to `next`: 1 if the send is complete */
    uint64_t zero_copy, copied, ordinary;
};

static void sends_note(struct sends *sends, const struct sock_extended_err *error)
{
    const uint32_t count = error->ee_data - error->ee_info + 1;
    const uint64_t first = sends->oldest + (uint32_t)(error->ee_info - (uint32_t)sends->oldest);
    if (error->ee_errno != 0 || error->ee_origin != SO_EE_ORIGIN_ZEROCOPY)
        return;
    for (uint64_t at = first; at < first + count && at < sends->next; at++)
        sends->complete[at % MAX_SENDS] = 1;
    while (sends->oldest < sends->next && sends->complete[sends->oldest % MAX_SENDS])
        sends->complete[sends->oldest++ % MAX_SENDS] = 0;
    *(error->ee_code & SO_EE_CODE_ZEROCOPY_COPIED ? &sends->copied : &sends->zero_copy) += count;
}

/* Reads the error queue. */
static void sends_refresh(void *arg)
{
    struct sends *sends = arg;
    for (int i = 0; i < REPORTS; i++) {
        _Alignas(struct cmsghdr) char control[256];
        struct msghdr message = {.msg_control = control, .msg_controllen = sizeof(control)};
        if (recvmsg(sends->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            return;
        for (struct cmsghdr *at = CMSG_FIRSTHDR(&message); at != NULL; at = CMSG_NXTHDR(&message, at))
            if (at->cmsg_level == SOL_IP && at->cmsg_type == IP_RECVERR)
                sends_note(sends, (const struct sock_extended_err *)CMSG_DATA(at));
    }
}

/* Whether the kernel may still read bytes sent up to this cookie: the number of the last send, plus 1.
 * Earlier sends may contain bytes of the same page, so all sends below the cookie must be complete. */
static int sends_in_use(void *arg, uint64_t cookie)
{
    return ((struct sends *)arg)->oldest < cookie;
}

/* Sends all bytes. Stores their cookie, or 0 if the kernel copied all of them during the calls. Returns -1,
 * with errno, if a send failed. */
static int sends_send(struct sends *sends, const char *data, size_t len, uint64_t *cookie)
{
    for (*cookie = 0; len > 0;) {
        const int room = sends->next - sends->oldest < MAX_SENDS;
        ssize_t sent = room ? send(sends->fd, data, len, MSG_ZEROCOPY | MSG_NOSIGNAL) : -1;
        if (sent >= 0)
            *cookie = ++sends->next;
        else if (!room || errno == ENOBUFS) { /* too many sends are incomplete: copy */
            sent = send(sends->fd, data, len, MSG_NOSIGNAL);
            sends->ordinary++;
        }
        if (sent < 0)
            return -1;
        data += sent;
        len -= (size_t)sent;
    }
    return 0;
}
