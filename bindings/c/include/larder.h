/* larder: a cache that many threads share, within a number of bytes.
 *
 *   larder_cache *cache;
 *   if (larder_new(NULL, &cache) != LARDER_OK)
 *       fail(larder_last_error());
 *   larder_put(cache, (const uint8_t *)"lynx", 4, (const uint8_t *)"7", 1, 0);
 *
 * Link with what `pkg-config --libs larder` says. Every function may be called from any thread, but
 * for larder_free and what a comment restricts. Memory that is passed is read during the call only.
 * What a call writes must not overlap what it reads, but in larder_get_into. Errors are negative, and
 * larder_last_error has their text.
 *
 * Time is in whole seconds, so a value can expire up to a second early. A thread of the library, which
 * takes no signals, keeps the time. A thread must not be cancelled within a call.
 *
 * A key is any bytes, also none. A value has up to almost 32 KiB, less in a small cache. After
 * fork(), the child has a copy of each cache; it can use one if no other thread was within a call at
 * the fork.
 */

#ifndef LARDER_H
#define LARDER_H

#include <stddef.h>
#include <stdint.h>
/** The place of a value that is not there. */
#define LARDER_NOWHERE SIZE_MAX

/**
 * Sets every member of settings to its default, and says which header the program has. It fails where
 * the library does not fit, and then sets nothing.
 */
#define LARDER_SETTINGS_INIT(settings) \
    larder_settings_init((settings), LARDER_ABI_VERSION, sizeof *(settings))


/**
 * The version of this interface. It grows when a function or a structure changes so that a program
 * must be compiled again. New functions, and new members at the end of larder_settings and
 * larder_stats, do not change it.
 */
#define LARDER_ABI_VERSION 1

/**
 * What a call returns. Errors are negative: larder_last_error has their text.
 */
typedef enum larder_status {
  /**
   * It was done.
   */
  LARDER_OK = 0,
  /**
   * The key has no value, or a walk is at its end. Not an error.
   */
  LARDER_MISS = 1,
  /**
   * The key has a value already, which stays. Not an error.
   */
  LARDER_PRESENT = 2,
  /**
   * A buffer is too small. Not an error.
   */
  LARDER_BUFFER = 3,
  /**
   * An argument or a setting is out of range, or NULL.
   */
  LARDER_ERROR_ARGUMENT = -1,
  /**
   * The value, with the part of its key beyond 254 bytes, is larger than this cache takes.
   */
  LARDER_ERROR_TOO_LARGE = -2,
  /**
   * Memory that the write needs is in use by a read that lasts. Nothing has changed, but that
   * larder_clear, larder_load and larder_put_many may have done a part. Try again, except within
   * a function that larder calls: the read may be that one.
   */
  LARDER_ERROR_BUSY = -3,
  /**
   * The system refused memory.
   */
  LARDER_ERROR_MEMORY = -4,
  /**
   * A panic interrupted a change of this cache, which is a defect of larder. Make a new one.
   */
  LARDER_ERROR_POISONED = -5,
  /**
   * A file could not be read or written.
   */
  LARDER_ERROR_IO = -6,
  /**
   * A file is no saved cache, or it is damaged.
   */
  LARDER_ERROR_DAMAGED = -7,
  /**
   * A defect of larder: a call panicked. The text is on standard error; please report it.
   */
  LARDER_ERROR_PANIC = -8,
  /**
   * The caller was compiled for another version of this interface.
   */
  LARDER_ERROR_VERSION = -9,
  /**
   * A put within on_removed was refused: such puts make more values leave than it was called
   * for. Trying again there can't help.
   */
  LARDER_ERROR_LISTENER = -10,
} larder_status;

/**
 * Why a value left the cache.
 */
typedef enum larder_cause {
  /**
   * The budget was used up.
   */
  LARDER_CAUSE_BUDGET = 0,
  /**
   * As LARDER_CAUSE_BUDGET, of a value that had expired.
   */
  LARDER_CAUSE_EXPIRED = 1,
  /**
   * A caller removed it.
   */
  LARDER_CAUSE_REMOVED = 2,
  /**
   * A caller stored another value under its key.
   */
  LARDER_CAUSE_REPLACED = 3,
  /**
   * All places for its key were full; rare.
   */
  LARDER_CAUSE_CONFLICT = 4,
} larder_cause;

/**
 * What larder_compute does with a key.
 */
typedef enum larder_action {
  /**
   * Nothing.
   */
  LARDER_KEEP = 0,
  /**
   * Stores the new value for the new time.
   */
  LARDER_INSERT = 1,
  /**
   * Stores the new value, which expires when the present one would; without one, never.
   */
  LARDER_UPDATE = 2,
  /**
   * Removes the value.
   */
  LARDER_REMOVE = 3,
} larder_action;

/**
 * A cache. Any number of threads may use it at once.
 */
typedef struct larder_cache larder_cache;

/**
 * A walk over all entries of a cache. One thread uses it at a time.
 */
typedef struct larder_walk larder_walk;

/**
 * Gets a value in place. The bytes are valid until it returns. It may read the cache; a write of a
 * key there can fail with LARDER_ERROR_BUSY. It must not unwind or longjmp. Keep it short: writes
 * may need the memory that it looks at.
 */
typedef void (*larder_read)(void *context, const uint8_t *value, size_t value_bytes);

/**
 * A new value, which a function for larder_compute fills. Its bytes must stay as they are until
 * larder_compute returns or calls the function again.
 */
typedef struct larder_new_value {
  /**
   * The bytes.
   */
  const uint8_t *at;
  /**
   * How many.
   */
  size_t bytes;
  /**
   * The seconds to live, 0 for as long as there is room.
   */
  uint32_t ttl_s;
} larder_new_value;

/**
 * Decides what becomes of a value: a copy of the present one, valid until larder_compute returns
 * or calls it again, NULL if there is none. It is called again if another thread changed the key
 * meanwhile, so it must not change that key itself. It must not unwind or longjmp. The result is a
 * larder_action; any other number is an error.
 */
typedef int32_t (*larder_change)(void *context,
                                 const uint8_t *value,
                                 size_t value_bytes,
                                 struct larder_new_value *new_value);

/**
 * Called for a value that left, but for those that are there at larder_free. The bytes are valid
 * until it returns. It runs on a thread that writes, which holds no lock then: after the work of
 * larder_put and its like, within that of larder_put_many, larder_clear and larder_load. It may
 * use the cache, but not free it. Its puts are limited: four for each value that left, and 16. It
 * must not unwind or longjmp.
 */
typedef void (*larder_on_removed)(void *context,
                                  enum larder_cause cause,
                                  const uint8_t *key,
                                  size_t key_bytes,
                                  const uint8_t *value,
                                  size_t value_bytes);

/**
 * Settings of a cache. Begin with LARDER_SETTINGS_INIT, which sets every member.
 */
typedef struct larder_settings {
  /**
   * LARDER_ABI_VERSION of the header.
   */
  uint32_t abi_version;
  /**
   * The size of this structure in the program's header.
   */
  uint32_t struct_bytes;
  /**
   * Bytes that the cache may take, everything counted. The default is 64 MiB.
   */
  uint64_t budget_bytes;
  /**
   * The mean of the bytes of a key and its value together, which decides how much of the budget
   * is index; 0 for the library's guess.
   */
  uint32_t entry_bytes_mean;
  /**
   * Threads that read at the same moment without waiting for each other; 0 for one per core, up
   * to 16.
   */
  uint32_t readers_max;
  /**
   * Parts with a lock each, a power of two up to 64; 0 for as many as cores and budget suggest.
   */
  uint32_t shards;
  /**
   * Time stands at this many seconds, and larder_set_time moves it; 0 for the system's clock.
   */
  uint32_t time_s;
  /**
   * Called for values that leave: evicted, removed or replaced. NULL for none.
   */
  larder_on_removed on_removed;
  /**
   * Passed to on_removed. Threads that use the cache share it.
   */
  void *context;
  /**
   * The longest value, in bytes, up to 32768; of a key with more than 254 bytes, those after the
   * first 247 count as value, and 4 more. Such values fit, and a budget that is too small for them
   * is refused; if they are short there are more shards. 0: not stated.
   */
  uint64_t value_bytes_max;
} larder_settings;

/**
 * Bytes of a caller.
 */
typedef struct larder_bytes {
  /**
   * Where they begin; may be NULL if there are none.
   */
  const uint8_t *at;
  /**
   * How many.
   */
  size_t bytes;
} larder_bytes;

/**
 * Gets the value of one of many keys in place: the number of the key, and its value, or NULL for a
 * miss. As for larder_read otherwise.
 */
typedef void (*larder_read_many)(void *context, size_t key, const uint8_t *value, size_t value_bytes);

/**
 * Where a value lies in a buffer, or that there is none.
 */
typedef struct larder_place {
  /**
   * The first byte, from the buffer's begin; LARDER_NOWHERE for a miss.
   */
  size_t at;
  /**
   * The bytes of the value.
   */
  size_t bytes;
} larder_place;

/**
 * How long a value lives.
 */
typedef struct larder_life {
  /**
   * The seconds that it has left, 0 if it does not expire.
   */
  uint32_t left_s;
  /**
   * The first second in which it has expired, by the cache's clock, 0 if it does not expire. The
   * system's clock counts from 1970.
   */
  uint32_t expires_s;
} larder_life;

/**
 * Figures of a cache. Counters count since it was made.
 */
typedef struct larder_stats {
  /**
   * Bytes that the cache may take.
   */
  uint64_t budget_bytes;
  /**
   * Entries in the cache, expired ones included.
   */
  uint64_t entries;
  /**
   * The most entries that it can have.
   */
  uint64_t entries_max;
  /**
   * Bytes that entries take, rounded up to their sizes of slots.
   */
  uint64_t entries_bytes;
  /**
   * Bytes that entries may take.
   */
  uint64_t entries_bytes_max;
  /**
   * Lookups by larder_get and its like that found a live value, but for those of threads that
   * are reading at this moment.
   */
  uint64_t hits;
  /**
   * Lookups that did not.
   */
  uint64_t misses;
  /**
   * Of the misses, those whose value had expired.
   */
  uint64_t expired_misses;
  /**
   * New entries.
   */
  uint64_t inserted;
  /**
   * Entries with a new value.
   */
  uint64_t updated;
  /**
   * Entries removed by a caller.
   */
  uint64_t removed;
  /**
   * Entries evicted to make room.
   */
  uint64_t evicted;
  /**
   * Of those, entries that had expired.
   */
  uint64_t evicted_expired;
  /**
   * Entries evicted because all places for a key were full; rare, and not part of evicted.
   */
  uint64_t conflicts;
} larder_stats;

/**
 * An entry of a walk, valid until the next call with that walk.
 */
typedef struct larder_entry {
  /**
   * The key.
   */
  const uint8_t *key;
  /**
   * Its bytes.
   */
  size_t key_bytes;
  /**
   * The value.
   */
  const uint8_t *value;
  /**
   * Its bytes.
   */
  size_t value_bytes;
  /**
   * How long it lives.
   */
  struct larder_life life;
} larder_entry;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Stores a value under a key that has none. If it has one, calls read with a copy of it, if that
 * is not NULL, and returns LARDER_PRESENT.
 */
enum larder_status larder_add(const struct larder_cache *cache,
                              const uint8_t *key,
                              size_t key_bytes,
                              const uint8_t *value,
                              size_t value_bytes,
                              uint32_t ttl_s,
                              larder_read read,
                              void *context);

/**
 * As larder_put, and calls read, if it is not NULL, with a copy of the value that was there.
 * LARDER_OK if there was one, LARDER_MISS if not: the new value is stored in both cases.
 */
enum larder_status larder_exchange(const struct larder_cache *cache,
                                   const uint8_t *key,
                                   size_t key_bytes,
                                   const uint8_t *value,
                                   size_t value_bytes,
                                   uint32_t ttl_s,
                                   larder_read read,
                                   void *context);

/**
 * Removes a value, and calls read with a copy of it, if that is not NULL; LARDER_MISS if there was
 * none.
 */
enum larder_status larder_take(const struct larder_cache *cache,
                               const uint8_t *key,
                               size_t key_bytes,
                               larder_read read,
                               void *context);

/**
 * Calls change with a copy of the value of a key, and does what it returns, as one step: if
 * another thread changes the key meanwhile, change is called again with the newer value.
 * LARDER_MISS if there was no value when it was done, LARDER_OK if there was. An error of change
 * is LARDER_ERROR_ARGUMENT, and nothing changes.
 */
enum larder_status larder_compute(const struct larder_cache *cache,
                                  const uint8_t *key,
                                  size_t key_bytes,
                                  larder_change change,
                                  void *context);

/**
 * Saves all live entries to a file, which replaces an older one when it is complete. Writes their
 * number to *entries.
 */
enum larder_status larder_save(const struct larder_cache *cache,
                               const char *file,
                               uint64_t *entries);

/**
 * Stores the entries of a file of larder_save; a smaller cache keeps those that were to be evicted
 * last, and leaves out values that it does not take. Writes their number to *entries. LARDER_MISS
 * if there is no such file: a first start. After LARDER_ERROR_DAMAGED the entries before the
 * damage are stored, and counted; after other errors some may be, uncounted.
 */
enum larder_status larder_load(const struct larder_cache *cache,
                               const char *file,
                               uint64_t *entries);

/**
 * Makes a cache, and writes it to *cache. NULL settings are the defaults. All memory is reserved
 * now, and used as it fills. On an error *cache is NULL.
 */
enum larder_status larder_new(const struct larder_settings *settings, struct larder_cache **cache);

/**
 * Frees a cache. No other call may use it then or later, and so no function that it calls may free
 * it; walks over it may continue. NULL does nothing.
 */
void larder_free(struct larder_cache *cache);

/**
 * Sets the time of a cache whose settings had a time_s. LARDER_ERROR_ARGUMENT for a cache with the
 * system's clock. Time may go back.
 */
enum larder_status larder_set_time(const struct larder_cache *cache, uint32_t time_s);

/**
 * Calls each for every key, in order, with its value in place. A table that is larger than the
 * CPU's cache is read two to four times as fast as by larder_get.
 */
enum larder_status larder_get_many(const struct larder_cache *cache,
                                   const struct larder_bytes *keys,
                                   size_t keys_count,
                                   larder_read_many each,
                                   void *context);

/**
 * As larder_get_many, for languages in which a call back is dear: keys lie one behind the other,
 * and keys_ends has the end of each. Copies values to a buffer, one behind the other, writes the
 * place of each to places, which has room for all keys, and the number of keys that are done to
 * *done. LARDER_BUFFER if the buffer is full before all are done: call it again for the keys
 * behind those, with a larger buffer if none was done.
 */
enum larder_status larder_get_many_into(const struct larder_cache *cache,
                                        const uint8_t *keys,
                                        const size_t *keys_ends,
                                        size_t keys_count,
                                        uint8_t *buffer,
                                        size_t buffer_bytes,
                                        struct larder_place *places,
                                        size_t *done);

/**
 * Stores many values for ttl_s seconds, 0 for as long as there is room, with fewer locks than
 * larder_put. Both lists have count members. An argument out of range stores nothing. On another
 * error, those before the refused one are stored, or any if it is LARDER_ERROR_BUSY.
 */
enum larder_status larder_put_many(const struct larder_cache *cache,
                                   const struct larder_bytes *keys,
                                   const struct larder_bytes *values,
                                   size_t count,
                                   uint32_t ttl_s);

/**
 * Sets every member that the caller knows to its default: see LARDER_SETTINGS_INIT.
 */
enum larder_status larder_settings_init(struct larder_settings *settings,
                                        uint32_t abi_version,
                                        size_t struct_bytes);

/**
 * Calls read with the value of a key, in place, without a copy. LARDER_MISS if there is none. NULL
 * for read asks whether there is a value.
 */
enum larder_status larder_get(const struct larder_cache *cache,
                              const uint8_t *key,
                              size_t key_bytes,
                              larder_read read,
                              void *context);

/**
 * Copies the value of a key to a buffer, and writes its size to *value_bytes. LARDER_MISS if there
 * is none, with a size of 0. LARDER_BUFFER if the buffer is smaller than the value; nothing is
 * copied then. The buffer may overlap the key.
 */
enum larder_status larder_get_into(const struct larder_cache *cache,
                                   const uint8_t *key,
                                   size_t key_bytes,
                                   uint8_t *buffer,
                                   size_t buffer_bytes,
                                   size_t *value_bytes);

/**
 * Stores a value for ttl_s seconds, 0 for as long as there is room. Time is in whole seconds, so a
 * value expires up to a second early. It is seen by every later read on any thread.
 */
enum larder_status larder_put(const struct larder_cache *cache,
                              const uint8_t *key,
                              size_t key_bytes,
                              const uint8_t *value,
                              size_t value_bytes,
                              uint32_t ttl_s);

/**
 * Removes a value, if there is one. larder_take says whether there was.
 */
enum larder_status larder_remove(const struct larder_cache *cache,
                                 const uint8_t *key,
                                 size_t key_bytes);

/**
 * Calls read, if it is not NULL, with a copy of the value of a key, and writes to *life how long
 * it lives. LARDER_MISS if there is none. It takes the lock of the key's part of the cache.
 * Neither the figures nor the policy count it as a read.
 */
enum larder_status larder_peek(const struct larder_cache *cache,
                               const uint8_t *key,
                               size_t key_bytes,
                               struct larder_life *life,
                               larder_read read,
                               void *context);

/**
 * Makes a value expire ttl_s seconds from now, 0 for as long as there is room; LARDER_MISS if
 * there is none. The value stays where it is: on_removed is not called.
 */
enum larder_status larder_touch(const struct larder_cache *cache,
                                const uint8_t *key,
                                size_t key_bytes,
                                uint32_t ttl_s);

/**
 * Writes the figures of a cache to *stats, which has stats_bytes bytes (sizeof *stats): members
 * that the caller does not know are left out, and those that the library does not know are 0.
 * Takes each lock for a moment.
 */
enum larder_status larder_stats_get(const struct larder_cache *cache,
                                    struct larder_stats *stats,
                                    size_t stats_bytes);

/**
 * Writes the number of entries to *entries, expired ones included, which stay until their memory
 * is needed.
 */
enum larder_status larder_len(const struct larder_cache *cache, uint64_t *entries);

/**
 * Removes all values that are there at the call.
 */
enum larder_status larder_clear(const struct larder_cache *cache);

/**
 * The text of the last error of a call on this thread, without a line end; "" if there was none.
 * It is valid until the next call with an error on this thread. Calls without an error do not
 * change it.
 */
const char *larder_last_error(void);

/**
 * A short text for any larder_status, for a program whose calls change threads, as
 * larder_last_error does not fit there. It is valid for ever.
 */
const char *larder_status_text(int32_t status);

/**
 * The version of the interface that the library has: compare with LARDER_ABI_VERSION of the
 * header.
 */
uint32_t larder_abi_version(void);

/**
 * The version of the library, such as "0.1.0".
 */
const char *larder_version(void);

/**
 * Begins a walk over all live entries, in no order, and writes it to *walk. It blocks no other
 * call. While the cache is used, any entry may be shown once, twice or not at all. On an error
 * *walk is NULL.
 */
enum larder_status larder_walk_new(const struct larder_cache *cache, struct larder_walk **walk);

/**
 * Writes the next entry to *entry, or returns LARDER_MISS at the end.
 */
enum larder_status larder_walk_next(struct larder_walk *walk, struct larder_entry *entry);

/**
 * Ends a walk. The cache may have been freed before. NULL does nothing.
 */
void larder_walk_free(struct larder_walk *walk);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LARDER_H */
