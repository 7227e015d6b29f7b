/* Both ends of a connection in one process, which passes one of them, with bytes that nobody has read, to another process.
 * That one answers all of them. Ends with a line of JSON. */
#include "pair.h"

enum { UNREAD = 50000, ALL = 2 * UNREAD };

/* Room for one descriptor; what is not set is what a stack may hold. */
union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static struct msghdr carrier(struct iovec *vector, union control *control)
{
	struct msghdr m = message(vector, 1);
	memset(control, 0xa5, sizeof(*control));
	m.msg_control = control;
	m.msg_controllen = sizeof(control->bytes);
	return m;
}

static void pass(int to, int fd)
{
	union control control;
	struct iovec one = {"x", 1};
	struct msghdr m = carrier(&one, &control);
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	must(sendmsg(to, &m, 0) == 1, "sendmsg");
}

static int taken(int from)
{
	union control control;
	char byte;
	int fd;
	struct iovec one = {&byte, 1};
	struct msghdr m = carrier(&one, &control);
	must(recvmsg(from, &m, 0) == 1 && m.msg_controllen >= CMSG_LEN(sizeof(int)), "recvmsg");
	memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	return fd;
}

static char number(int at)
{
	return (char)(at * 31 + at / 251);
}

static void send_bytes(int from, int to)
{
	char bytes[UNREAD];
	for (int at = from; at < to; at++)
		bytes[at - from] = number(at);
	for (int at = 0, n = to - from, done; at < n; at += done)
		must((done = (int)write(ends[0], bytes + at, (size_t)(n - at))) > 0, "write");
}

static void answer_all(int fd)
{
	char bytes[1000];
	for (ssize_t n; (n = read(fd, bytes, sizeof(bytes))) != 0;) {
		must(n > 0, "read");
		for (ssize_t at = 0, done; at < n; at += done)
			must((done = write(fd, bytes + at, (size_t)(n - at))) > 0, "write");
	}
	_exit(0);
}

int main(void)
{
	int channel[2];
	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, channel), "socketpair");
	pid_t child = fork();
	must(child >= 0, "fork");
	if (!child) {
		close(channel[0]);
		answer_all(taken(channel[1]));
	}
	connect_ends();
	warm_up();
	send_bytes(0, UNREAD);
	pass(channel[0], ends[1]);
	must(!close(ends[1]), "close");
	send_bytes(UNREAD, ALL);
	must(!shutdown(ends[0], SHUT_WR), "shutdown");
	char bytes[1000];
	int at = 0;
	for (ssize_t n; (n = read(ends[0], bytes, sizeof(bytes))) > 0;)
		for (ssize_t i = 0; i < n; i++, at++)
			must(bytes[i] == number(at), "bytes differ");
	must(at == ALL, "the stream ends early");
	int status;
	must(waitpid(child, &status, 0) == child && !status, "the other process");
	printf("{\"connections\": 1, \"bytes\": %zu}\n", moved + ALL);
	return 0;
}
