#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"
#include "callbacks.h"

static void keep(void *context, const uint8_t *value, size_t value_bytes) {
    kept_value *kept = context;
    kept->at = malloc(value_bytes + 1);
    if (kept->at != NULL) {
        memcpy(kept->at, value, value_bytes);
        kept->bytes = value_bytes;
    }
}

static void on_removed(void *context, larder_cause cause, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                       size_t value_bytes) {
    larderGoRemoved((uintptr_t)context, (int)cause, (uint8_t *)key, key_bytes, (uint8_t *)value, value_bytes);
}

static int32_t change(void *context, const uint8_t *value, size_t value_bytes, larder_new_value *new_value) {
    return larderGoChange((uintptr_t)context, (uint8_t *)value, value_bytes, new_value);
}

enum larder_status go_new(larder_settings *settings, int has_listener, uintptr_t listener, larder_cache **cache) {
    if (has_listener) {
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

enum larder_status go_add(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                     size_t value_bytes, uint32_t ttl_s, kept_value *kept) {
    return larder_add(cache, key, key_bytes, value, value_bytes, ttl_s, keep, kept);
}

enum larder_status go_replace(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                         size_t value_bytes, uint32_t ttl_s, kept_value *kept) {
    return larder_replace(cache, key, key_bytes, value, value_bytes, ttl_s, keep, kept);
}

enum larder_status go_take(const larder_cache *cache, const uint8_t *key, size_t key_bytes, kept_value *kept) {
    return larder_take(cache, key, key_bytes, keep, kept);
}

enum larder_status go_ttl(const larder_cache *cache, const uint8_t *key, size_t key_bytes, uint32_t *left_s, kept_value *kept) {
    return larder_ttl(cache, key, key_bytes, left_s, kept == NULL ? NULL : keep, kept);
}

enum larder_status go_compute(const larder_cache *cache, const uint8_t *key, size_t key_bytes, uintptr_t context) {
    return larder_compute(cache, key, key_bytes, change, (void *)context);
}
