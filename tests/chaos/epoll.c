/* Non-blocking sockets in one epoll set, level-triggered or edge-triggered; SIGTERM comes by a signalfd there. */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 16 };

static int set;
static bool edges;
static uint32_t open_streams;

static int open_signalfd(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    int fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0) die("signalfd");
    return fd;
}

static void control(int operation, int fd, uint32_t events, struct stream *s) {
    struct epoll_event event = {.events = events, .data.ptr = s};
    while (epoll_ctl(set, operation, fd, &event) != 0)
        if (errno != ENOMEM) die("epoll_ctl"); /* short of memory for a moment */
}

static void add(struct stream *s) {
    if (fcntl(s->fd, F_SETFL, O_NONBLOCK) != 0) die("fcntl");
    s->interest = edges ? EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET : EPOLLIN | EPOLLOUT;
    control(EPOLL_CTL_ADD, s->fd, s->interest, s);
}

/* Level-triggered: EPOLLOUT only while there is something to write, EPOLLIN only until the end. */
static void update_interest(struct stream *s) {
    if (edges) return;
    uint32_t interest = (s->read_ended ? 0 : EPOLLIN) | (stream_may_write(s) > 0 ? EPOLLOUT : 0);
    if (interest == s->interest) return;
    s->interest = interest;
    control(EPOLL_CTL_MOD, s->fd, interest, s);
}

/* Edges say that something changed, and stay in force until a call says EAGAIN; levels are good for one call. */
static void note(bool *can, ssize_t result) {
    if (result == STEP_WAIT || !edges) *can = false;
}

static void finish_writing(struct stream *s, bool say_so) {
    if (s->write_ended) return;
    s->write_ended = true;
    if (say_so) stream_shutdown(s);
}

static void step(struct stream *s) {
    if (s->can_read && !s->read_ended) {
        ssize_t result = stream_read(s);
        note(&s->can_read, result);
        s->read_ended = result == STEP_END;
    }
    if (s->can_write && stream_may_write(s) > 0) {
        ssize_t result = stream_write(s);
        note(&s->can_write, result);
        if (result == STEP_END) finish_writing(s, false);
    }
    if (s->read_ended || atomic_load(&stopping)) finish_writing(s, true);
    if (s->read_ended && s->write_ended) {
        control(EPOLL_CTL_DEL, s->fd, 0, s);
        close(s->fd);
        s->fd = -1;
        open_streams--;
    } else {
        update_interest(s);
    }
}

static bool has_work(const struct stream *s) {
    return s->fd >= 0 && ((s->can_read && !s->read_ended) || (s->can_write && stream_may_write(s) > 0));
}

/* Waits for events, or only looks if some stream has work left; notes them in the streams. */
static void collect(bool work_left, int signals) {
    struct epoll_event events[EVENTS_AT_ONCE];
    int count = epoll_wait(set, events, EVENTS_AT_ONCE, work_left ? 0 : -1);
    if (count < 0 && errno != EINTR) die("epoll_wait");
    for (int i = 0; i < count; i++) {
        struct stream *s = events[i].data.ptr;
        if (s == NULL) {
            struct signalfd_siginfo info;
            if (read(signals, &info, sizeof info) == sizeof info) atomic_store(&stopping, true);
            continue;
        }
        if (events[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) s->can_read = true;
        if (events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) s->can_write = true;
    }
}

void run_epoll(struct stream *streams, uint32_t count, bool edge_triggered) {
    edges = edge_triggered;
    set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) die("epoll_create1");
    int signals = open_signalfd();
    control(EPOLL_CTL_ADD, signals, EPOLLIN, NULL);
    for (uint32_t i = 0; i < count; i++) add(&streams[i]);
    open_streams = count;
    while (open_streams > 0) {
        bool work_left = false;
        for (uint32_t i = 0; i < count; i++) work_left |= has_work(&streams[i]);
        collect(work_left, signals);
        for (uint32_t i = 0; i < count; i++)
            if (streams[i].fd >= 0) step(&streams[i]);
    }
    close(signals);
    close(set);
}
