/*
 * keeper PORT TAKE RELEASE NAME COMMAND [ARG]...: the least that a program must do to keep the promises of `redlock run` in the usual case.
 * Calls redlock's scripts, whose SHA-1s are TAKE and RELEASE, with redlock's arguments. Forks a keeper beforehand: the keeper is the job's
 * parent, and kills the job at the deadline, or when the program dies. Passes signals on. Does not wait in line, does not renew (the job
 * ends before the first renewal is due), knows one node, prints nothing, has no option.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define TTL_MS 30000

static const char *const PARTS[] = {"lease", "fence", "queue", "reserved", "holds", "members", "slots", "fences"};

/* A message between the program and its keeper. */
struct message {
    enum { DEADLINE, GO, SIGNAL, STARTED, ENDED } kind;
    int number;
    struct timespec at;
};

static struct timespec in_ms(long ms) {
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    time.tv_sec += ms / 1000;
    return time;
}

static void arm(int timer, struct timespec at) {
    struct itimerspec when = {.it_value = at};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* The keeper, the job's parent. Starts the job, kills it at the deadline, and exits when the program has hung up. */
static void keep(int socket, char **command) {
    sigset_t child_only;
    sigemptyset(&child_only);
    sigaddset(&child_only, SIGCHLD);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int children = signalfd(-1, &child_only, SFD_CLOEXEC | SFD_NONBLOCK);
    int timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    struct pollfd all_of[] = {{children, POLLIN, 0}, {timer, POLLIN, 0}, {socket, POLLIN, 0}};
    struct message message, report;
    struct signalfd_siginfo died;
    pid_t job = 0;
    for (;;) {
        poll(all_of, 3, -1);
        if (all_of[1].revents && job) kill(-job, SIGKILL);
        if (all_of[2].revents && recv(socket, &message, sizeof message, 0) <= 0) {
            if (job) kill(-job, SIGKILL);
            while (wait(NULL) > 0) {}
            _exit(0);
        } else if (all_of[2].revents && message.kind == DEADLINE) {
            arm(timer, message.at);
        } else if (all_of[2].revents && message.kind == SIGNAL && job) {
            kill(-job, message.number);
        } else if (all_of[2].revents && message.kind == GO) {
            job = vfork();
            if (job == 0) {
                setpgid(0, 0);
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                sigset_t none;
                sigemptyset(&none);
                sigprocmask(SIG_SETMASK, &none, NULL);
                execvp(command[0], command);
                _exit(127);
            }
            setpgid(0, 0);
            report.kind = STARTED;
            send(socket, &report, sizeof report, MSG_NOSIGNAL);
        }
        if (all_of[0].revents) {
            while (read(children, &died, sizeof died) > 0) {}
            int status;
            for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
                if (pid != job) continue;
                report.kind = ENDED;
                report.number = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
                job = 0;
                send(socket, &report, sizeof report, MSG_NOSIGNAL);
            }
        }
    }
}

static char *text(const char *format, ...) {
    char *made = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&made, format, arguments) < 0) abort();
    va_end(arguments);
    return made;
}

static char request[4096];
static size_t length;

static void add(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    length += vsnprintf(request + length, sizeof request - length, format, arguments);
    va_end(arguments);
}

static void word(const char *text) {
    add("$%zu\r\n%s\r\n", strlen(text), text);
}

static void pair(const char *name, const char *text) {
    word(name);
    word(text);
}

/* Begins a call of the script with this SHA-1, with this number of pairs of name and value. */
static void call(const char *sha, const char *name, int pairs) {
    length = 0;
    add("*%d\r\n", 3 + 9 + 2 * pairs);
    word("EVALSHA");
    word(sha);
    word("9");
    add("$%zu\r\nredlock:%s\r\n", 8 + strlen(name), name);
    for (int i = 0; i < 8; i++) {
        add("$%zu\r\n{redlock:%s}:\x1f%s\r\n", 12 + strlen(name) + strlen(PARTS[i]), name, PARTS[i]);
    }
}

/* Sends the call, and waits for the answer, a signal or the end of the keeper. True if the answer has come, and has the expected word. */
static int ask(int server, int signals, int keeper, const char *expected, char *got, size_t size) {
    struct pollfd all_of[] = {{signals, POLLIN, 0}, {keeper, POLLIN, 0}, {server, POLLIN, 0}};
    if (send(server, request, length, MSG_NOSIGNAL) != (ssize_t)length) return 0;
    poll(all_of, 3, 3000);
    ssize_t count = all_of[2].revents ? recv(server, got, size - 1, 0) : -1;
    if (count <= 0) return 0;
    got[count] = 0;
    return strstr(got, expected) != NULL;
}

int main(int count, char **words) {
    if (count < 6) return 64;
    const char *name = words[4];
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    int pair_of[2];
    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair_of);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t keeper = fork();
    if (keeper == 0) {
        close(pair_of[0]);
        keep(pair_of[1], words + 5);
    }
    close(pair_of[1]);
    int socket_of_keeper = pair_of[0], life = syscall(SYS_pidfd_open, keeper, 0);
    int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    if (connect(server, (struct sockaddr *)&address, sizeof address) != 0) return 69;
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);

    uint64_t bits[2];
    if (getrandom(bits, sizeof bits, 0) != sizeof bits) return 70;
    const char *token = text("%016llx%016llx", (unsigned long long)bits[0], (unsigned long long)bits[1]);
    char host[65] = "", got[4096];
    gethostname(host, sizeof host - 1);
    struct passwd *entry = getpwuid(getuid());
    const char *user = entry ? entry->pw_name : "", *pid = text("%d", getpid());
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    const char *now = text("%ld%03ld", clock.tv_sec, clock.tv_nsec / 1000000);
    const char *run = text("\"h\":\"%s\",\"l\":\"%s\",\"p\":\"%s\",\"u\":\"%s\"}", host, words[5], pid, user);

    struct message message = {.kind = DEADLINE, .at = in_ms(TTL_MS)};
    call(words[2], name, 9);
    pair("token", token), pair("host", host), pair("pid", pid), pair("user", user), pair("label", words[5]);
    pair("ttl", "30000"), pair("now", now), pair("entry", text("{%s", run)), pair("claim", "exclusive");
    if (!ask(server, signals, life, "granted", got, sizeof got)) return 75;
    struct timespec since = in_ms(0);
    send(socket_of_keeper, &message, sizeof message, MSG_NOSIGNAL);
    message.kind = GO;
    send(socket_of_keeper, &message, sizeof message, MSG_NOSIGNAL);

    int renewal = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK), status = -1;
    arm(renewal, in_ms(TTL_MS / 4));
    struct pollfd all_of[] = {
        {signals, POLLIN, 0}, {life, POLLIN, 0}, {socket_of_keeper, POLLIN, 0}, {server, POLLIN, 0}, {renewal, POLLIN, 0}};
    struct signalfd_siginfo came;
    struct message heard;
    while (status < 0) {
        poll(all_of, 5, -1);
        if (all_of[1].revents || all_of[3].revents || all_of[4].revents) return 76;
        if (all_of[0].revents && read(signals, &came, sizeof came) > 0) {
            message.kind = SIGNAL, message.number = came.ssi_signo;
            send(socket_of_keeper, &message, sizeof message, MSG_NOSIGNAL);
        }
        if (all_of[2].revents && recv(socket_of_keeper, &heard, sizeof heard, 0) > 0 && heard.kind == ENDED) {
            status = heard.number;
        }
    }

    shutdown(socket_of_keeper, SHUT_WR);
    struct timespec end = in_ms(0);
    const char *lasted = text("%ld", (end.tv_sec - since.tv_sec) * 1000 + (end.tv_nsec - since.tv_nsec) / 1000000);
    const char *run_id = strstr(got, "run_id\r\n$40\r\n");
    char id[41] = "";
    if (run_id) memcpy(id, run_id + 13, 40);
    call(words[3], name, 8);
    pair("token", token), pair("hold", "base"), pair("run_id", id), pair("claim", "exclusive");
    const char *ending = text("{\"t\":\"%s\",\"b\":\"%s\",\"f\":\"%s\",\"d\":\"%s\"", token, now, now, lasted);
    pair("run", text("%s,\"x\":\"%d\",%s", ending, status, run));
    /* The keeper exits meanwhile: its end, and signals, must not end the wait for the answer. */
    if (!ask(server, -1, -1, "released", got, sizeof got)) return 76;
    waitpid(keeper, NULL, 0);
    return status;
}
