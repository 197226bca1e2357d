/* A cache of host names for addresses, shared by two threads. Checks its own result.
 *
 *   cc names.c $(pkg-config --cflags --libs larder) -pthread && ./a.out
 */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "larder.h"

/* Prints a name where it lies in the cache, without a copy. */
static void show(void *address, const uint8_t *name, size_t name_bytes) {
    printf("%s is %.*s\n", (const char *)address, (int)name_bytes, (const char *)name);
}

static void *learn(void *cache) {
    const uint8_t *name = (const uint8_t *)"www.example.org";
    for (int host = 0; host < 100; host++) {
        char address[16];
        int bytes = snprintf(address, sizeof address, "192.0.2.%d", host);
        /* For an hour, or until the memory is needed. */
        if (larder_put(cache, (const uint8_t *)address, (size_t)bytes, name, 15, 3600) != LARDER_OK)
            fprintf(stderr, "%s\n", larder_last_error());
    }
    return NULL;
}

static int failed(void) {
    fprintf(stderr, "%s\n", larder_last_error());
    return 1;
}

int main(void) {
    larder_settings settings;
    larder_cache *cache;
    if (LARDER_SETTINGS_INIT(&settings) != LARDER_OK)
        return failed();
    settings.budget_bytes = 16 << 20;
    if (larder_new(&settings, &cache) != LARDER_OK)
        return failed();
    pthread_t thread;
    if (pthread_create(&thread, NULL, learn, cache) != 0)
        return 1;
    pthread_join(thread, NULL);

    char address[] = "192.0.2.42";
    larder_status status = larder_get(cache, (const uint8_t *)address, strlen(address), show, address);
    larder_free(cache);
    return status == LARDER_OK ? 0 : 1;
}
