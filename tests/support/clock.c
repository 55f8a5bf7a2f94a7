/* Other clocks for a server: a library for LD_PRELOAD.
 * TIME_SHIFT (s) shifts `time`, which a server uses only to note when it was started.
 * The file CLOCK_FILE holds how many microseconds the wall clock is ahead; this may change at any time. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead;

__attribute__((constructor)) static void map(void) {
    const char *name = getenv("CLOCK_FILE");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) ahead = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    int status = syscall(SYS_clock_gettime, clock, out);
    if (status || clock != CLOCK_REALTIME || !ahead) return status;
    long long ns = out->tv_nsec + *ahead % 1000000 * 1000;
    out->tv_sec += *ahead / 1000000 + ns / 1000000000;
    out->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    const char *shift = getenv("TIME_SHIFT");
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    time_t then = now.tv_sec + (shift ? atoll(shift) : 0);
    if (out) *out = then;
    return then;
}
