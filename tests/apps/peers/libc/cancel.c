/* Both ends of a connection in one process. Again and again a thread that sleeps in a call on it is cancelled; the connection
 * goes on working, and no byte is lost. Ends with a line of JSON. */
#include "pair.h"

enum { ROUNDS = 10 };

static const char *const calls[] = {"recv", "read", "recvmsg", "poll", "select", "epoll_wait"};
static int set;

/* Nothing comes; and if it did, it would be lost. */
static void *sleeper(void *call)
{
	char bytes[100];
	struct pollfd one = {.fd = ends[1], .events = POLLIN};
	struct epoll_event event;
	fd_set in;
	FD_ZERO(&in);
	FD_SET(ends[1], &in);
	if (is(call, "recv"))
		recv(ends[1], bytes, sizeof(bytes), 0);
	else if (is(call, "read"))
		read(ends[1], bytes, sizeof(bytes)) < 0 ? perror("read") : (void)0;
	else if (is(call, "recvmsg"))
		get("messages", ends[1], bytes, sizeof(bytes));
	else if (is(call, "poll"))
		poll(&one, 1, -1);
	else if (is(call, "select"))
		select(ends[1] + 1, &in, NULL, NULL, NULL);
	else
		epoll_wait(set, &event, 1, -1);
	return NULL;
}

int main(void)
{
	connect_ends();
	warm_up();
	struct epoll_event event = {.events = EPOLLIN};
	set = epoll_create1(EPOLL_CLOEXEC);
	must(set >= 0 && !epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event), "epoll_ctl");
	for (int i = 0; i < ROUNDS * 6; i++) {
		pthread_t thread;
		void *result;
		must(!pthread_create(&thread, NULL, sleeper, (void *)calls[i % 6]), "pthread_create");
		if (i / 6 % 2) /* every other round it has gone to sleep before */
			must(!usleep(5000), "usleep");
		must(!pthread_cancel(thread) && !pthread_join(thread, &result), "pthread_cancel");
		if (result != PTHREAD_CANCELED) {
			fprintf(stderr, "a thread in %s was not cancelled\n", calls[i % 6]);
			return 1;
		}
		move(ends[0], ends[1], (unsigned char)i);
		move(ends[1], ends[0], (unsigned char)i);
	}
	printf("{\"connections\": 1, \"bytes\": %zu}\n", moved);
	return 0;
}
