/* What compilers call without being told to. The library has functions of its own for it, so that it can be loaded beside
 * any libc: an undefined symbol of a preloaded library keeps every program from starting. */
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

/* From the constructor on, libc's, which suit the processor (host.rs). */
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

/* Of a debug build: the core library is compiled for unwinding, which ours is not. No frame of it has anything to do when a
 * thread that is being cancelled unwinds through it: _URC_CONTINUE_UNWIND. Weak, since a build for tests unwinds, and brings
 * std's. */
__attribute__((weak)) int rust_eh_personality(void)
{
	return 8;
}
