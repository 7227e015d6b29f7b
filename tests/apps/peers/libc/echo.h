/* What the echo server and the echo client of this directory share: ways to move bytes. They are compiled for every libc
 * that the library is to work in. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static int is(const char *word, const char *other)
{
	return !strcmp(word, other);
}

/* A message header whose unused bytes are what a stack may hold: musl's fields are narrower than the kernel's. */
static struct msghdr message(struct iovec *vector, int n)
{
	struct msghdr m;
	memset(&m, 0xa5, sizeof(m));
	m.msg_name = NULL;
	m.msg_namelen = 0;
	m.msg_iov = vector;
	m.msg_iovlen = n;
	m.msg_control = NULL;
	m.msg_controllen = 0;
	m.msg_flags = 0;
	return m;
}

static ssize_t get(const char *how, int fd, char *to, size_t n)
{
	struct iovec two[2] = {{to, n / 3}, {to + n / 3, n - n / 3}};
	struct msghdr m = message(two, 2);
	if (is(how, "vectors"))
		return readv(fd, two, 2);
	if (is(how, "messages"))
		return recvmsg(fd, &m, 0);
	if (is(how, "recv"))
		return recv(fd, to, n, 0);
	return read(fd, to, n);
}

static ssize_t put(const char *how, int fd, const char *from, size_t n)
{
	struct iovec two[2] = {{(char *)from, n / 3}, {(char *)from + n / 3, n - n / 3}};
	struct msghdr m = message(two, 2);
	if (is(how, "vectors"))
		return writev(fd, two, 2);
	if (is(how, "messages"))
		return sendmsg(fd, &m, MSG_NOSIGNAL);
	if (is(how, "recv"))
		return send(fd, from, n, MSG_NOSIGNAL);
	return write(fd, from, n);
}
