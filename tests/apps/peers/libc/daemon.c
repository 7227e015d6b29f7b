/* Both ends of a connection in one process, which leaves its terminal by daemon(3): libc forks inside of it. The child goes on
 * with the connection that it has inherited, and with a new one. Ends with a line of JSON. */
#include "pair.h"

int main(void)
{
	connect_ends();
	warm_up();
	must(!daemon(0, 1), "daemon");
	warm_up();
	connect_ends();
	warm_up();
	printf("{\"connections\": 2, \"bytes\": %zu}\n", moved);
	return 0;
}
