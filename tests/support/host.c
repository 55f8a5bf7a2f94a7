/* Another host: a library for LD_PRELOAD. HOST_NAME is the name that gethostname returns. */
#include <stdlib.h>
#include <string.h>

int gethostname(char *name, size_t size) {
    const char *name_of_host = getenv("HOST_NAME");
    strncpy(name, name_of_host ? name_of_host : "", size);
    return 0;
}
