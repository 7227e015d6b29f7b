/* A library whose constructor makes calls of all kinds, before the constructor of the library under test has run. With
 * -DALSO_DLSYM, only such that a system call can stand in for. */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	_exit(1);
}

static int made(int *listener, struct sockaddr_in *at)
{
	socklen_t size = sizeof(*at);
	*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	*listener = socket(AF_INET, SOCK_STREAM, 0);
	must(!bind(*listener, (struct sockaddr *)at, size) && !listen(*listener, 1), "listen");
	must(!getsockname(*listener, (struct sockaddr *)at, &size), "getsockname");
	return socket(AF_INET, SOCK_STREAM, 0);
}

static volatile int heard;

static void hear(int signal)
{
	heard += signal;
}

static void signals(void)
{
	struct sigaction action = {.sa_handler = hear}, old;
	sigemptyset(&action.sa_mask);
	sigaddset(&action.sa_mask, SIGUSR2);
	must(!sigaction(SIGUSR1, &action, NULL) && !raise(SIGUSR1) && heard == SIGUSR1, "sigaction");
	must(!siginterrupt(SIGUSR1, 0) && !sigaction(SIGUSR1, NULL, &old), "siginterrupt");
	must(old.sa_handler == hear && old.sa_flags & SA_RESTART && sigismember(&old.sa_mask, SIGUSR2), "the old action");
	must(signal(SIGUSR1, SIG_DFL) == hear && signal(SIGUSR1, SIG_DFL) == SIG_DFL, "signal");
	must(signal(SIGKILL, SIG_IGN) == SIG_ERR, "signal of one that cannot be caught");
}

__attribute__((constructor)) static void early(void)
{
	signals();
	struct sockaddr_in at;
	int listener, client = made(&listener, &at);
	must(!connect(client, (struct sockaddr *)&at, sizeof(at)), "connect");
	int server = accept4(listener, NULL, NULL, 0);
	char text[16];
#ifdef ALSO_DLSYM
	must(server >= 0 && send(client, "early 7", 7, 0) == 7, "send");
#else
	must(server >= 0 && dprintf(client, "early %d", 7) == 7, "dprintf");
#endif
	struct pollfd one = {.fd = server, .events = POLLIN};
	must(poll(&one, 1, 5000) == 1, "poll");
	struct epoll_event event = {.events = EPOLLIN};
	int set = epoll_create1(0);
	must(!epoll_ctl(set, EPOLL_CTL_ADD, server, &event) && epoll_wait(set, &event, 1, 5000) == 1, "epoll");
	must(read(server, text, sizeof(text)) == 7 && !memcmp(text, "early 7", 7), "read");
	must(dup2(server, client) == client, "dup2");
	pid_t child = fork();
	must(child >= 0, "fork");
	if (!child)
		execle("/bin/true", "true", (char *)NULL, (char *[]){NULL}); /* without this library, which would do it again */
	int status;
	must(waitpid(child, &status, 0) == child && !status, "the child");
	must(!close(client) && !close(server) && !close(listener) && !close(set), "close");
	puts("early: done");
	fflush(stdout);
}
