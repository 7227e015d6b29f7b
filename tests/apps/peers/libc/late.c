/* A library that brings functions of libc along which the program was started without: asynchronous I/O, which older glibc has in
 * a library of its own. Reads from the descriptor; how many bytes. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <string.h>

int read_late(int fd, char *to, int n)
{
	struct aiocb request;
	const struct aiocb *list[] = {&request};
	memset(&request, 0, sizeof(request));
	request.aio_fildes = fd;
	request.aio_buf = to;
	request.aio_nbytes = (size_t)n;
	if (aio_read(&request))
		return -1;
	while (aio_error(&request) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	return (int)aio_return(&request);
}
