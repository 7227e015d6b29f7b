/* The sidecar: carries bytes between two sockets, both ways, and their ends too. */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 16, STEPS_AT_ONCE = 4 };

void relay_init(struct relay *r, const int ends[2]) {
    for (int side = 0; side < 2; side++) {
        unsigned char *buffer = malloc(BUFFER_BYTES);
        if (buffer == NULL) die("malloc");
        r->flows[side] = (struct flow){.from = ends[side], .to = ends[1 - side], .buffer = buffer};
    }
}

static bool is_full(const struct flow *f) {
    return f->start < f->end;
}

/* Reads if there is room. Whatever kind of end it is, what came before still goes on. */
static bool pull(struct flow *f) {
    if (is_full(f) || f->ended) return false;
    ssize_t size = read(f->from, f->buffer, BUFFER_BYTES);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    f->start = 0;
    f->end = size > 0 ? (size_t)size : 0;
    f->ended = size <= 0;
    return true;
}

/* Writes what there is, and passes the end on. A receiver that is gone takes nothing more. */
static bool push(struct flow *f) {
    if (is_full(f)) {
        ssize_t size = write(f->to, f->buffer + f->start, f->end - f->start);
        if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
        if (size < 0) f->start = f->end = 0;
        if (size < 0) f->done = f->ended = true;
        else f->start += (size_t)size;
        return true;
    }
    if (!f->ended || f->done) return false;
    f->done = true;
    shutdown(f->to, SHUT_WR); /* that it is gone already is no error */
    return true;
}

static void close_both(struct relay *r) {
    for (int side = 0; side < 2; side++) {
        close(r->flows[side].from);
        free(r->flows[side].buffer);
    }
    r->closed = true;
}

/* --- blocking: a thread for each direction ------------------------------------------------------------------- */

static void *carry(void *argument) {
    struct flow *f = argument;
    while (!f->done) {
        pull(f);
        push(f);
    }
    return NULL;
}

static void run_threads(struct relay *relays, uint32_t count) {
    static pthread_t threads[CONNECTIONS_MAX][2];
    for (uint32_t i = 0; i < count; i++)
        for (int side = 0; side < 2; side++)
            if (pthread_create(&threads[i][side], NULL, carry, &relays[i].flows[side]) != 0) die("pthread_create");
    for (uint32_t i = 0; i < count; i++) {
        for (int side = 0; side < 2; side++) pthread_join(threads[i][side], NULL);
        close_both(&relays[i]);
    }
}

/* --- one epoll set --------------------------------------------------------------------------------------------- */

/* A socket of which nothing is wanted leaves the set: else its end would be reported over and over. */
static void watch(int set, struct relay *r, int side, struct epoll_event event) {
    int fd = r->flows[side].from;
    uint32_t before = r->interest[side];
    if (event.events == before) return;
    int operation = before == 0 ? EPOLL_CTL_ADD : event.events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    while (epoll_ctl(set, operation, fd, &event) != 0)
        if (errno != ENOMEM) die("epoll_ctl");
    r->interest[side] = event.events;
}

static void update(int set, struct relay *r, bool close_now) {
    for (int side = 0; side < 2; side++) {
        const struct flow *out = &r->flows[side], *in = &r->flows[1 - side];
        bool reads = !close_now && !out->ended && !is_full(out), writes = !close_now && is_full(in);
        struct epoll_event event = {.events = (reads ? EPOLLIN : 0) | (writes ? EPOLLOUT : 0), .data.ptr = r};
        watch(set, r, side, event);
    }
}

/* True: the relay is closed. */
static bool step(int set, struct relay *r) {
    for (int i = 0; i < STEPS_AT_ONCE; i++) {
        bool moved = false;
        for (int side = 0; side < 2; side++) {
            moved |= pull(&r->flows[side]);
            moved |= push(&r->flows[side]);
        }
        if (!moved) break;
    }
    bool over = r->flows[0].done && r->flows[1].done;
    update(set, r, over);
    if (over) close_both(r);
    return over;
}

static void run_set(struct relay *relays, uint32_t count) {
    struct epoll_event events[EVENTS_AT_ONCE];
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) die("epoll_create1");
    for (uint32_t i = 0; i < count; i++) {
        for (int side = 0; side < 2; side++)
            if (fcntl(relays[i].flows[side].from, F_SETFL, O_NONBLOCK) != 0) die("fcntl");
        update(set, &relays[i], false);
    }
    for (uint32_t open_relays = count; open_relays > 0;) {
        int found = epoll_wait(set, events, EVENTS_AT_ONCE, -1);
        if (found < 0 && errno != EINTR) die("epoll_wait");
        for (int i = 0; i < found; i++) {
            struct relay *r = events[i].data.ptr;
            if (!r->closed && step(set, r)) open_relays--;
        }
    }
    close(set);
}

void run_relays(struct relay *relays, uint32_t count, bool by_epoll) {
    if (by_epoll) run_set(relays, count);
    else run_threads(relays, count);
}
