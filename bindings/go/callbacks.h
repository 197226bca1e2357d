/* What the package calls besides larder.h: values of call-backs are kept in memory of C, and Go functions get numbers
 * (cgo.Handle), never pointers to memory of Go. */

#ifndef LARDER_GO_CALLBACKS_H
#define LARDER_GO_CALLBACKS_H

#include "larder.h"

/* A value that a call gave back, to be freed. */
typedef struct {
    uint8_t *at;
    size_t bytes;
} kept_value;

enum larder_status go_new(larder_settings *settings, uintptr_t listener, larder_cache **cache);

/* For caches without a listener: they never call Go, so that what is passed can stay on a goroutine's stack. */
enum larder_status go_put_unheard(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                                  size_t value_bytes, uint32_t ttl_s);
enum larder_status go_remove_unheard(const larder_cache *cache, const uint8_t *key, size_t key_bytes);

enum larder_status go_peek(const larder_cache *cache, const uint8_t *key, size_t key_bytes, larder_life *life, kept_value *kept);

/* Writes. A listener of the cache may panic within: *panic is the number of what it panicked with, or 0. */
enum larder_status go_put(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                          size_t value_bytes, uint32_t ttl_s, uintptr_t *panic);
enum larder_status go_remove(const larder_cache *cache, const uint8_t *key, size_t key_bytes, uintptr_t *panic);
enum larder_status go_add(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                          size_t value_bytes, uint32_t ttl_s, kept_value *kept, uintptr_t *panic);
enum larder_status go_exchange(const larder_cache *cache, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                               size_t value_bytes, uint32_t ttl_s, kept_value *kept, uintptr_t *panic);
enum larder_status go_take(const larder_cache *cache, const uint8_t *key, size_t key_bytes, kept_value *kept, uintptr_t *panic);
enum larder_status go_compute(const larder_cache *cache, const uint8_t *key, size_t key_bytes, uintptr_t change, uintptr_t *panic);
enum larder_status go_clear(const larder_cache *cache, uintptr_t *panic);
enum larder_status go_load(const larder_cache *cache, const char *file, uint64_t *entries, uintptr_t *panic);

#endif
