/* Linked into server.c or client.c: an executable that has functions of libc's names, and calls the next ones. As Erlang's
 * beam.smp, some of them ask for another of libc's names for the same function. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* How deep these functions are inside of each other: a library that calls back into them never gets out. */
static __thread int depth;

#define OVERRIDE(result, name, next_name, parameters, arguments)                                        \
	result name parameters                                                                              \
	{                                                                                                   \
		static result(*next) parameters;                                                                \
		if (!next)                                                                                      \
			*(void **)&next = dlsym(RTLD_NEXT, next_name);                                              \
		if (!next) /* musl has one name for each function */                                            \
			*(void **)&next = dlsym(RTLD_NEXT, #name);                                                  \
		if (!next || depth++ > 4)                                                                       \
			abort();                                                                                    \
		result value = next arguments;                                                                  \
		depth--;                                                                                        \
		return value;                                                                                   \
	}

OVERRIDE(ssize_t, read, "__read", (int fd, void *to, size_t n), (fd, to, n))
OVERRIDE(ssize_t, write, "__write", (int fd, const void *from, size_t n), (fd, from, n))
OVERRIDE(ssize_t, send, "__send", (int fd, const void *from, size_t n, int flags), (fd, from, n, flags))
OVERRIDE(ssize_t, recv, "recv", (int fd, void *to, size_t n, int flags), (fd, to, n, flags))
OVERRIDE(ssize_t, readv, "readv", (int fd, const struct iovec *v, int n), (fd, v, n))
OVERRIDE(ssize_t, writev, "writev", (int fd, const struct iovec *v, int n), (fd, v, n))
OVERRIDE(int, close, "__close", (int fd), (fd))
OVERRIDE(int, connect, "__connect", (int fd, const struct sockaddr *to, socklen_t n), (fd, to, n))
OVERRIDE(int, poll, "__poll", (struct pollfd *list, nfds_t n, int ms), (list, n, ms))
OVERRIDE(int, select, "__select", (int n, fd_set *r, fd_set *w, fd_set *e, struct timeval *t), (n, r, w, e, t))
OVERRIDE(int, epoll_wait, "epoll_wait", (int set, struct epoll_event *to, int n, int ms), (set, to, n, ms))
OVERRIDE(int, sigaction, "__sigaction", (int s, const struct sigaction *a, struct sigaction *o), (s, a, o))
OVERRIDE(pid_t, fork, "fork", (void), ())
