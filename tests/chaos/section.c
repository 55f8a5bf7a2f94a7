/* A critical section, judged by the kernel: section DIRECTORY MILLISECONDS WAYS STATUS LOCK:KIND...
 *
 * KIND is x (exclusive), s (shared), p (the slot in REDLOCK_SLOT) or n and a number (exclusive, --newest; the history
 * has this number in place of a slot). For each lock the section takes flock on a file (.judge), without blocking. If
 * the flock is refused, another section has the same lock at the same time. Every process of a section keeps the flock:
 * the section lasts until the last process has ended. The section appends each event to DIRECTORY/history, for
 * history.rs.
 * Sections that end by a clock, and not by redlock, have other files (.bounded). Here their flock is only tried.
 * STATUS: above 128 the section ends by signal STATUS - 128.
 * WAYS: d: SIGTERM is ignored; k: the section has two more processes, one of them in a session of its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static int history;

static const char *or(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static void note(const char *event, const char *lock, char kind, const char *status) {
    const char *named = or("REDLOCK_NAME", ""), *behind = lock + strlen(lock) + 2;
    const char *slot = kind == 'p' ? or("REDLOCK_SLOT", "?") : kind == 'n' ? behind : "-";
    /* With several names, the variables are about one name only. */
    int ours = !strcmp(named, lock);
    struct timespec now;
    char line[512];
    clock_gettime(CLOCK_BOOTTIME, &now);
    int length = snprintf(line, sizeof line, "%s %s %c %s %s %s %d %lld - %s\n", event, lock, kind, slot,
        ours ? or("REDLOCK_FENCING_TOKEN", "?") : "-", ours ? or("REDLOCK_TOKEN", "?") : "-", getpid(),
        now.tv_sec * 1000000LL + now.tv_nsec / 1000, status);
    if (write(history, line, length) != length) _exit(10);
}

static int take(const char *directory, const char *lock, char kind, const char *suffix, int how) {
    char path[512];
    const char *slot = kind == 'p' ? or("REDLOCK_SLOT", "?") : "";
    snprintf(path, sizeof path, "%s/%s.%s%s", directory, lock, slot, suffix);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) _exit(11);
    if (flock(file, how | LOCK_NB) == 0) return file;
    close(file);
    return -1;
}

/* Stays until the section's first process has ended. */
static void accompany(int end) {
    char byte;
    signal(SIGTERM, SIG_IGN);
    while (read(end, &byte, 1) < 0 && errno == EINTR) {}
    _exit(0);
}

int main(int count, char **arguments) {
    char path[512];
    if (count < 6) return 12;
    const char *directory = arguments[1], *ways = arguments[3];
    snprintf(path, sizeof path, "%s/history", directory);
    history = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (history < 0) return 13;
    if (strchr(ways, 'd')) signal(SIGTERM, SIG_IGN);
    for (int i = 5; i < count; i++) {
        char *colon = strrchr(arguments[i], ':');
        if (!colon) return 14;
        *colon = 0;
        int how = colon[1] == 's' ? LOCK_SH : LOCK_EX;
        int free = take(directory, arguments[i], colon[1], "judge", how) >= 0;
        int bounded = take(directory, arguments[i], colon[1], "bounded", how);
        note(!free ? "overlap" : bounded < 0 ? "beside" : "enter", arguments[i], colon[1], "-");
        if (bounded >= 0) close(bounded);
        if (!free || bounded < 0) return 9;
    }
    int ends[2];
    if (strchr(ways, 'k')) {
        if (pipe(ends)) return 15;
        for (int child = 0; child < 2; child++) {
            if (fork()) continue;
            close(ends[1]);
            if (child && setsid() >= 0 && fork()) _exit(0);
            accompany(ends[0]);
        }
    }
    long ms = atol(arguments[2]);
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left)) {}
    for (int i = 5; i < count; i++) note("leave", arguments[i], arguments[i][strlen(arguments[i]) + 1], arguments[4]);
    int status = atoi(arguments[4]);
    if (status > 128) {
        signal(status - 128, SIG_DFL);
        raise(status - 128);
    }
    return status;
}
