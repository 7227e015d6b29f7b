/* Both ends of a connection in one process. */
#include "echo.h"
#include <time.h>

/* So long bytes go to and fro, in which time the connection has become a ring. */
enum { WARM_MS = 150, SIZE = 1000 };

static int ends[2];
static size_t moved;

static void connect_ends(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	must(!bind(listener, (struct sockaddr *)&at, size) && !listen(listener, 1), "listen");
	must(!getsockname(listener, (struct sockaddr *)&at, &size), "getsockname");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	must(!connect(ends[0], (struct sockaddr *)&at, size), "connect");
	ends[1] = accept(listener, NULL, NULL);
	must(ends[1] >= 0 && !close(listener), "accept");
}

static void send_to(int from, unsigned char number)
{
	unsigned char out[SIZE];
	memset(out, number, sizeof(out));
	must(put("write", from, (char *)out, sizeof(out)) == sizeof(out), "write");
}

static void receive_at(int to, unsigned char number)
{
	unsigned char in[SIZE];
	for (size_t at = 0; at < sizeof(in);) {
		ssize_t n = get("read", to, (char *)in + at, sizeof(in) - at);
		must(n > 0, "read");
		at += (size_t)n;
	}
	for (size_t at = 0; at < sizeof(in); at++)
		must(in[at] == number, "bytes differ");
	moved += sizeof(in);
}

static void move(int from, int to, unsigned char number)
{
	send_to(from, number);
	receive_at(to, number);
}

static long now_ms(void)
{
	struct timespec now;
	must(!clock_gettime(CLOCK_MONOTONIC, &now), "clock_gettime");
	return now.tv_sec * 1000L + now.tv_nsec / 1000000L;
}

static void warm_up(void)
{
	for (long end = now_ms() + WARM_MS; now_ms() < end;) {
		move(ends[0], ends[1], 1);
		move(ends[1], ends[0], 2);
	}
}
