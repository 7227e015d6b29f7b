// Functions that Rust cannot express soundly: one that returns twice, a thread that is cancelled inside a call, a jump out of a
// signal handler.

#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

// A vfork child runs on our memory until it ends, so it only makes system calls.
pid_t only_c_vfork(int fd, int copy_over) {
    pid_t pid = vfork();
    if (pid != 0) return pid;
    if (copy_over) {
        dup2(2, fd);
        syscall(SYS_close, fd);
    } else {
        close(fd);
    }
    _exit(7);
}

// The ways to wait for one socket; the numbers are those of `Wait` on the Rust side.
enum wait { IN_RECV, IN_READ, IN_POLL, IN_EPOLL_WAIT, IN_SELECT, IN_SEND };

static long wait_in(enum wait how, int fd, int set) {
    char byte;
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    struct epoll_event event;
    fd_set read_set;
    switch (how) {
    case IN_RECV: return recv(fd, &byte, 1, 0);
    case IN_READ: return read(fd, &byte, 1);
    case IN_SEND: return send(fd, "x", 1, 0);
    case IN_POLL: return poll(&entry, 1, -1);
    case IN_EPOLL_WAIT: return epoll_wait(set, &event, 1, -1);
    case IN_SELECT:
        FD_ZERO(&read_set);
        FD_SET(fd, &read_set);
        return select(fd + 1, &read_set, 0, 0, 0);
    }
    return -1;
}

struct waiting {
    int how, fd, set;
    _Atomic int tid, cleaned_up;
};

static void clean_up(void *argument) { ((struct waiting *)argument)->cleaned_up++; }

// A thread's start routine: waits until it is cancelled.
void *only_c_waiting_thread(void *argument) {
    struct waiting *waiting = argument;
    pthread_cleanup_push(clean_up, waiting);
    waiting->tid = gettid();
    wait_in(waiting->how, waiting->fd, waiting->set);
    pthread_cleanup_pop(0);
    return 0;
}

static void *call_when_cancelled(void *argument) {
    struct waiting *waiting = argument;
    pthread_cancel(pthread_self());
    wait_in(waiting->how, waiting->fd, waiting->set);
    return 0;
}

// A thread makes a call after it has been cancelled. Returns 1 if that was the end of the thread.
int only_c_cancelled_call(int how, int fd, int set) {
    struct waiting waiting = {.how = how, .fd = fd, .set = set};
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, 0, call_when_cancelled, &waiting) || pthread_join(thread, &result)) return -1;
    return result == PTHREAD_CANCELED;
}

static void *close_when_cancelled(void *argument) {
    pthread_cancel(pthread_self());
    close(*(int *)argument);
    return 0;
}

// A thread closes a descriptor after it has been cancelled. Returns 1 if that was the end of the thread.
int only_c_cancelled_close(int fd) {
    pthread_t thread;
    void *result;
    if (pthread_create(&thread, 0, close_when_cancelled, &fd) || pthread_join(thread, &result)) return -1;
    return result == PTHREAD_CANCELED;
}

static sigjmp_buf before_the_wait;

static void jump(int signal) {
    (void)signal;
    siglongjmp(before_the_wait, 1);
}

// Waits, and leaves the wait after 30 ms by a jump out of SIGALRM's handler, as programs did before there were timeouts.
// Returns 1 if the jump ended the wait.
int only_c_jump_out(int how, int fd, int set) {
    struct sigaction action, before;
    struct itimerval soon = {.it_value = {.tv_usec = 30000}};
    memset(&action, 0, sizeof action);
    action.sa_handler = jump;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before);
    int jumped = sigsetjmp(before_the_wait, 1);
    if (!jumped) {
        setitimer(ITIMER_REAL, &soon, 0);
        wait_in(how, fd, set);
    }
    sigaction(SIGALRM, &before, 0);
    return jumped;
}

// A vfork child that leaves by the system call.
pid_t only_c_vfork_and_exit(void) {
    pid_t pid = vfork();
    if (pid == 0) syscall(SYS_exit_group, 7);
    return pid;
}

static void *exit_here(void *argument) {
    (void)argument;
    syscall(SYS_exit, 0);
    return 0;
}

// A thread that ends by the system call. The kernel wakes its joiner as for any other thread.
int only_c_thread_that_exits(void) {
    pthread_t thread;
    return pthread_create(&thread, 0, exit_here, 0) || pthread_join(thread, 0);
}
