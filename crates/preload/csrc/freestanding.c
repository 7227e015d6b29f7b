/* Functions that compilers call on their own. The library defines them itself, so that it can be loaded beside any libc: a
 * preloaded library with an undefined symbol keeps every program from starting. */
#include <stddef.h>

#pragma GCC visibility push(hidden)

static void *own_memmove(void *to, const void *from, size_t n)
{
	char *t = to;
	const char *f = from;
	if ((size_t)t - (size_t)f >= n)
		for (size_t i = 0; i < n; i++)
			t[i] = f[i];
	else
		while (n--)
			t[n] = f[n];
	return to;
}

static void *own_memset(void *at, int byte, size_t n)
{
	for (char *t = at; n--; t++)
		*t = (char)byte;
	return at;
}

/* The constructor replaces these pointers by libc's functions, which suit the processor (host.rs). */
void *(*ss_memcpy)(void *, const void *, size_t) = own_memmove;
void *(*ss_memmove)(void *, const void *, size_t) = own_memmove;
void *(*ss_memset)(void *, int, size_t) = own_memset;

void *memcpy(void *to, const void *from, size_t n)
{
	return ss_memcpy(to, from, n);
}

void *memmove(void *to, const void *from, size_t n)
{
	return ss_memmove(to, from, n);
}

void *memset(void *at, int byte, size_t n)
{
	return ss_memset(at, byte, n);
}

int memcmp(const void *a, const void *b, size_t n)
{
	for (const unsigned char *x = a, *y = b; n--; x++, y++)
		if (*x != *y)
			return *x - *y;
	return 0;
}

int bcmp(const void *a, const void *b, size_t n)
{
	return memcmp(a, b, n);
}

size_t strlen(const char *text)
{
	const char *end = text;
	while (*end)
		end++;
	return (size_t)(end - text);
}

/* Debug builds only: Rust's core library is compiled for unwinding, while ours is not, and refers to this function. When a
 * cancelled thread unwinds through the library no frame has anything to do: _URC_CONTINUE_UNWIND. Weak, since a build for
 * tests unwinds and has the function of std. */
__attribute__((weak)) int rust_eh_personality(void)
{
	return 8;
}
