/* How much memory of this process is resident. */
#ifndef RESIDENT_H
#define RESIDENT_H

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Anonymous memory, in KiB; -1 if the kernel does not say (before 4.14). */
static inline long anonymous_kib(void)
{
    char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY);
    ssize_t len = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
    if (len < 0)
        return -1;
    close(file);
    text[len] = '\0';
    const char *at = strstr(text, "\nAnonymous:");
    return at == NULL ? -1 : atol(at + strlen("\nAnonymous:"));
}

#endif
