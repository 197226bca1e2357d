#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "callbacks.h"

/* What a listener panicked with during the write that this thread is in. A panic of Go must not unwind through the
 * library: it is caught, kept here, and raised when the write has returned to Go. */
static _Thread_local uintptr_t caught;

/* Runs a write. One within a listener is nested in another. */
#define WRITE(call)                     \
    do {                                \
        uintptr_t outer = caught;       \
        enum larder_status status;      \
        caught = 0;                     \
        status = (call);                \
        *panic = caught;                \
        caught = outer;                 \
        return status;                  \
    } while (0)

static void keep(void *context, const uint8_t *value, size_t value_bytes) {
    kept_value *kept = context;
    kept->at = malloc(value_bytes + 1);
    if (kept->at != NULL) {
        memcpy(kept->at, value, value_bytes);
        kept->bytes = value_bytes;
    }
}

static larder_read keeper(kept_value *kept) {
    return kept == NULL ? NULL : keep;
}

static void on_removed(void *context, larder_cause cause, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                       size_t value_bytes) {
    uintptr_t panic = larderGoRemoved((uintptr_t)context, (int)cause, (uint8_t *)key, key_bytes, (uint8_t *)value, value_bytes);
    if (caught == 0)
        caught = panic;
    else if (panic != 0)
        larderGoForget(panic);
}

static int32_t change(void *context, const uint8_t *value, size_t value_bytes, larder_new_value *new_value) {
    return larderGoChange((uintptr_t)context, (uint8_t *)value, value_bytes, new_value);
}

enum larder_status go_new(larder_settings *settings, uintptr_t listener, larder_cache **cache) {
    if (listener != 0) {
        settings->on_removed = on_removed;
        settings->context = (void *)listener;
    }
    return larder_new(settings, cache);
}

enum larder_status go_put_unheard(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                                  size_t value_bytes, uint32_t ttl_s) {
    return larder_put(cache, key, key_bytes, value, value_bytes, ttl_s);
}

enum larder_status go_remove_unheard(const larder_cache *cache, const uint8_t *key, size_t key_bytes) {
    return larder_remove(cache, key, key_bytes);
}

enum larder_status go_peek(const larder_cache *cache, const uint8_t *key, size_t key_bytes, larder_life *life, kept_value *kept) {
    return larder_peek(cache, key, key_bytes, life, keeper(kept), kept);
}

enum larder_status go_put(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                          size_t value_bytes, uint32_t ttl_s, uintptr_t *panic) {
    WRITE(larder_put(cache, key, key_bytes, value, value_bytes, ttl_s));
}

enum larder_status go_remove(const larder_cache *cache, const uint8_t *key, size_t key_bytes, uintptr_t *panic) {
    WRITE(larder_remove(cache, key, key_bytes));
}

enum larder_status go_add(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                          size_t value_bytes, uint32_t ttl_s, kept_value *kept, uintptr_t *panic) {
    WRITE(larder_add(cache, key, key_bytes, value, value_bytes, ttl_s, keep, kept));
}

enum larder_status go_exchange(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                               size_t value_bytes, uint32_t ttl_s, kept_value *kept, uintptr_t *panic) {
    WRITE(larder_exchange(cache, key, key_bytes, value, value_bytes, ttl_s, keep, kept));
}

enum larder_status go_take(const larder_cache *cache, const uint8_t *key, size_t key_bytes, kept_value *kept, uintptr_t *panic) {
    WRITE(larder_take(cache, key, key_bytes, keeper(kept), kept));
}

enum larder_status go_compute(const larder_cache *cache, const uint8_t *key, size_t key_bytes, uintptr_t context, uintptr_t *panic) {
    WRITE(larder_compute(cache, key, key_bytes, change, (void *)context));
}

enum larder_status go_clear(const larder_cache *cache, uintptr_t *panic) {
    WRITE(larder_clear(cache));
}

enum larder_status go_load(const larder_cache *cache, const char *file, uint64_t *entries, uintptr_t *panic) {
    WRITE(larder_load(cache, file, entries));
}
