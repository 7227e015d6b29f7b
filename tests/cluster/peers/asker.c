/* asker PORT TIMES: asks a Redis server on this host so many times, one request after the other, and compares each answer. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER "+PONG\r\n"
#define REQUEST "PING\r\n"

static void fail(const char *what) {
    fprintf(stderr, "asker: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int dial(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("connect");
    return fd;
}

static void ask(int fd) {
    char answer[sizeof ANSWER - 1];
    size_t have = 0;
    if (write(fd, REQUEST, strlen(REQUEST)) != (ssize_t)strlen(REQUEST))
        fail("write");
    while (have < sizeof answer) {
        ssize_t n = read(fd, answer + have, sizeof answer - have);
        if (n <= 0)
            fail("read");
        have += n;
    }
    if (memcmp(answer, ANSWER, sizeof answer) != 0) {
        fprintf(stderr, "asker: another answer\n");
        exit(1);
    }
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    int fd = dial(atoi(argv[1]));
    for (int left = atoi(argv[2]); left > 0; left--)
        ask(fd);
    close(fd);
    printf("asked %s times\n", argv[2]);
    return 0;
}
