// A program that uses sockets and forks before main, and before the constructors of its libraries: the functions in an
// executable's .preinit_array run first of all.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// The connection made before main, or the number of the step that failed (negative).
int before_main_socket = -1;

static int connect_to(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) return -1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -2;
    return connect(fd, (struct sockaddr *)&address, sizeof address) == 0 ? fd : -3;
}

// One byte in each direction, with a wait in between.
static int ping(int fd) {
    char byte = '?';
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    if (write(fd, "!", 1) != 1) return -4;
    if (poll(&entry, 1, 5000) != 1) return -5;
    return read(fd, &byte, 1) == 1 && byte == '!' ? 0 : -6;
}

static int fork_and_wait(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) _exit(3);
    return waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3 ? 0 : -7;
}

// Has an effect only for `posix-cases early ADDRESS PORT`.
static void before_main(int argc, char **argv, char **environment) {
    (void)environment;
    if (argc != 4 || strcmp(argv[1], "early") != 0) return;
    int fd = connect_to(argv[2], atoi(argv[3]));
    int failed = fd < 0 ? fd : ping(fd);
    if (!failed) failed = fork_and_wait();
    if (!failed) failed = ping(fd);
    before_main_socket = failed ? failed : fd;
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(int, char **, char **) = before_main;
