/* Echo client: `client HOW MOVE PORT CONNECTIONS`. On each connection small round trips, then a stream that is sent and
 * received at once, half-close, end. Every byte that comes back is compared; ends with a line of JSON.
 *
 * HOW is how it waits while it streams: threads, poll, select, epoll. MOVE is how it reads and writes, as in server.c. */
#include "echo.h"
#include <time.h>

/* Round trips go on for so long, in which time a connection has become a ring. */
enum { ROUND_TRIPS = 100, ROUND_TRIPS_MS = 100, STREAM = 1000000, ROOM = 40000 };

static const char *how, *move;

/* Waits until the descriptor is ready for reading (POLLIN) or writing (POLLOUT), or both; which of them it is. */
static int wait_for(const char *how, int fd, int events)
{
	if (is(how, "select")) {
		fd_set in, out;
		FD_ZERO(&in);
		FD_ZERO(&out);
		if (events & POLLIN)
			FD_SET(fd, &in);
		if (events & POLLOUT)
			FD_SET(fd, &out);
		must(select(fd + 1, &in, &out, NULL, NULL) > 0, "select");
		return (FD_ISSET(fd, &in) ? POLLIN : 0) | (FD_ISSET(fd, &out) ? POLLOUT : 0);
	}
	if (is(how, "epoll")) {
		struct epoll_event event = {.events = events}; /* EPOLLIN is POLLIN, and so on */
		int set = epoll_create1(EPOLL_CLOEXEC);
		must(set >= 0 && !epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
		must(epoll_wait(set, &event, 1, 60000) == 1, "epoll_wait");
		close(set);
		return event.events;
	}
	struct pollfd one = {.fd = fd, .events = events};
	must(poll(&one, 1, -1) == 1, "poll");
	return one.revents;
}

/* The byte at a position of a connection; never NUL. */
static char pattern(int connection, size_t at)
{
	unsigned x = (unsigned)(at * 2654435761u) ^ (unsigned)connection * 40503u;
	return (char)(1 + (x ^ x >> 15 ^ at >> 9) % 255);
}

static void fill(int connection, size_t at, char *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = pattern(connection, at + i);
}

static void check(int connection, size_t at, const char *got, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (got[i] != pattern(connection, at + i)) {
			fprintf(stderr, "connection %d: byte %zu came back as %d\n", connection, at + i, got[i]);
			exit(1);
		}
}

static size_t round_trip(int fd, int connection, size_t at)
{
	char out[3000], in[3000];
	size_t n = 1 + (at * 7919 + (size_t)connection) % sizeof(out), done = 0;
	fill(connection, at, out, n);
	for (ssize_t k; done < n; done += (size_t)k)
		must((k = put(move, fd, out + done, n - done)) > 0, "write");
	done = 0;
	for (ssize_t k; done < n; done += (size_t)k)
		must((k = get(move, fd, in + done, n - done)) > 0, "read");
	check(connection, at, in, n);
	return at + n;
}

struct stream {
	int fd, connection;
	size_t start, sent, received;
};

static long now_ms(void)
{
	struct timespec now;
	must(!clock_gettime(CLOCK_MONOTONIC, &now), "clock_gettime");
	return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

static void make_round_trips(struct stream *s)
{
	long end = now_ms() + ROUND_TRIPS_MS;
	for (int i = 0; i < ROUND_TRIPS || now_ms() < end; i++)
		s->start = round_trip(s->fd, s->connection, s->start);
}

/* Sends as much as goes; with a blocking socket, all of it. */
static void send_some(struct stream *s)
{
	static const size_t sizes[] = {1, 100, 1448, 8192, ROOM};
	char buffer[ROOM];
	while (s->sent < STREAM) {
		size_t n = sizes[s->sent % 5];
		n = n < STREAM - s->sent ? n : STREAM - s->sent;
		fill(s->connection, s->start + s->sent, buffer, n);
		ssize_t k = put(move, s->fd, buffer, n);
		if (k < 0 && errno == EAGAIN)
			return;
		must(k > 0, "write");
		s->sent += (size_t)k;
	}
	must(!shutdown(s->fd, SHUT_WR), "shutdown");
}

static void *send_all(void *stream)
{
	send_some(stream);
	return NULL;
}

/* Receives once. False: the end. */
static int receive_some(struct stream *s)
{
	char buffer[ROOM];
	ssize_t k = get(move, s->fd, buffer, sizeof(buffer));
	if (k < 0 && errno == EAGAIN)
		return 1;
	must(k >= 0, "read");
	check(s->connection, s->start + s->received, buffer, (size_t)k);
	s->received += (size_t)k;
	return k > 0;
}

static void stream(struct stream *s)
{
	if (is(how, "threads")) {
		pthread_t sender;
		must(!pthread_create(&sender, NULL, send_all, s), "pthread_create");
		while (receive_some(s))
			;
		must(!pthread_join(sender, NULL), "pthread_join");
	} else {
		must(!fcntl(s->fd, F_SETFL, O_NONBLOCK), "fcntl");
		for (int open = 1; open;) {
			int ready = wait_for(how, s->fd, s->sent < STREAM ? POLLIN | POLLOUT : POLLIN);
			if (ready & POLLOUT && s->sent < STREAM)
				send_some(s);
			if (ready & (POLLIN | POLLHUP | POLLERR))
				open = receive_some(s);
		}
	}
	must(s->received == STREAM, "the stream ends early");
}

int main(int argc, char **argv)
{
	must(argc == 5, "usage: client HOW MOVE PORT CONNECTIONS");
	how = argv[1];
	move = argv[2];
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3])),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int connections = atoi(argv[4]);
	size_t bytes = 0;
	for (int c = 0; c < connections; c++) {
		struct stream s = {.fd = socket(AF_INET, SOCK_STREAM, 0), .connection = c};
		must(!connect(s.fd, (struct sockaddr *)&to, sizeof(to)), "connect");
		make_round_trips(&s);
		stream(&s);
		must(!close(s.fd), "close");
		bytes += s.start + STREAM;
	}
	printf("{\"connections\": %d, \"bytes\": %zu}\n", connections, bytes);
	return 0;
}
