/* Loads late.c's library, which its first argument names, and prints what that reads from a pipe. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char text[16] = {0};
	int ends[2], (*read_late)(int, char *, int);
	void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&read_late = dlsym(library, "read_late");
	if (!read_late || pipe(ends) || write(ends[1], "late", 4) != 4 || read_late(ends[0], text, 15) != 4) {
		perror("read_late");
		return 1;
	}
	puts(text);
	return 42;
}
