/*
 * A sender with MSG_ZEROCOPY uses the pages of an array in turn, for comparison with pool_pages.h.
 */
#include <poll.h>
#include <stdlib.h>

#include "sends.h"

struct pages {
    struct sends *sends;
    size_t count;
    uint64_t taken, *cookies;
    char *memory;
};

struct page {
    char *data;
};

static int pages_open(struct pages *pages, struct sends *sends, size_t count)
{
    uint64_t *cookies = calloc(count, sizeof(*cookies));
    *pages = (struct pages){sends, count, 0, cookies, aligned_alloc(4096, count * 4096)};
    return pages->memory == NULL || pages->cookies == NULL ? -ENOMEM : 0;
}

static struct page pages_take(struct pages *pages)
{
    const uint64_t cookie = pages->cookies[pages->taken % pages->count];
    if (sends_in_use(pages->sends, cookie))
        sends_refresh(pages->sends);
    if (sends_in_use(pages->sends, cookie))
        return (struct page){NULL};
    return (struct page){pages->memory + pages->taken++ % pages->count * 4096};
}

static int pages_return(struct pages *pages, struct page page, uint64_t cookie)
{
    pages->cookies[(size_t)(page.data - pages->memory) / 4096] = cookie;
    return 0;
}

static int64_t pages_close(struct pages *pages)
{
    struct sends *sends = pages->sends;
    for (int i = 0; i < 10000 && sends->oldest < sends->next; i++) {
        sends_refresh(sends);
        poll(NULL, 0, 1);
    }
    free(pages->memory);
    free(pages->cookies);
    return (int64_t)(sends->next - sends->oldest);
}
