/* Put in front of the library: hides from it what it finds the functions of libc with. With -DALSO_DLSYM, all of it. */
#include <stddef.h>

int dl_iterate_phdr(void *show, void *data)
{
	(void)show;
	(void)data;
	return 0;
}

#ifdef ALSO_DLSYM
void *dlsym(void *scope, const char *name)
{
	(void)scope;
	(void)name;
	return NULL;
}
#endif
