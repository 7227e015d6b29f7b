// Jumps out of signal handlers, as in programs from before there were timeouts: after a jump out of any call, the connection
// can be used as before. Each function returns 0, or the line of the first error.

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) return __LINE__; } while (0)

static sigjmp_buf out;

static void leave(int number) { siglongjmp(out, number); }

static void every(long us) {
    struct itimerval time = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &time, 0);
}

static void handle(int number, int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = leave;
    action.sa_flags = flags;
    sigaction(number, &action, 0);
}

// Numbers follow each other, eight bytes each: a mark, and seven times seven bits. An interrupted sender does not know whether
// all of a number was sent, a part of it, or nothing. (The kernel's own send(2) of eight bytes that had to wait is cut short
// nearly always.) So each number may be repeated, and may be incomplete before the repetition.
enum { SIZE = 8, MARK = 0xff, END = 0xfe };

static void encode(uint64_t number, unsigned char *bytes) {
    bytes[0] = MARK;
    for (int i = 1; i < SIZE; i++, number >>= 7) bytes[i] = number & 0x7f;
}

static void *receive_numbers(void *argument) {
    int fd = *(int *)argument;
    unsigned char room[SIZE], last[SIZE], next[SIZE];
    uint64_t number = 0;
    int at = SIZE, is_last = 1, is_next = 1;
    encode(0, last);
    encode(1, next);
    for (;;) {
        ssize_t n = recv(fd, room, sizeof room, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return (void *)1;
        for (ssize_t i = 0; i < n; i++) {
            if (room[i] == END) return 0;
            if (room[i] == MARK) at = 0, is_last = is_next = 1;
            if (at == SIZE) return (void *)2;
            is_last &= room[i] == last[at];
            is_next &= room[i] == next[at];
            if (!is_last && !is_next) return (void *)3;
            if (++at == SIZE && !is_last) {
                encode(++number, last);
                encode(number + 1, next);
            }
        }
    }
}

static int sends(int fd, int peer, int signal_flags) {
    static volatile uint64_t number;
    static volatile int jumps;
    sigset_t all, before;
    pthread_t thread;
    void *wrong;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    CHECK(pthread_create(&thread, 0, receive_numbers, &peer) == 0);
    pthread_sigmask(SIG_SETMASK, &before, 0);
    handle(SIGALRM, signal_flags);
    number = 0;
    jumps = 0;
    if (sigsetjmp(out, 1)) jumps++;
    every(200);
    while (jumps < 3000) {
        unsigned char next[SIZE];
        encode(number + 1, next);
        ssize_t sent = send(fd, next, sizeof next, 0);
        if (sent < 0 && errno != EINTR) return __LINE__;
        if (sent == sizeof next) number++;
    }
    every(0);
    unsigned char end = END;
    CHECK(send(fd, &end, 1, 0) == 1);
    CHECK(pthread_join(thread, &wrong) == 0 && wrong == 0);
    return 0;
}

int jumps_out_of_sends(int fd, int peer) { return sends(fd, peer, SA_RESTART); }
int jumps_out_of_interrupted_sends(int fd, int peer) { return sends(fd, peer, 0); }

static char room[8192];
enum { RECEIVES, POLLS, SELECTS, EPOLLS, WAYS };

static void wait_in(int way, int fd, int set) {
    struct pollfd entry = {fd, POLLIN, 0};
    struct epoll_event event;
    fd_set read_set;
    FD_ZERO(&read_set);
    FD_SET(fd, &read_set);
    switch (way) {
    case RECEIVES: recv(fd, room, sizeof room, 0); break;
    case POLLS: poll(&entry, 1, -1); break;
    case SELECTS: select(fd + 1, &read_set, 0, 0, 0); break;
    case EPOLLS: epoll_wait(set, &event, 1, -1); break;
    }
}

// Jumps out of each kind of wait, more often than there are doorbells. After that, a wait still sleeps and is woken.
int jumps_out_of_waits(int fd, int peer) {
    static volatile int jumps, way;
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
    for (way = 0; way < WAYS; way++) {
        handle(SIGALRM, SA_RESTART);
        jumps = 0;
        if (sigsetjmp(out, 1)) jumps++;
        while (jumps < 100) {
            every(2000);
            wait_in(way, fd, set);
        }
        every(0);
        sigset_t now;
        CHECK(sigprocmask(SIG_BLOCK, 0, &now) == 0 && sigisemptyset(&now));
        CHECK(send(peer, "x", 1, 0) == 1);
        CHECK(recv(fd, room, 1, 0) == 1 && room[0] == 'x');
    }
    CHECK(close(set) == 0);
    return 0;
}

// A jump from deep in the stack, and one out of a handler on an alternate stack.
static void deep(int depth, int fd) {
    char rest[4096];
    __asm__ volatile("" : : "r"(rest) : "memory"); // the array stays
    if (depth) deep(depth - 1, fd);
    else recv(fd, room, sizeof room, 0);
    __asm__ volatile("" : : "r"(rest) : "memory");
}

int jumps_from_other_stacks(int fd, int peer) {
    static char alternate[65536];
    static volatile int jumps;
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    CHECK(sigaltstack(&stack, 0) == 0);
    handle(SIGALRM, SA_ONSTACK);
    jumps = 0;
    if (sigsetjmp(out, 1)) jumps++;
    while (jumps < 100) {
        every(1000);
        deep(jumps % 8, fd);
    }
    every(0);
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, 0) == 0);
    CHECK(send(peer, "y", 1, 0) == 1);
    CHECK(recv(fd, room, 1, 0) == 1 && room[0] == 'y');
    return 0;
}
