/* Another host: a library for LD_PRELOAD. HOST_NAME is the name that gethostname tells. */
#include <stdlib.h>
#include <string.h>

int gethostname(char *name, size_t size) {
    const char *told = getenv("HOST_NAME");
    strncpy(name, told ? told : "", size);
    return 0;
}
