// Signal handlers of a program: their arguments, their actions according to sigaction(), and the end of a process without
// handlers. Each function returns 0, or the line of the first deviation from the kernel's behaviour. The caller has an upgraded
// connection, `fd`, with bytes to read.

#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // siginterrupt(3) and sigset(3) are old, and used
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) return __LINE__; } while (0)

static sigjmp_buf out;
static siginfo_t seen;
static sigset_t mask_seen;
static uintptr_t stack_seen;
static volatile sig_atomic_t calls, number_seen;
static char *bad;

static void look(int number, siginfo_t *information) {
    char here;
    calls++;
    number_seen = number;
    stack_seen = (uintptr_t)&here;
    if (information) seen = *information;
    sigprocmask(SIG_BLOCK, 0, &mask_seen);
}

// Continues after the faulting instruction, which has two bytes: mov (%rax), %eax.
static void skip(int number, siginfo_t *information, void *context) {
    look(number, information);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
}

static void leave(int number) {
    look(number, 0);
    siglongjmp(out, number);
}

static void count(int number) { look(number, 0); }

static void touch(const void *at) { __asm__ volatile("movl (%%rax), %%eax" : : "a"(at) : "memory"); }

static void handle(int number, void *handler, int flags, const sigset_t *mask) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    if (mask) action.sa_mask = *mask;
    sigaction(number, &action, 0);
}

// A call in which only the pointer is wrong, so that the library installs its own handlers.
static int fails(int fd) { return send(fd, bad, 100, 0) == -1 && errno == EFAULT; }

static int begin(int fd) {
    if (!bad) bad = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    calls = 0;
    signal(SIGSEGV, SIG_DFL); // Rust's runtime has handlers of its own
    signal(SIGBUS, SIG_DFL);
    return fails(fd) && calls == 0;
}

int handlers_see_what_the_kernel_says(int fd) {
    sigset_t mask;
    CHECK(begin(fd));
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    handle(SIGSEGV, skip, SA_SIGINFO, &mask);
    CHECK(fails(fd) && calls == 0);
    touch(bad);
    CHECK(calls == 1 && number_seen == SIGSEGV && seen.si_signo == SIGSEGV);
    CHECK(seen.si_code == SEGV_ACCERR && seen.si_addr == bad);
    CHECK(sigismember(&mask_seen, SIGUSR1) && sigismember(&mask_seen, SIGSEGV) && !sigismember(&mask_seen, SIGUSR2));
    touch((void *)16);
    CHECK(calls == 2 && seen.si_code == SEGV_MAPERR && seen.si_addr == (void *)16);
    touch((void *)0x8000000000000000);
    CHECK(calls == 3 && seen.si_code == SI_KERNEL);
    CHECK(raise(SIGSEGV) == 0 || 1);
    return 0;
}

int handlers_of_sent_signals(int fd) {
    CHECK(begin(fd));
    handle(SIGSEGV, count, 0, 0);
    handle(SIGBUS, count, 0, 0);
    kill(getpid(), SIGSEGV);
    CHECK(calls == 1 && number_seen == SIGSEGV);
    raise(SIGBUS);
    CHECK(calls == 2 && number_seen == SIGBUS);
    CHECK(fails(fd) && calls == 2);
    return 0;
}

int handlers_may_nest_or_not(int fd) {
    CHECK(begin(fd));
    handle(SIGSEGV, skip, SA_SIGINFO | SA_NODEFER, 0);
    touch(bad);
    CHECK(calls == 1 && !sigismember(&mask_seen, SIGSEGV));
    handle(SIGSEGV, skip, SA_SIGINFO, 0);
    touch(bad);
    CHECK(calls == 2 && sigismember(&mask_seen, SIGSEGV));
    CHECK(fails(fd));
    return 0;
}

int handlers_have_their_stack(int fd) {
    static char alternate[65536];
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
    uintptr_t start = (uintptr_t)alternate;
    CHECK(begin(fd));
    CHECK(sigaltstack(&stack, 0) == 0);
    handle(SIGSEGV, skip, SA_SIGINFO, 0);
    touch(bad);
    CHECK(stack_seen - start >= sizeof alternate);
    handle(SIGSEGV, skip, SA_SIGINFO | SA_ONSTACK, 0);
    touch(bad);
    CHECK(calls == 2 && stack_seen - start < sizeof alternate);
    CHECK(fails(fd));
    stack.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&stack, 0) == 0);
    return 0;
}

int handlers_jump_out(int fd) {
    CHECK(begin(fd));
    signal(SIGSEGV, leave);
    for (int i = 1; i <= 3; i++) {
        int jumped = sigsetjmp(out, 1);
        if (!jumped) touch(bad);
        CHECK(jumped == SIGSEGV && calls == i);
        CHECK(fails(fd) && calls == i);
    }
    return 0;
}

int handlers_are_shown_as_they_are_set(int fd) {
    struct sigaction old, new;
    sigset_t mask;
    static const int flags[] = {0, SA_RESTART, SA_RESTART | SA_NODEFER, SA_ONSTACK, SA_SIGINFO, SA_SIGINFO | SA_RESETHAND};
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGUSR1, SIGALRM, SIGCHLD};
    CHECK(begin(fd));
    sigemptyset(&mask);
    sigaddset(&mask, SIGHUP);
    for (unsigned n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        void (*before)(int) = SIG_DFL;
        CHECK(sigaction(numbers[n], 0, &old) == 0 && old.sa_handler == SIG_DFL);
        for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) {
            memset(&new, 0, sizeof new);
            new.sa_handler = i % 2 ? count : leave;
            new.sa_flags = flags[i];
            new.sa_mask = mask;
            CHECK(sigaction(numbers[n], &new, &old) == 0 && old.sa_handler == before);
            CHECK(sigaction(numbers[n], 0, &old) == 0 && old.sa_handler == new.sa_handler);
            CHECK((old.sa_flags & ~0x4000000) == flags[i]);
            CHECK(sigismember(&old.sa_mask, SIGHUP) && !sigismember(&old.sa_mask, SIGINT));
            before = new.sa_handler;
        }
        CHECK(signal(numbers[n], count) == before);
        CHECK(sigaction(numbers[n], 0, &old) == 0 && (old.sa_flags & ~0x4000000) == SA_RESTART);
        CHECK(sigismember(&old.sa_mask, numbers[n]) && !sigismember(&old.sa_mask, SIGHUP));
        CHECK(siginterrupt(numbers[n], 1) == 0);
        CHECK(sigaction(numbers[n], 0, &old) == 0 && (old.sa_flags & ~0x4000000) == 0 && old.sa_handler == count);
        CHECK(signal(numbers[n], leave) == count);
        CHECK(sigaction(numbers[n], 0, &old) == 0 && (old.sa_flags & ~0x4000000) == 0);
        CHECK(siginterrupt(numbers[n], 0) == 0);
        CHECK(sigaction(numbers[n], 0, &old) == 0 && (old.sa_flags & ~0x4000000) == SA_RESTART);
        CHECK(sigset(numbers[n], SIG_HOLD) == leave);
        CHECK(sigset(numbers[n], count) == SIG_HOLD);
        CHECK(sigset(numbers[n], leave) == count);
        CHECK(sigaction(numbers[n], 0, &old) == 0 && (old.sa_flags & ~0x4000000) == 0 && sigisemptyset(&old.sa_mask));
        CHECK(sigignore(numbers[n]) == 0);
        CHECK(signal(numbers[n], leave) == SIG_IGN);
        CHECK(signal(numbers[n], SIG_IGN) == leave);
        CHECK(signal(numbers[n], SIG_DFL) == SIG_IGN);
        CHECK(signal(numbers[n], SIG_DFL) == SIG_DFL);
    }
    CHECK(fails(fd));
    CHECK(signal(SIGSEGV, SIG_ERR) == SIG_ERR && errno == EINVAL);
    CHECK(sigaction(SIGKILL, &new, 0) == -1 && errno == EINVAL);
    CHECK(sigaction(0, 0, &old) == -1 && errno == EINVAL);
    CHECK(sigaction(65, 0, &old) == -1 && errno == EINVAL);
    return 0;
}

// struct kernel_sigaction
struct raw { void *handler; unsigned long flags; void *restorer; unsigned long mask; };

int handlers_by_system_call(int fd) {
    struct raw old, new = {SIG_IGN, 0, 0, 0};
    CHECK(begin(fd));
    handle(SIGSEGV, count, SA_RESTART, 0);
    CHECK(syscall(SYS_rt_sigaction, SIGSEGV, 0, &old, 8) == 0);
    CHECK(old.handler == count && old.flags == (SA_RESTART | 0x4000000) && old.restorer && old.mask == 0);
    CHECK(syscall(SYS_rt_sigaction, SIGSEGV, &new, &old, 8) == 0 && old.handler == count);
    CHECK(syscall(SYS_rt_sigaction, SIGSEGV, 0, &old, 8) == 0);
    CHECK(old.handler == SIG_IGN && old.flags == 0 && old.restorer == 0 && old.mask == 0);
    CHECK(fails(fd));
    CHECK(syscall(SYS_rt_sigaction, SIGSEGV, 0, &old, 16) == -1 && errno == EINVAL);
    CHECK(syscall(SYS_rt_sigaction, SIGSEGV, (void *)8, 0, 8) == -1 && errno == EFAULT);
    CHECK(syscall(SYS_rt_sigaction, SIGSEGV, 0, (void *)8, 8) == -1 && errno == EFAULT);
    CHECK(signal(SIGSEGV, SIG_DFL) == SIG_IGN);
    return 0;
}

// Past libc: the program gets what it has asked for, even a fault in one of the library's copies.
int handlers_installed_past_libc(int fd) {
    struct raw old, new;
    long result;
    CHECK(begin(fd));
    handle(SIGSEGV, count, 0, 0);
    CHECK(syscall(SYS_rt_sigaction, SIGSEGV, 0, &new, 8) == 0);
    new.handler = leave;
    register long size __asm__("r10") = 8;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_rt_sigaction), "D"(SIGSEGV), "S"(&new), "d"(&old), "r"(size)
                     : "rcx", "r11", "memory");
    CHECK(result == 0);
    struct sigaction shown;
    CHECK(sigaction(SIGSEGV, 0, &shown) == 0 && shown.sa_handler == leave);
    int jumped = sigsetjmp(out, 1);
    if (!jumped) touch(bad);
    CHECK(jumped == SIGSEGV && calls == 1);
    jumped = sigsetjmp(out, 1);
    if (!jumped) CHECK(fails(fd)); // the kernel's answer, or the program's own handler
    CHECK(send(fd, "", 0, 0) == 0);
    CHECK(sigaction(SIGSEGV, &(struct sigaction){.sa_handler = count}, &shown) == 0 && shown.sa_handler == leave);
    CHECK(fails(fd));
    return 0;
}

// Runs `what` in a child. Returns the child's status, as of waitpid(2): how a fault or signal ends it.
static int ended_by(int fd, void (*what)(void)) {
    pid_t child = fork();
    if (child == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        if (!fails(fd)) _exit(99); // takes the connection to the kernel, and installs what is to be installed
        alarm(10);
        what();
        _exit(0);
    }
    int status = -1;
    while (waitpid(child, &status, 0) == -1 && errno == EINTR) {}
    return status;
}

static void fault(void) { touch(bad); }
static void fault_at_nothing(void) { touch(0); }
static void fault_beyond(void) { touch((void *)0x8000000000000000); }
static void fault_twice(void) { touch(bad); touch(bad); }
static void kill_segv(void) { kill(getpid(), SIGSEGV); }
static void kill_bus(void) { kill(getpid(), SIGBUS); }
static void raise_twice(void) { raise(SIGUSR1); raise(SIGUSR1); }
static void bus_error(void) {
    char name[] = "/tmp/sidestep-posix-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    char *map = mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0);
    touch(map);
}

#define KILLED(status, number) (WIFSIGNALED(status) && WTERMSIG(status) == (number))

int handlers_default_ends_the_process(int fd) {
    CHECK(begin(fd));
    CHECK(KILLED(ended_by(fd, fault), SIGSEGV));
    CHECK(KILLED(ended_by(fd, fault_at_nothing), SIGSEGV));
    CHECK(KILLED(ended_by(fd, fault_beyond), SIGSEGV));
    CHECK(KILLED(ended_by(fd, bus_error), SIGBUS));
    CHECK(KILLED(ended_by(fd, kill_segv), SIGSEGV));
    CHECK(KILLED(ended_by(fd, kill_bus), SIGBUS));
    signal(SIGSEGV, SIG_IGN);
    signal(SIGBUS, SIG_IGN);
    CHECK(ended_by(fd, kill_segv) == 0);
    CHECK(ended_by(fd, kill_bus) == 0);
    CHECK(KILLED(ended_by(fd, fault), SIGSEGV));
    CHECK(KILLED(ended_by(fd, bus_error), SIGBUS));
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    return 0;
}

static struct sigaction after_reset;
static void look_after_reset(int number, siginfo_t *information, void *context) {
    sigaction(number, 0, &after_reset);
    skip(number, information, context);
}
static void fault_and_look(void) {
    touch(bad);
    if (after_reset.sa_handler != SIG_DFL || (after_reset.sa_flags & ~0x4000000) != (int)(SA_SIGINFO | SA_RESETHAND)) _exit(1);
}

int handlers_for_one_signal(int fd) {
    CHECK(begin(fd));
    handle(SIGSEGV, skip, SA_SIGINFO | SA_RESETHAND, 0);
    CHECK(ended_by(fd, fault) == 0);
    CHECK(KILLED(ended_by(fd, fault_twice), SIGSEGV));
    handle(SIGSEGV, look_after_reset, SA_SIGINFO | SA_RESETHAND, 0);
    CHECK(ended_by(fd, fault_and_look) == 0);
    signal(SIGSEGV, SIG_DFL);
    handle(SIGUSR1, count, SA_RESETHAND, 0);
    CHECK(KILLED(ended_by(fd, raise_twice), SIGUSR1));
    signal(SIGUSR1, SIG_DFL);
    return 0;
}

static void exec_says_ignored(void) {
    execl("/bin/sh", "sh", "-c", "while read name mask; do case $name in SigIgn:) echo $mask;; esac; done </proc/$$/status"
          " | grep -q [4-7c-f][4-7c-f].$", (char *)0);
    _exit(98);
}

int handlers_ignored_stay_ignored_by_exec(int fd) {
    CHECK(begin(fd));
    signal(SIGSEGV, SIG_IGN);
    signal(SIGBUS, SIG_IGN);
    CHECK(fails(fd));
    // Bits 10 and 6 of the mask (0x440), besides those with which the test was started.
    CHECK(ended_by(fd, exec_says_ignored) == 0);
    CHECK(fails(fd));
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    return 0;
}

static void exec_says_blocked(void) {
    execl("/bin/sh", "sh", "-c", "while read name mask; do case $name in SigBlk:) echo $mask;; esac; done </proc/$$/status"
          " | grep -q '[4-7c-f][4-7c-f].$'", (char *)0);
}

// Threads that block all signals see them blocked, although the library unblocks some for its copies: in their mask, in a
// program that they execute, and at a fault of their own, which reaches no handler.
int handlers_blocked_signals_are_shown(int fd) {
    sigset_t all, before, now;
    CHECK(begin(fd));
    handle(SIGSEGV, skip, SA_SIGINFO, 0);
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
    for (int i = 0; i < 3; i++) {
        CHECK(fails(fd));
        CHECK(pthread_sigmask(SIG_BLOCK, 0, &now) == 0 && sigismember(&now, SIGSEGV) && sigismember(&now, SIGBUS));
    }
    CHECK(fails(fd) && send(fd, "", 0, 0) == 0);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, 0, &now, 8) == 0 && sigismember(&now, SIGSEGV));
    CHECK(fails(fd));
    CHECK(KILLED(ended_by(fd, fault), SIGSEGV));
    CHECK(fails(fd));
    CHECK(ended_by(fd, exec_says_blocked) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, 0) == 0);
    CHECK(fails(fd));
    CHECK(ended_by(fd, fault) == 0);
    signal(SIGSEGV, SIG_DFL);
    return 0;
}

// Threads that block all signals still get EFAULT, and signals sent meanwhile stay pending.
int handlers_blocked_signals(int fd) {
    sigset_t all, before, waiting;
    CHECK(begin(fd));
    handle(SIGSEGV, count, 0, 0);
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
    CHECK(fails(fd) && calls == 0);
    raise(SIGSEGV);
    CHECK(fails(fd) && calls == 0);
    CHECK(sigpending(&waiting) == 0 && sigismember(&waiting, SIGSEGV));
    CHECK(send(fd, "", 0, 0) == 0 && calls == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, 0) == 0);
    CHECK(calls == 1);
    CHECK(sigpending(&waiting) == 0 && !sigismember(&waiting, SIGSEGV));
    CHECK(fails(fd));
    signal(SIGSEGV, SIG_DFL);
    return 0;
}
