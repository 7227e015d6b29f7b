/* Makes chosen system calls of an unchanged program fail.
 *
 *   inject CONTROL-FILE NUMBER ERRNO FIRST COUNT FDS SLOW OBJECT PROGRAM [ARGUMENT...]
 *
 * A seccomp filter stops the program, and all that it starts, at system call NUMBER (-1: at every call, to count them).
 * If the call was made by OBJECT (the name of a shared library; `*`: by anybody), and it is the FIRST-th such call since
 * the control file says `armed` or one of the COUNT - 1 after it, it is not made and returns ERRNO. Whose call it is
 * tells the instruction pointer. The two calls that OBJECT makes through libc, because they are cancellation points, are
 * told by the return address on the stack. FDS `own` or `program` takes only calls whose first argument is a descriptor
 * of the library, or none of them. System call SLOW (-1: none) of OBJECT takes 30 ms longer, so that threads collide.
 *
 * The exit code is the program's. Nothing is left stopped: the program dies with its tracer.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUMBERS = 512, THREADS = 4096, STACK_BYTES = 512, SLOW_MICROSECONDS = 30000 };

/* The library's descriptors have numbers from here on (crates/sys/src/fd.rs). */
enum { LOWEST_OWN = 512 };

/* Shared with the runner. */
struct control {
    _Atomic uint32_t armed;    /* by the runner: 1: from now on calls count and fail */
    uint32_t unused;
    _Atomic uint64_t injected; /* calls that have failed so far */
    _Atomic uint64_t counts[NUMBERS];
};

/* Where OBJECT's code lies in the process of a thread. */
struct thread {
    pid_t tid;
    uint64_t from, to;
};

static struct control *control;
static struct thread threads[THREADS];
static long number, error, slow;
static uint64_t first, count, seen;
static const char *object, *fds;

static _Noreturn void die(const char *what) {
    perror(what);
    exit(125);
}

static struct control *map_control(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) die(path);
    struct control *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (c == MAP_FAILED) die("mmap");
    close(fd);
    return c;
}

/* --- the program's side ------------------------------------------------------------------------------------- */

static void install_filter(void) {
    struct sock_filter some[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)slow, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_filter every[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE)};
    struct sock_fprog program = {number < 0 ? 1 : 5, number < 0 ? every : some};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) die("no_new_privs");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) die("seccomp");
}

static pid_t start(char **arguments) {
    int go[2];
    char byte;
    if (pipe2(go, O_CLOEXEC) != 0) die("pipe2");
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid == 0) {
        close(go[1]);
        if (read(go[0], &byte, 1) != 1) _exit(125);
        install_filter();
        execvp(arguments[0], arguments);
        die(arguments[0]);
    }
    long options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
                   PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, pid, NULL, options) != 0) die("ptrace");
    if (write(go[1], "g", 1) != 1) die("write");
    close(go[0]);
    close(go[1]);
    return pid;
}

/* --- whose call it is --------------------------------------------------------------------------------------- */

static struct thread *thread_of(pid_t tid) {
    struct thread *vacant = NULL;
    for (int i = 0; i < THREADS; i++) {
        if (threads[i].tid == tid) return &threads[i];
        if (threads[i].tid == 0 && vacant == NULL) vacant = &threads[i];
    }
    if (vacant == NULL) die("too many threads");
    *vacant = (struct thread){.tid = tid};
    return vacant;
}

static void forget(pid_t tid) {
    thread_of(tid)->tid = 0;
}

/* Looks OBJECT's executable mapping up, until it is there. */
static void find_object(struct thread *t) {
    char path[64], line[4096];
    snprintf(path, sizeof path, "/proc/%d/maps", t->tid);
    FILE *maps = fopen(path, "re");
    if (maps == NULL) return; /* just dying */
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && rights[2] == 'x' && strstr(line, object) != NULL) {
            t->from = from;
            t->to = to;
        }
    }
    fclose(maps);
}

static bool inside(const struct thread *t, uint64_t address) {
    return address >= t->from && address < t->to;
}

/* Whether libc was called by OBJECT: a return address into it lies near the top of the stack. */
static bool returns_there(const struct thread *t, uint64_t stack) {
    uint64_t words[STACK_BYTES / 8];
    struct iovec here = {words, sizeof words}, there = {(void *)stack, sizeof words};
    ssize_t n = process_vm_readv(t->tid, &here, 1, &there, 1, 0);
    for (ssize_t i = 0; i < n / 8; i++)
        if (inside(t, words[i])) return true;
    return false;
}

static bool is_theirs(pid_t tid, const struct user_regs_struct *regs) {
    if (strcmp(object, "*") == 0) return true;
    struct thread *t = thread_of(tid);
    if (t->to == 0) find_object(t);
    if (inside(t, regs->rip)) return true;
    bool by_libc = regs->orig_rax == SYS_ppoll || regs->orig_rax == SYS_epoll_pwait2;
    return by_libc && returns_there(t, regs->rsp);
}

static bool is_wanted(uint64_t fd) {
    return strcmp(fds, "any") == 0 || (strcmp(fds, "own") == 0) == (fd >= LOWEST_OWN);
}

/* --- the tracer's side -------------------------------------------------------------------------------------- */

static void at_call(pid_t tid) {
    struct user_regs_struct regs;
    if (ptrace(PTRACE_GETREGS, tid, NULL, &regs) != 0 || regs.orig_rax >= NUMBERS || !is_theirs(tid, &regs)) return;
    atomic_fetch_add(&control->counts[regs.orig_rax], 1);
    if ((long)regs.orig_rax == slow) usleep(SLOW_MICROSECONDS);
    if (!atomic_load(&control->armed) || (long)regs.orig_rax != number || !is_wanted(regs.rdi)) return;
    if (++seen < first || seen - first >= count) return;
    regs.orig_rax = (unsigned long long)-1;
    regs.rax = (unsigned long long)-error;
    if (ptrace(PTRACE_SETREGS, tid, NULL, &regs) == 0) atomic_fetch_add(&control->injected, 1);
}

static void at_stop(pid_t tid, int status) {
    int sig = WSTOPSIG(status), event = status >> 16;
    if (event == PTRACE_EVENT_STOP && sig != SIGTRAP) {
        ptrace(PTRACE_LISTEN, tid, NULL, 0); /* SIGSTOP is in force until SIGCONT */
        return;
    }
    if (event == PTRACE_EVENT_SECCOMP) at_call(tid);
    if (event == PTRACE_EVENT_EXEC) thread_of(tid)->to = 0;
    ptrace(PTRACE_CONT, tid, NULL, event == 0 ? sig : 0);
}

static int follow(pid_t program) {
    for (;;) {
        int status;
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno == EINTR) continue;
        if (tid < 0) die("waitpid");
        if (WIFSTOPPED(status)) {
            at_stop(tid, status);
            continue;
        }
        forget(tid);
        if (tid != program) continue;
        return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
}

int main(int argc, char **argv) {
    if (argc < 10) {
        fprintf(stderr, "usage: inject CONTROL-FILE NUMBER ERRNO FIRST COUNT FDS SLOW OBJECT PROGRAM [ARGUMENT...]\n");
        return 125;
    }
    control = map_control(argv[1]);
    number = atol(argv[2]);
    error = atol(argv[3]);
    first = strtoull(argv[4], NULL, 10);
    count = strtoull(argv[5], NULL, 10);
    fds = argv[6];
    slow = atol(argv[7]);
    object = argv[8];
    return follow(start(argv + 9));
}
