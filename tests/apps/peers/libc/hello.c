/* A program that has nothing to do with sockets, and ends with an exit code of its own. */
#include <stdio.h>

int main(void)
{
	puts("hello");
	return 42;
}
