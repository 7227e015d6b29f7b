/* Peer of the chaos test: a client or a server that sends and checks byte streams on several connections, or a sidecar
 * that carries them from the one to the other.
 *
 *   peer server MODE CONNECTIONS PROGRESS-FILE SEED
 *   peer sidecar MODE CONNECTIONS PROGRESS-FILE SEED PORT
 *   peer client MODE CONNECTIONS PROGRESS-FILE SEED PORT
 *
 * MODE is block (two threads a connection), poll (the same with poll() before each call), epoll or epollet.
 * Connection number n is, by n modulo 4: a stream from client to server, one from server to client, streams both
 * ways at once, or messages in turn. The counters in the progress file outlive a SIGKILL. At SIGTERM the peer
 * stops writing and reads to the end; so it does when the other side has ended. When all its connections are closed it
 * waits to be looked at, until the runner says `leave`, and exits with 0. Exit code 3: a byte was wrong.
 */
#include "peer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* Two minutes in all: more than any runner takes. */
enum { LINGER_MILLISECONDS = 5, LINGER_CALLS = 24000 };

atomic_bool stopping;

void die(const char *what) {
    perror(what);
    exit(2);
}

static struct progress *map_progress(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(struct progress)) != 0) die(path);
    struct progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) die("mmap");
    close(fd);
    p->pid = (uint32_t)getpid();
    return p;
}

static struct sockaddr_in loopback(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

static uint16_t port_of(int fd, int (*ask)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    if (ask(fd, (struct sockaddr *)&address, &length) != 0) die("address of a socket");
    return ntohs(address.sin_port);
}

/* What both ends do with a fresh connection. */
static void begin(struct stream *s, struct progress *p, int fd, uint32_t number, bool server, uint64_t seed) {
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) die("setsockopt");
    p->entries[number].local_port = port_of(fd, getsockname);
    p->entries[number].remote_port = port_of(fd, getpeername);
    stream_init(s, fd, number, server, seed, &p->entries[number]);
}

static int listen_somewhere(struct progress *p) {
    struct sockaddr_in address = loopback(0);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, CONNECTIONS_MAX) != 0)
        die("listen");
    atomic_store(&p->port, port_of(listener, getsockname));
    return listener;
}

static int accept_one(int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) die("accept4");
    return fd;
}

static int connect_to(uint16_t port) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
    return fd;
}

/* The first byte from the client says which connection it is. */
static void accept_all(struct stream *streams, struct progress *p, uint32_t count, uint64_t seed) {
    int listener = listen_somewhere(p);
    for (uint32_t i = 0; i < count; i++) {
        unsigned char number;
        int fd = accept_one(listener);
        if (read(fd, &number, 1) != 1 || number >= count) die("first byte of a connection");
        begin(&streams[number], p, fd, number, true, seed);
        atomic_store(&p->entries[number].verified, 1);
    }
    close(listener);
}

static void connect_all(struct stream *streams, struct progress *p, uint32_t count, uint64_t seed, uint16_t port) {
    for (uint32_t i = 0; i < count; i++) {
        unsigned char number = (unsigned char)i;
        int fd = connect_to(port);
        begin(&streams[i], p, fd, i, false, seed);
        atomic_store(&p->entries[i].writing, 1);
        if (write(fd, &number, 1) != 1) die("first byte of a connection");
        atomic_store(&p->entries[i].written, 1);
    }
}

static void join_all(struct relay *relays, struct progress *p, uint32_t count, uint16_t port) {
    int listener = listen_somewhere(p), on = 1;
    for (uint32_t i = 0; i < count; i++) {
        int ends[2] = {accept_one(listener), connect_to(port)};
        for (int side = 0; side < 2; side++)
            if (setsockopt(ends[side], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) die("setsockopt");
        relay_init(&relays[i], ends);
    }
    close(listener);
}

/* A peer's end is told by the calls, and SIGTERM by whoever waits for it in each mode. */
static void prepare_signals(void) {
    sigset_t set;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

/* All connections are closed: what this process still holds can be looked at, until the runner lets it go. It goes on
 * to wait for events meanwhile, as a living server does. */
static void linger(struct progress *p) {
    struct epoll_event event;
    int set = epoll_create1(EPOLL_CLOEXEC);
    if (set < 0) die("epoll_create1");
    atomic_store(&p->ready, DONE);
    for (int i = 0; i < LINGER_CALLS; i++) {
        if (atomic_load(&p->leave)) return;
        epoll_wait(set, &event, 1, LINGER_MILLISECONDS);
    }
    fprintf(stderr, "nobody said that it is time to leave\n");
    exit(4);
}

static void run_streams(const char *mode, struct stream *streams, uint32_t count) {
    if (strncmp(mode, "epoll", 5) == 0) run_epoll(streams, count, strcmp(mode, "epollet") == 0);
    else run_blocking(streams, count, strcmp(mode, "poll") == 0);
}

int main(int count, char **arguments) {
    static struct stream streams[CONNECTIONS_MAX];
    static struct relay relays[CONNECTIONS_MAX];
    bool server = count == 6 && strcmp(arguments[1], "server") == 0;
    bool sidecar = count == 7 && strcmp(arguments[1], "sidecar") == 0;
    if (!server && !sidecar && !(count == 7 && strcmp(arguments[1], "client") == 0)) {
        fprintf(stderr, "usage: peer server|sidecar|client block|poll|epoll|epollet COUNT PROGRESS SEED [PORT]\n");
        return 2;
    }
    const char *mode = arguments[2];
    uint32_t connections = (uint32_t)atoi(arguments[3]);
    uint64_t seed = strtoull(arguments[5], NULL, 10);
    uint16_t port = server ? 0 : (uint16_t)atoi(arguments[6]);
    if (connections < 1 || connections > CONNECTIONS_MAX) die("number of connections");
    struct progress *p = map_progress(arguments[4]);
    prepare_signals();
    if (server) accept_all(streams, p, connections, seed);
    else if (sidecar) join_all(relays, p, connections, port);
    else connect_all(streams, p, connections, seed, port);
    atomic_store(&p->ready, RUNNING);
    if (sidecar) run_relays(relays, connections, strncmp(mode, "epoll", 5) == 0);
    else run_streams(mode, streams, connections);
    linger(p);
    return 0;
}
