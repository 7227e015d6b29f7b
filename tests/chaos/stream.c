/* One connection: what to write, what must come, and the counters that outlive us. */
#include "peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { TURN_BYTES_MAX = 20000, PAUSE_MICROSECONDS_MAX = 1500 };

/* splitmix64: every bit of the result depends on every bit of the input. */
static uint64_t mix(uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* The reading and the writing thread draw their numbers from states of their own. */
enum { READS, WRITES };

static uint64_t draw(struct stream *s, int direction, uint64_t below) {
    s->random[direction] = mix(s->random[direction]);
    return s->random[direction] % below;
}

/* Length of message number `turn`, a ping and its pong alike. */
static uint64_t turn_bytes(const struct stream *s, uint64_t turn) {
    return 1 + mix(s->seed ^ mix(s->number * 1000003ULL + turn)) % TURN_BYTES_MAX;
}

/* The bytes of one direction from `position` on. Every byte depends on where it stands, so that a byte lost,
 * doubled or out of order anywhere is seen at once. Byte 0 from client to server is the connection's number. */
static void pattern(const struct stream *s, bool from_server, uint64_t position, unsigned char *out, size_t size) {
    uint64_t key = mix(s->seed ^ (s->number * 2ULL + from_server));
    for (size_t i = 0; i < size;) {
        uint64_t word = mix(key ^ ((position + i) / 8));
        for (size_t at = (position + i) % 8; at < 8 && i < size; at++, i++) out[i] = (unsigned char)(word >> (8 * at));
    }
    if (!from_server && position == 0 && size > 0) out[0] = (unsigned char)s->number;
}

/* Ping-pong: how far we may write follows from what has come. The client's stream is ahead by its first byte. */
static void update_limit(struct stream *s, uint64_t verified) {
    if (s->kind != PINGPONG) return;
    uint64_t offset = s->server ? 1 : 0;
    while (verified >= offset + s->turn_end) {
        if (s->server) s->limit = s->turn_end;
        s->turn_end += turn_bytes(s, ++s->turn);
        if (!s->server) s->limit = 1 + s->turn_end;
    }
}

void stream_init(struct stream *s, int fd, uint32_t number, bool server, uint64_t seed, struct entry *entry) {
    memset(s, 0, sizeof *s);
    s->fd = fd;
    s->number = number;
    s->server = server;
    s->kind = number % KINDS;
    s->seed = seed;
    s->random[READS] = mix(seed ^ (number * 2ULL + server) ^ (uint64_t)getpid());
    s->random[WRITES] = mix(s->random[READS]);
    s->entry = entry;
    s->read_buffer = malloc(3 * BUFFER_BYTES);
    if (s->read_buffer == NULL) die("malloc");
    s->write_buffer = s->read_buffer + BUFFER_BYTES;
    s->wanted = s->write_buffer + BUFFER_BYTES;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    bool writes_freely = s->kind == DUPLEX || s->kind == (server ? DOWN : UP);
    s->limit = writes_freely ? UINT64_MAX : server ? 0 : 1;
    s->turn_end = turn_bytes(s, 0);
    if (s->kind == PINGPONG && !server) s->limit = 1 + s->turn_end;
}

uint64_t stream_may_write(const struct stream *s) {
    if (atomic_load(&stopping) || s->read_ended || s->write_ended) return 0;
    return s->limit - atomic_load(&s->entry->written);
}

/* Sizes of all kinds: single bytes, small messages, and more than a buffer likes. */
static size_t some_size(struct stream *s, int direction) {
    static const size_t most[] = {1, 100, 1448, 8192, BUFFER_BYTES};
    return 1 + draw(s, direction, most[draw(s, direction, 5)]);
}

/* The same bytes by one of the calls that programs use. */
static ssize_t write_by_some_call(struct stream *s, size_t size) {
    struct iovec parts[2] = {{s->write_buffer, size / 2}, {s->write_buffer + size / 2, size - size / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    switch (draw(s, WRITES, 4)) {
    case 0: return write(s->fd, s->write_buffer, size);
    case 1: return send(s->fd, s->write_buffer, size, MSG_NOSIGNAL);
    case 2: return writev(s->fd, parts, 2);
    default: return sendmsg(s->fd, &message, MSG_NOSIGNAL);
    }
}

static ssize_t read_by_some_call(struct stream *s, size_t size) {
    struct iovec parts[2] = {{s->read_buffer, size / 2}, {s->read_buffer + size / 2, size - size / 2}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    switch (draw(s, READS, 4)) {
    case 0: return read(s->fd, s->read_buffer, size);
    case 1: return recv(s->fd, s->read_buffer, size, 0);
    case 2: return readv(s->fd, parts, 2);
    default: return recvmsg(s->fd, &message, 0);
    }
}

/* A call that was interrupted, or for which memory was short, is made again at once: it has moved nothing. */
static bool again(ssize_t result) {
    return result < 0 && (errno == EINTR || errno == ENOMEM);
}

/* One write call, if there is something to write. */
ssize_t stream_write(struct stream *s) {
    uint64_t allowed = stream_may_write(s), position = atomic_load(&s->entry->written);
    if (allowed == 0) return STEP_WAIT;
    size_t size = some_size(s, WRITES);
    if (size > allowed) size = allowed;
    pattern(s, s->server, position, s->write_buffer, size);
    atomic_store(&s->entry->writing, position + size);
    ssize_t written;
    do written = write_by_some_call(s, size);
    while (again(written));
    if (written < 0) atomic_store(&s->entry->writing, position);
    if (written < 0 && errno == EAGAIN) return STEP_WAIT;
    if (written < 0 && errno != EPIPE && errno != ECONNRESET) die("write");
    if (written < 0) return STEP_END;
    atomic_store(&s->entry->written, position + (uint64_t)written);
    atomic_store(&s->entry->writing, position + (uint64_t)written);
    return written;
}

static void check(struct stream *s, uint64_t position, size_t size) {
    pattern(s, !s->server, position, s->wanted, size);
    if (memcmp(s->wanted, s->read_buffer, size) == 0) return;
    size_t at = 0;
    while (s->wanted[at] == s->read_buffer[at]) at++;
    atomic_store(&s->entry->end, WRONG);
    fprintf(stderr, "connection %u: byte %llu is %02x, not %02x (read of %zu bytes at %llu)\n", s->number,
            (unsigned long long)(position + at), s->read_buffer[at], s->wanted[at], size, (unsigned long long)position);
    exit(3);
}

/* One read call. At the end it leaves in the entry what kind of end it was. */
ssize_t stream_read(struct stream *s) {
    uint64_t position = atomic_load(&s->entry->verified);
    if (draw(s, READS, 200) == 0) usleep((useconds_t)draw(s, READS, PAUSE_MICROSECONDS_MAX));
    size_t wanted = some_size(s, READS);
    ssize_t size;
    do size = read_by_some_call(s, wanted);
    while (again(size));
    if (size < 0 && errno == EAGAIN) return STEP_WAIT;
    if (size < 0 && errno != ECONNRESET) die("read");
    if (size <= 0) {
        atomic_store(&s->entry->end, size == 0 ? ENDED : RESET);
        return STEP_END;
    }
    check(s, position, (size_t)size);
    atomic_store(&s->entry->verified, position + (uint64_t)size);
    update_limit(s, position + (uint64_t)size);
    return size;
}

/* Says that we write no more. That the peer is gone already is no error. */
void stream_shutdown(struct stream *s) {
    if (shutdown(s->fd, SHUT_WR) != 0 && errno != ENOTCONN) die("shutdown");
}
