/* Blocking sockets: two threads for each connection, one reads, one writes. */
#include "peer.h"

#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static bool polls_first;

static void poll_if_wanted(const struct stream *s, short events) {
    struct pollfd set = {.fd = s->fd, .events = events};
    if (polls_first) poll(&set, 1, -1);
}

static void *reader(void *argument) {
    struct stream *s = argument;
    ssize_t result = STEP_WAIT;
    while (result != STEP_END) {
        poll_if_wanted(s, POLLIN);
        result = stream_read(s);
        pthread_mutex_lock(&s->lock);
        atomic_store(&s->read_ended, result == STEP_END);
        pthread_cond_signal(&s->changed);
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

/* Sleeps until there is something to write or nothing will ever be. */
static bool wait_for_work(struct stream *s) {
    pthread_mutex_lock(&s->lock);
    while (!atomic_load(&stopping) && !s->read_ended && stream_may_write(s) == 0)
        pthread_cond_wait(&s->changed, &s->lock);
    bool work = stream_may_write(s) > 0;
    pthread_mutex_unlock(&s->lock);
    return work;
}

static void *writer(void *argument) {
    struct stream *s = argument;
    while (wait_for_work(s)) {
        poll_if_wanted(s, POLLOUT);
        if (stream_write(s) == STEP_END) return NULL;
    }
    stream_shutdown(s);
    return NULL;
}

struct stopper {
    struct stream *streams;
    uint32_t count;
};

/* Takes SIGTERM as an event and wakes the writers that sleep. */
static void *stop_at_sigterm(void *argument) {
    struct stopper *stopper = argument;
    sigset_t set;
    int signal_number;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigwait(&set, &signal_number);
    atomic_store(&stopping, true);
    for (uint32_t i = 0; i < stopper->count; i++) {
        pthread_mutex_lock(&stopper->streams[i].lock);
        pthread_cond_signal(&stopper->streams[i].changed);
        pthread_mutex_unlock(&stopper->streams[i].lock);
    }
    return NULL;
}

static void start(pthread_t *thread, void *(*function)(void *), void *argument) {
    if (pthread_create(thread, NULL, function, argument) != 0) die("pthread_create");
}

void run_blocking(struct stream *streams, uint32_t count, bool poll_first) {
    struct stopper stopper = {streams, count};
    pthread_t readers[CONNECTIONS_MAX], writers[CONNECTIONS_MAX], stop_thread;
    polls_first = poll_first;
    start(&stop_thread, stop_at_sigterm, &stopper);
    for (uint32_t i = 0; i < count; i++) {
        start(&readers[i], reader, &streams[i]);
        start(&writers[i], writer, &streams[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        pthread_join(readers[i], NULL);
        pthread_join(writers[i], NULL);
        close(streams[i].fd);
    }
}
