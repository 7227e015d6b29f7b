/* Peer of the chaos test: a client or a server that sends and checks byte streams on several connections.
 *
 *   peer server MODE CONNECTIONS PROGRESS-FILE SEED
 *   peer client MODE CONNECTIONS PROGRESS-FILE SEED PORT
 *
 * MODE is block (two threads a connection), poll (the same with poll() before each call), epoll or epollet.
 * Connection number n is, by n modulo 4: a stream from client to server, one from server to client, streams both
 * ways at once, or messages in turn. The counters in the progress file outlive a SIGKILL. At SIGTERM the peer
 * stops writing, reads to the end and exits with 0; so it does when the other side has ended. Exit code 3: a byte
 * was wrong.
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
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

atomic_bool stopping;

void die(const char *what) {
    perror(what);
    exit(2);
}

static struct progress *map_progress(const char *path, uint32_t connections) {
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(struct progress)) != 0) die(path);
    struct progress *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) die("mmap");
    close(fd);
    p->connections = connections;
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

/* The first byte from the client says which connection it is. */
static void accept_all(struct stream *streams, struct progress *p, uint32_t count, uint64_t seed) {
    struct sockaddr_in address = loopback(0);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, CONNECTIONS_MAX) != 0)
        die("listen");
    atomic_store(&p->port, port_of(listener, getsockname));
    for (uint32_t i = 0; i < count; i++) {
        unsigned char number;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) die("accept4");
        if (read(fd, &number, 1) != 1 || number >= count) die("first byte of a connection");
        begin(&streams[number], p, fd, number, true, seed);
        atomic_store(&p->entries[number].verified, 1);
    }
    close(listener);
}

static void connect_all(struct stream *streams, struct progress *p, uint32_t count, uint64_t seed, uint16_t port) {
    struct sockaddr_in address = loopback(port);
    for (uint32_t i = 0; i < count; i++) {
        unsigned char number = (unsigned char)i;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0) die("connect");
        begin(&streams[i], p, fd, i, false, seed);
        atomic_store(&p->entries[i].writing, 1);
        if (write(fd, &number, 1) != 1) die("first byte of a connection");
        atomic_store(&p->entries[i].written, 1);
    }
}

/* A peer's end is told by the calls, and SIGTERM by whoever waits for it in each mode. */
static void prepare_signals(void) {
    sigset_t set;
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int main(int count, char **arguments) {
    static struct stream streams[CONNECTIONS_MAX];
    bool server = count == 6 && strcmp(arguments[1], "server") == 0;
    if (!server && !(count == 7 && strcmp(arguments[1], "client") == 0)) {
        fprintf(stderr, "usage: peer server|client block|poll|epoll|epollet CONNECTIONS PROGRESS-FILE SEED [PORT]\n");
        return 2;
    }
    const char *mode = arguments[2];
    uint32_t connections = (uint32_t)atoi(arguments[3]);
    uint64_t seed = strtoull(arguments[5], NULL, 10);
    if (connections < 1 || connections > CONNECTIONS_MAX) die("number of connections");
    struct progress *p = map_progress(arguments[4], connections);
    prepare_signals();
    if (server) accept_all(streams, p, connections, seed);
    else connect_all(streams, p, connections, seed, (uint16_t)atoi(arguments[6]));
    atomic_store(&p->ready, 1);
    if (strncmp(mode, "epoll", 5) == 0) run_epoll(streams, connections, strcmp(mode, "epollet") == 0);
    else run_blocking(streams, connections, strcmp(mode, "poll") == 0);
    return 0;
}
