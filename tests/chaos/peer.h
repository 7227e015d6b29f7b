/* One end of the chaos test's byte streams: shared types. See peer.c for what the program does. */
#ifndef PEER_H
#define PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CONNECTIONS_MAX = 64, BUFFER_BYTES = 65536 };

/* What a connection carries: told by its number modulo KINDS. */
enum kind { UP, DOWN, DUPLEX, PINGPONG, KINDS };

/* How the reading side of a connection ended. The runner knows these numbers. */
enum end { OPEN = 0, ENDED = 1, RESET = 2, WRONG = 3 };

/* How far a peer is. The runner knows these numbers. */
enum { RUNNING = 1, DONE = 2 }; /* all connections are made; all are closed */

/* The counters of one connection, in a file that the runner can read after a SIGKILL. */
struct entry {
    _Atomic uint64_t written;  /* bytes of all write calls that have returned */
    _Atomic uint64_t writing;  /* the same, with those of a call in progress */
    _Atomic uint64_t verified; /* bytes read and found right */
    _Atomic uint32_t end;
    uint16_t local_port;
    uint16_t remote_port;
};

/* The whole file. */
struct progress {
    uint32_t pid;
    _Atomic uint32_t port;  /* server: where it listens */
    _Atomic uint32_t ready; /* one of the states below */
    _Atomic uint32_t leave; /* by the runner: 1: end, once all connections are closed */
    struct entry entries[CONNECTIONS_MAX];
};

/* One connection in this process. */
struct stream {
    int fd;
    uint32_t number;
    bool server;
    enum kind kind;
    uint64_t seed;          /* of the bytes: the same at both ends */
    uint64_t random[2];     /* of sizes, calls and pauses: our own, one state for each direction's thread */
    _Atomic uint64_t limit; /* how far we may write now */
    uint64_t turn;          /* ping-pong: number of the exchange */
    uint64_t turn_end;      /* ping-pong: where its message ends */
    struct entry *entry;
    unsigned char *read_buffer, *write_buffer, *wanted;
    atomic_bool read_ended, write_ended;
    /* the blocking mode's two threads: signalled when the writer may have work, or has none any more */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* state of the event loop */
    bool can_read, can_write;
    uint32_t interest;
};

/* One connection of the sidecar: two sockets, and what is on its way from each to the other. */
struct flow {
    int from, to;
    unsigned char *buffer;
    size_t start, end; /* of what has been read and not yet written */
    bool ended;        /* nothing more comes */
    bool done;         /* and nothing more goes */
};

struct relay {
    struct flow flows[2];
    uint32_t interest[2];
    bool closed;
};

/* Results of the two steps below beside a positive count of bytes. */
enum { STEP_END = 0, STEP_WAIT = -1 };

extern atomic_bool stopping; /* SIGTERM came: write no more, read to the end */

void stream_init(struct stream *s, int fd, uint32_t number, bool server, uint64_t seed, struct entry *entry);
uint64_t stream_may_write(const struct stream *s);
ssize_t stream_write(struct stream *s);
ssize_t stream_read(struct stream *s);
void stream_shutdown(struct stream *s);

void run_blocking(struct stream *streams, uint32_t count, bool poll_first);
void run_epoll(struct stream *streams, uint32_t count, bool edge_triggered);

void relay_init(struct relay *r, const int ends[2]);
void run_relays(struct relay *relays, uint32_t count, bool by_epoll);

_Noreturn void die(const char *what);

#endif
