/* What stable Rust cannot define: thread-local variables, weak references and variadic functions. Nothing else belongs
 * here. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>

struct ss_thread {
	unsigned tid;      /* 0: not asked yet */
	unsigned in_vfork; /* this thread's memory is lent to a vfork child */
	unsigned prepared; /* for the child that this thread is forking: `Prepared` of thread/mod.rs */
	int error;         /* stands in for the errno of a libc that does not tell where it is */
	unsigned long parts[37]; /* laid out in thread/parts.rs */
};
__thread struct ss_thread ss_self; /* found by thread_storage! */

/* All symbols that the library refers to; null where libc does not have them. All others it looks up itself (symbol.rs). These
 * are needed for the look-up, or may be the program's instead of libc's: a copy of `environ`, an allocator. */
#define WEAK __attribute__((weak))
struct dl_phdr_info;
extern int dl_iterate_phdr(int (*)(struct dl_phdr_info *, size_t, void *), void *) WEAK;
extern void *dlsym(void *, const char *) WEAK;
extern int *__errno_location(void) WEAK;
extern void free(void *) WEAK;
extern char **environ WEAK;

int (*const ss_iterate)(int (*)(struct dl_phdr_info *, size_t, void *), void *) = dl_iterate_phdr;
void *(*const ss_dlsym)(void *, const char *) = dlsym;
int *(*const ss_errno)(void) = __errno_location;
void (*const ss_free)(void *) = free;
char ***const ss_environ = &environ;

/* Implemented in Rust (hooks/). */
#pragma GCC visibility push(hidden)
int ss_execv(const char *path, char *const argv[]);
int ss_execvp(const char *file, char *const argv[]);
int ss_execve(const char *path, char *const argv[], char *const envp[]);
int ss_vdprintf(int fd, const char *format, va_list args);
#pragma GCC visibility pop

/* The arguments of execl(3) as a vector, on the caller's stack as in any libc. */
#define COLLECT(first, args, argv)                                   \
	va_list args, count;                                         \
	size_t n = 1;                                                \
	va_start(args, first);                                       \
	va_copy(count, args);                                        \
	while (va_arg(count, char *))                                \
		n++;                                                 \
	va_end(count);                                               \
	char *argv[n + 1];                                           \
	argv[0] = (char *)first;                                     \
	for (size_t i = 1; i <= n; i++)                              \
		argv[i] = va_arg(args, char *)

int ss_execl(const char *path, const char *arg, ...)
{
	COLLECT(arg, args, argv);
	va_end(args);
	return ss_execv(path, argv);
}

int ss_execlp(const char *file, const char *arg, ...)
{
	COLLECT(arg, args, argv);
	va_end(args);
	return ss_execvp(file, argv);
}

int ss_execle(const char *path, const char *arg, ...)
{
	COLLECT(arg, args, argv);
	char *const *envp = va_arg(args, char *const *);
	va_end(args);
	return ss_execve(path, argv, envp);
}

int ss_dprintf_chk(int fd, int flag, const char *format, ...)
{
	(void)flag;
	va_list args;
	va_start(args, format);
	int n = ss_vdprintf(fd, format, args);
	va_end(args);
	return n;
}

int ss_dprintf(int fd, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = ss_vdprintf(fd, format, args);
	va_end(args);
	return n;
}
