/* Echo server: `server HOW MOVE`. Prints `listening on PORT` and ends well at SIGTERM; a client's half-close is answered
 * when all is echoed.
 *
 * HOW is how it serves several connections: threads, fork, exec, or how one thread waits for them: poll, select, epoll. MOVE
 * is how it reads and writes: read, recv, vectors, messages, or dprintf (in threads and children). */
#include "echo.h"

enum { ROOM = 40000, MOST = 64 };

static const char *move;

/* Ends the program well at SIGTERM, without a handler that would interrupt what the others wait for. */
static void *wait_for_the_end(void *signals)
{
	int signal;
	must(!sigwait(signals, &signal), "sigwait");
	_exit(0);
}

static void end_at_sigterm(void)
{
	static sigset_t signals;
	pthread_t thread;
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	must(!pthread_sigmask(SIG_BLOCK, &signals, NULL), "pthread_sigmask");
	must(!pthread_create(&thread, NULL, wait_for_the_end, &signals), "pthread_create");
}

static ssize_t answer(int fd, const char *from, size_t n)
{
	if (is(move, "dprintf")) /* no byte of the clients' is a NUL */
		return dprintf(fd, "%.*s%s", (int)n, from, "");
	return put(move, fd, from, n);
}

static void *echo(void *number)
{
	int fd = (int)(long)number;
	char buffer[ROOM];
	for (ssize_t n; (n = get(move, fd, buffer, sizeof(buffer))) != 0;) {
		must(n > 0, "read");
		for (ssize_t at = 0, done; at < n; at += done)
			must((done = answer(fd, buffer + at, n - at)) > 0, "write");
	}
	must(!shutdown(fd, SHUT_WR), "shutdown");
	must(!close(fd), "close");
	return NULL;
}

static int accepted(int listener)
{
	int fd = accept(listener, NULL, NULL);
	must(fd >= 0, "accept");
	return fd;
}

static void serve_threads(int listener)
{
	for (;;) {
		pthread_t thread;
		void *number = (void *)(long)accepted(listener);
		must(!pthread_create(&thread, NULL, echo, number), "pthread_create");
		pthread_detach(thread);
	}
}

/* The child echoes by itself, or in the program that it becomes. */
static void serve_children(int listener, const char *program)
{
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accepted(listener);
		pid_t child = fork();
		must(child >= 0, "fork");
		if (child == 0 && program) {
			char number[12], first[100];
			must(get(move, fd, first, 1) == 1 && answer(fd, first, 1) == 1, "the first byte");
			snprintf(number, sizeof(number), "%d", fd);
			execl(program, program, "inherited", move, number, (char *)NULL);
			must(0, "execl");
		}
		if (child == 0) {
			echo((void *)(long)fd);
			_exit(0);
		}
		close(fd);
	}
}

/* A connection of the thread that waits for all of them. */
struct one {
	int fd;
	ssize_t from, to;
	char bytes[ROOM];
};

static struct one *all[MOST];

/* Moves what goes without waiting. False: it has ended. */
static int step(struct one *c)
{
	if (c->from == c->to) {
		c->from = 0;
		c->to = get(move, c->fd, c->bytes, sizeof(c->bytes));
		must(c->to >= 0 || errno == EAGAIN, "read");
		if (c->to == 0) {
			must(!shutdown(c->fd, SHUT_WR) && !close(c->fd), "close");
			return 0;
		}
		c->to = c->to < 0 ? 0 : c->to;
	}
	ssize_t n = c->to > c->from ? put(move, c->fd, c->bytes + c->from, c->to - c->from) : 0;
	must(n >= 0 || errno == EAGAIN, "write");
	c->from += n > 0 ? n : 0;
	return 1;
}

static int wanted(const struct one *c)
{
	return c->from == c->to ? POLLIN : POLLOUT;
}

static struct one **place_of(int fd)
{
	for (int i = 0; i < MOST; i++)
		if (fd < 0 ? !all[i] : all[i] && all[i]->fd == fd)
			return &all[i];
	return NULL;
}

static void take(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct one **place = place_of(-1);
	must(fd >= 0 && place, "accept4");
	*place = calloc(1, sizeof(struct one));
	(*place)->fd = fd;
}

static void go_on(int fd)
{
	struct one **place = place_of(fd);
	if (!step(*place)) {
		free(*place);
		*place = NULL;
	}
}

static void serve_poll(int listener)
{
	for (;;) {
		struct pollfd list[MOST + 1] = {{.fd = listener, .events = POLLIN}};
		int n = 1;
		for (int i = 0; i < MOST; i++)
			if (all[i])
				list[n++] = (struct pollfd){.fd = all[i]->fd, .events = wanted(all[i])};
		must(poll(list, n, -1) > 0, "poll");
		for (int i = 1; i < n; i++)
			if (list[i].revents)
				go_on(list[i].fd);
		if (list[0].revents)
			take(listener);
	}
}

static void serve_select(int listener)
{
	for (;;) {
		fd_set in, out;
		FD_ZERO(&in);
		FD_ZERO(&out);
		FD_SET(listener, &in);
		for (int i = 0; i < MOST; i++)
			if (all[i])
				FD_SET(all[i]->fd, wanted(all[i]) == POLLIN ? &in : &out);
		must(select(FD_SETSIZE, &in, &out, NULL, NULL) > 0, "select");
		for (int i = 0; i < MOST; i++)
			if (all[i] && (FD_ISSET(all[i]->fd, &in) || FD_ISSET(all[i]->fd, &out)))
				go_on(all[i]->fd);
		if (FD_ISSET(listener, &in))
			take(listener);
	}
}

static void serve_epoll(int listener)
{
	int set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
	must(set >= 0 && !epoll_ctl(set, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
	for (;;) {
		struct epoll_event got[8];
		int n = epoll_wait(set, got, 8, -1);
		must(n > 0, "epoll_wait");
		for (int i = 0; i < n; i++) {
			int fd = got[i].data.fd;
			if (fd == listener)
				take(listener);
			else
				go_on(fd);
			for (int k = 0; k < MOST; k++) {
				if (!all[k] || (fd != listener && all[k]->fd != fd))
					continue;
				event = (struct epoll_event){.events = wanted(all[k]), .data.fd = all[k]->fd};
				if (epoll_ctl(set, EPOLL_CTL_MOD, all[k]->fd, &event))
					must(!epoll_ctl(set, EPOLL_CTL_ADD, all[k]->fd, &event), "epoll_ctl");
			}
		}
	}
}

int main(int argc, char **argv)
{
	must(argc > 2, "usage: server HOW MOVE");
	const char *how = argv[1];
	move = argv[2];
	if (is(how, "inherited"))
		return echo((void *)atol(argv[3])) != NULL;
	end_at_sigterm();
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	must(!bind(listener, (struct sockaddr *)&at, size) && !listen(listener, 64), "listen");
	must(!getsockname(listener, (struct sockaddr *)&at, &size), "getsockname");
	printf("listening on %d\n", ntohs(at.sin_port));
	fflush(stdout);
	if (is(how, "threads"))
		serve_threads(listener);
	else if (is(how, "fork"))
		serve_children(listener, NULL);
	else if (is(how, "exec"))
		serve_children(listener, argv[0]);
	else if (is(how, "poll"))
		serve_poll(listener);
	else if (is(how, "select"))
		serve_select(listener);
	else
		serve_epoll(listener);
	return 0;
}
