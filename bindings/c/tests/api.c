/* Every call of larder.h, used and misused. bindings/check compiles it as C and as C++, and runs it alone and
 * under valgrind. Ends with 1 at the first thing that is wrong. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "larder.h"

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, larder_last_error()); \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

static const uint8_t *bytes(const char *text) { return (const uint8_t *)text; }

static larder_cache *made(larder_settings *settings) {
    larder_cache *cache = NULL;
    CHECK(larder_new(settings, &cache) == LARDER_OK && cache != NULL);
    return cache;
}

static larder_settings defaults(uint64_t budget_bytes) {
    larder_settings settings;
    CHECK(LARDER_SETTINGS_INIT(&settings) == LARDER_OK);
    settings.budget_bytes = budget_bytes;
    return settings;
}

static larder_status put(larder_cache *cache, const char *key, const char *value, uint32_t ttl_s) {
    return larder_put(cache, bytes(key), strlen(key), bytes(value), strlen(value), ttl_s);
}

/* What a function got, as text. */
struct got {
    char text[256];
    size_t count;
};

static void keep(void *context, const uint8_t *value, size_t value_bytes) {
    struct got *got = (struct got *)context;
    CHECK(value_bytes < sizeof got->text);
    memcpy(got->text, value, value_bytes);
    got->text[value_bytes] = 0;
    got->count += 1;
}

static int has(larder_cache *cache, const char *key, const char *value) {
    struct got got = {"", 0};
    larder_status status = larder_get(cache, bytes(key), strlen(key), keep, &got);
    CHECK(status == (value == NULL ? LARDER_MISS : LARDER_OK));
    CHECK(got.count == (value == NULL ? 0u : 1u));
    return value == NULL || strcmp(got.text, value) == 0;
}

static void one_key(void) {
    larder_settings settings = defaults(8 << 20);
    settings.time_s = 100;
    larder_cache *cache = made(&settings);
    struct got got = {"", 0};
    uint8_t buffer[8];
    size_t size = 99;
    larder_life life;

    CHECK(has(cache, "lynx", NULL));
    CHECK(put(cache, "lynx", "seven", 0) == LARDER_OK && has(cache, "lynx", "seven"));
    CHECK(larder_get(cache, bytes("lynx"), 4, NULL, NULL) == LARDER_OK);
    CHECK(larder_get_into(cache, bytes("lynx"), 4, buffer, 8, &size) == LARDER_OK && size == 5);
    CHECK(memcmp(buffer, "seven", 5) == 0);
    CHECK(larder_get_into(cache, bytes("lynx"), 4, buffer, 4, &size) == LARDER_BUFFER && size == 5);
    CHECK(larder_get_into(cache, bytes("lynx"), 4, NULL, 0, &size) == LARDER_BUFFER && size == 5);
    CHECK(larder_get_into(cache, bytes("otter"), 5, buffer, 8, &size) == LARDER_MISS && size == 0);
    memcpy(buffer, "lynx", 4);
    CHECK(larder_get_into(cache, buffer, 4, buffer, 8, &size) == LARDER_OK && memcmp(buffer, "seven", 5) == 0);

    /* Nothing is a key, and a value, and long ones are too. */
    CHECK(larder_put(cache, NULL, 0, NULL, 0, 0) == LARDER_OK);
    CHECK(larder_get_into(cache, NULL, 0, NULL, 0, &size) == LARDER_OK && size == 0);
    uint8_t *large = (uint8_t *)calloc(1, 1 << 20);
    CHECK(larder_put(cache, large, 3000, bytes("long"), 4, 0) == LARDER_OK);
    CHECK(larder_get(cache, large, 3000, keep, &got) == LARDER_OK && strcmp(got.text, "long") == 0);
    CHECK(larder_get(cache, large, 2999, keep, &got) == LARDER_MISS);
    CHECK(larder_put(cache, bytes("lynx"), 4, large, 1 << 20, 0) == LARDER_ERROR_TOO_LARGE);
    CHECK(strstr(larder_last_error(), "1048576") != NULL && has(cache, "lynx", "seven"));
    free(large);

    /* Time. */
    CHECK(put(cache, "lynx", "soon", 10) == LARDER_OK);
    CHECK(larder_peek(cache, bytes("lynx"), 4, &life, keep, &got) == LARDER_OK);
    CHECK(life.left_s == 10 && life.expires_s == 110);
    CHECK(strcmp(got.text, "soon") == 0);
    CHECK(larder_set_time(cache, 109) == LARDER_OK);
    CHECK(larder_peek(cache, bytes("lynx"), 4, &life, NULL, NULL) == LARDER_OK && life.left_s == 1);
    CHECK(larder_touch(cache, bytes("lynx"), 4, 5) == LARDER_OK);
    CHECK(larder_set_time(cache, 113) == LARDER_OK && has(cache, "lynx", "soon"));
    CHECK(larder_set_time(cache, 114) == LARDER_OK && has(cache, "lynx", NULL));
    CHECK(larder_peek(cache, bytes("lynx"), 4, &life, NULL, NULL) == LARDER_MISS);
    CHECK(larder_touch(cache, bytes("lynx"), 4, 5) == LARDER_MISS);
    CHECK(larder_peek(cache, NULL, 0, &life, NULL, NULL) == LARDER_OK && life.left_s == 0 && life.expires_s == 0);
    CHECK(larder_peek(cache, NULL, 0, NULL, NULL, NULL) == LARDER_OK);
    CHECK(larder_set_time(cache, 1) == LARDER_OK && larder_get(cache, NULL, 0, NULL, NULL) == LARDER_OK);

    CHECK(larder_remove(cache, bytes("never"), 5) == LARDER_OK);
    larder_free(cache);
}

/* A function that larder calls, which uses the cache itself. */
static void nested(void *context, const uint8_t *value, size_t value_bytes) {
    larder_cache *cache = (larder_cache *)context;
    CHECK(value != NULL && value_bytes == 5);
    CHECK(has(cache, "lynx", "seven") && put(cache, "within", "seven", 0) == LARDER_OK && has(cache, "within", "seven"));
}

static void nested_each(void *context, size_t key, const uint8_t *value, size_t value_bytes) {
    larder_cache *cache = (larder_cache *)context;
    CHECK(key == 0 && value != NULL && value_bytes == 5 && has(cache, "lynx", "seven"));
}

static void empty(void *context, const uint8_t *value, size_t value_bytes) {
    /* Not NULL, which is a miss, nor an address that no memory has. */
    CHECK((uintptr_t)value > 4096 && value_bytes == 0);
    *(int *)context += 1;
}

static int32_t keep_empty(void *context, const uint8_t *value, size_t value_bytes, larder_new_value *new_value) {
    (void)new_value;
    empty(context, value, value_bytes);
    return LARDER_KEEP;
}

static void within_functions(void) {
    larder_settings settings = defaults(8 << 20);
    larder_cache *cache = made(&settings);
    larder_bytes key = {bytes("lynx"), 4};
    larder_walk *walk;
    larder_entry entry;
    int calls = 0;
    CHECK(put(cache, "lynx", "seven", 0) == LARDER_OK);
    CHECK(larder_get(cache, bytes("lynx"), 4, nested, cache) == LARDER_OK);
    CHECK(larder_peek(cache, bytes("lynx"), 4, NULL, nested, cache) == LARDER_OK);
    CHECK(larder_get_many(cache, &key, 1, nested_each, cache) == LARDER_OK);
    CHECK(larder_clear(cache) == LARDER_OK && put(cache, "", "", 0) == LARDER_OK);
    CHECK(larder_get(cache, NULL, 0, empty, &calls) == LARDER_OK);
    CHECK(larder_peek(cache, NULL, 0, NULL, empty, &calls) == LARDER_OK);
    CHECK(larder_add(cache, NULL, 0, NULL, 0, 0, empty, &calls) == LARDER_PRESENT);
    CHECK(larder_exchange(cache, NULL, 0, NULL, 0, 0, empty, &calls) == LARDER_OK);
    CHECK(larder_compute(cache, NULL, 0, keep_empty, &calls) == LARDER_OK);
    CHECK(larder_walk_new(cache, &walk) == LARDER_OK && larder_walk_next(walk, &entry) == LARDER_OK);
    CHECK((uintptr_t)entry.key > 4096 && (uintptr_t)entry.value > 4096 && entry.key_bytes + entry.value_bytes == 0);
    larder_walk_free(walk);
    CHECK(larder_take(cache, NULL, 0, empty, &calls) == LARDER_OK && calls == 6);

    larder_stats stats;
    CHECK(larder_stats_get(cache, &stats, sizeof stats) == LARDER_OK);
    /* Two for each of three functions, those that called them, and one of nothing. */
    CHECK(stats.hits == 1 + 2 + 2 + 1 + 1 + 1 && stats.misses == 0);
    CHECK(has(cache, "lynx", NULL) && larder_stats_get(cache, &stats, sizeof stats) == LARDER_OK && stats.misses == 1);
    larder_free(cache);
}

/* A function for larder_compute: counts, and stops at three. */
static int32_t count(void *context, const uint8_t *value, size_t value_bytes, larder_new_value *new_value) {
    char *text = (char *)context;
    CHECK(value == NULL ? value_bytes == 0 : value_bytes == 1);
    if (value == NULL) {
        new_value->at = bytes("1");
        new_value->bytes = 1;
        new_value->ttl_s = 50;
        return LARDER_INSERT;
    }
    if (value[0] == '3')
        return LARDER_REMOVE;
    text[0] = (char)(value[0] + 1);
    new_value->at = (const uint8_t *)text;
    new_value->bytes = 1;
    return LARDER_UPDATE;
}

static int32_t wrong(void *context, const uint8_t *value, size_t value_bytes, larder_new_value *new_value) {
    (void)value, (void)value_bytes;
    new_value->at = NULL;
    new_value->bytes = 3;
    return *(int32_t *)context;
}

static void changes(void) {
    larder_settings settings = defaults(1 << 20);
    settings.time_s = 100;
    larder_cache *cache = made(&settings);
    struct got got = {"", 0};
    char room[1];
    larder_life life;
    const uint8_t *key = bytes("k");

    CHECK(larder_add(cache, key, 1, bytes("a"), 1, 0, keep, &got) == LARDER_OK && got.count == 0);
    CHECK(larder_add(cache, key, 1, bytes("b"), 1, 0, keep, &got) == LARDER_PRESENT && got.count == 1);
    CHECK(strcmp(got.text, "a") == 0 && has(cache, "k", "a"));
    CHECK(larder_exchange(cache, key, 1, bytes("c"), 1, 0, keep, &got) == LARDER_OK);
    CHECK(strcmp(got.text, "a") == 0 && has(cache, "k", "c"));
    CHECK(larder_take(cache, key, 1, keep, &got) == LARDER_OK && strcmp(got.text, "c") == 0);
    CHECK(larder_take(cache, key, 1, keep, &got) == LARDER_MISS && got.count == 3);
    CHECK(larder_exchange(cache, key, 1, bytes("d"), 1, 0, NULL, NULL) == LARDER_MISS);
    CHECK(has(cache, "k", "d") && larder_take(cache, key, 1, NULL, NULL) == LARDER_OK);

    CHECK(larder_compute(cache, key, 1, count, room) == LARDER_MISS && has(cache, "k", "1"));
    CHECK(larder_set_time(cache, 120) == LARDER_OK);
    CHECK(larder_compute(cache, key, 1, count, room) == LARDER_OK && has(cache, "k", "2"));
    CHECK(larder_peek(cache, key, 1, &life, NULL, NULL) == LARDER_OK && life.left_s == 30 && life.expires_s == 150);
    CHECK(larder_compute(cache, key, 1, count, room) == LARDER_OK && has(cache, "k", "3"));
    CHECK(larder_compute(cache, key, 1, count, room) == LARDER_OK && has(cache, "k", NULL));

    int32_t action = 77;
    CHECK(larder_compute(cache, key, 1, wrong, &action) == LARDER_ERROR_ARGUMENT);
    CHECK(strstr(larder_last_error(), "77") != NULL);
    action = LARDER_INSERT;
    CHECK(larder_compute(cache, key, 1, wrong, &action) == LARDER_ERROR_ARGUMENT && has(cache, "k", NULL));
    action = LARDER_KEEP;
    CHECK(larder_compute(cache, key, 1, wrong, &action) == LARDER_MISS);
    CHECK(larder_compute(cache, key, 1, NULL, NULL) == LARDER_ERROR_ARGUMENT);
    larder_free(cache);
}

/* The values of many keys. */
struct many {
    size_t hits, misses;
};

static void each(void *context, size_t key, const uint8_t *value, size_t value_bytes) {
    struct many *many = (struct many *)context;
    CHECK(key == many->hits + many->misses);
    if (value == NULL) {
        CHECK(key % 2 == 1 && value_bytes == 0);
        many->misses += 1;
    } else {
        char expected[16];
        snprintf(expected, sizeof expected, "%zu", key);
        CHECK(key % 2 == 0 && value_bytes == strlen(expected) && memcmp(value, expected, value_bytes) == 0);
        many->hits += 1;
    }
}

#define KEYS 100

static void many_keys(void) {
    larder_settings settings = defaults(4 << 20);
    larder_cache *cache = made(&settings);
    char text[KEYS][8];
    larder_bytes keys[KEYS], stored_keys[KEYS / 2];
    uint8_t joined[KEYS * 8], buffer[32];
    size_t ends[KEYS], end = 0;
    for (size_t i = 0; i < KEYS; i++) {
        snprintf(text[i], sizeof text[i], "%zu", i);
        keys[i].at = bytes(text[i]);
        keys[i].bytes = strlen(text[i]);
        memcpy(joined + end, text[i], keys[i].bytes);
        ends[i] = end += keys[i].bytes;
        if (i % 2 == 0)
            stored_keys[i / 2] = keys[i];
    }
    CHECK(larder_put_many(cache, stored_keys, stored_keys, KEYS / 2, 0) == LARDER_OK);
    struct many many = {0, 0};
    CHECK(larder_get_many(cache, keys, KEYS, each, &many) == LARDER_OK);
    CHECK(many.hits == KEYS / 2 && many.misses == KEYS / 2);
    CHECK(larder_get_many(cache, keys, 0, each, &many) == LARDER_OK);
    CHECK(larder_get_many(cache, NULL, 0, each, &many) == LARDER_OK);
    CHECK(larder_get_many(cache, NULL, 3, each, &many) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_get_many(cache, keys, 3, NULL, NULL) == LARDER_ERROR_ARGUMENT);
    keys[1].at = NULL;
    CHECK(larder_get_many(cache, keys, 3, each, &many) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_put_many(cache, keys, NULL, 3, 0) == LARDER_ERROR_ARGUMENT);

    /* Into a buffer of 32 bytes, again and again. */
    larder_place places[KEYS];
    size_t first = 0, done = 0, rounds = 0, hits = 0;
    larder_status status;
    do {
        /* Ends count from the first key that is passed. */
        size_t begin = first == 0 ? 0 : ends[first - 1], shifted[KEYS];
        for (size_t i = first; i < KEYS; i++)
            shifted[i - first] = ends[i] - begin;
        status = larder_get_many_into(cache, joined + begin, shifted, KEYS - first, buffer, 32, places, &done);
        for (size_t i = 0; i < done; i++) {
            size_t key = first + i;
            CHECK((places[i].at == LARDER_NOWHERE) == (key % 2 == 1));
            if (key % 2 == 0) {
                CHECK(places[i].bytes == strlen(text[key]));
                CHECK(memcmp(buffer + places[i].at, text[key], places[i].bytes) == 0);
                hits += 1;
            }
        }
        CHECK(done > 0);
        first += done;
        rounds += 1;
    } while (status == LARDER_BUFFER);
    CHECK(status == LARDER_OK && first == KEYS && hits == KEYS / 2 && rounds > 2);
    CHECK(larder_get_many_into(cache, joined, ends, KEYS, NULL, 0, places, &done) == LARDER_BUFFER && done == 0);
    ends[2] = 0;
    CHECK(larder_get_many_into(cache, joined, ends, KEYS, buffer, 32, places, &done) == LARDER_ERROR_ARGUMENT);
    larder_free(cache);
}

static void files_and_walks(const char *folder) {
    char path[512];
    uint64_t number = 0;
    larder_settings settings = defaults(1 << 20);
    larder_cache *cache = made(&settings), *other = made(&settings);
    snprintf(path, sizeof path, "%s/cache", folder);
    CHECK(larder_load(cache, path, &number) == LARDER_MISS);
    CHECK(put(cache, "a", "1", 0) == LARDER_OK && put(cache, "b", "2", 500) == LARDER_OK);
    CHECK(larder_save(cache, path, &number) == LARDER_OK && number == 2);
    CHECK(larder_load(other, path, &number) == LARDER_OK && number == 2 && has(other, "b", "2"));
    CHECK(larder_len(other, &number) == LARDER_OK && number == 2);
    CHECK(larder_save(cache, "/nowhere/at/all", NULL) == LARDER_ERROR_IO);
    CHECK(larder_save(cache, NULL, NULL) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_load(cache, folder, NULL) == LARDER_ERROR_IO);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fputs("not a cache at all, but long enough for one", file) >= 0 && fclose(file) == 0);
    CHECK(larder_load(other, path, &number) == LARDER_ERROR_DAMAGED && number == 0 && unlink(path) == 0);
    /* Cut in the last chunk: what is before it is there. */
    uint8_t value[1000] = {0};
    larder_settings large = defaults(16 << 20);
    larder_cache *full = made(&large);
    for (uint32_t i = 0; i < 600; i++)
        CHECK(larder_put(full, (const uint8_t *)&i, sizeof i, value, sizeof value, 0) == LARDER_OK);
    CHECK(larder_save(full, path, &number) == LARDER_OK && number == 600 && truncate(path, 400000) == 0);
    CHECK(larder_clear(full) == LARDER_OK && larder_load(full, path, &number) == LARDER_ERROR_DAMAGED);
    uint64_t there = 0;
    CHECK(number > 200 && number < 600 && larder_len(full, &there) == LARDER_OK && there == number);
    CHECK(unlink(path) == 0);
    larder_free(full);

    /* A walk outlives its cache. */
    larder_walk *walk = NULL;
    larder_entry entry;
    int seen = 0;
    CHECK(larder_walk_new(cache, &walk) == LARDER_OK);
    larder_free(cache);
    while (larder_walk_next(walk, &entry) == LARDER_OK) {
        CHECK(entry.key_bytes == 1 && entry.value_bytes == 1);
        CHECK(entry.value[0] - '1' == entry.key[0] - 'a');
        CHECK(entry.key[0] == 'a' ? entry.life.left_s == 0 : entry.life.left_s > 400 && entry.life.left_s <= 500);
        seen += entry.key[0];
    }
    CHECK(seen == 'a' + 'b' && larder_walk_next(walk, &entry) == LARDER_MISS);
    larder_walk_free(walk);

    settings.time_s = 100;
    larder_cache *timed = made(&settings);
    CHECK(put(timed, "short", "1", 5) == LARDER_OK && larder_walk_new(timed, &walk) == LARDER_OK);
    CHECK(larder_set_time(timed, 200) == LARDER_OK && larder_walk_next(walk, &entry) == LARDER_MISS);
    larder_walk_free(walk);
    larder_free(timed);

    CHECK(larder_clear(other) == LARDER_OK && larder_len(other, &number) == LARDER_OK && number == 0);
    larder_free(other);
}

/* Stores in place of each value that left two others, until it is refused. */
struct stubborn {
    larder_cache *cache;
    uint32_t next;
    int is_refused;
};

static void put_more(void *context, larder_cause cause, const uint8_t *key, size_t key_bytes, const uint8_t *value,
                     size_t value_bytes) {
    struct stubborn *stubborn = (struct stubborn *)context;
    (void)cause, (void)key, (void)key_bytes, (void)value_bytes;
    for (int i = 0; i < 9; i++) {
        uint32_t next = stubborn->next++;
        larder_status status = larder_put(stubborn->cache, (const uint8_t *)&next, sizeof next, value, 100, 0);
        CHECK(status == LARDER_OK || status == LARDER_ERROR_LISTENER);
        stubborn->is_refused |= status == LARDER_ERROR_LISTENER;
    }
}

static void stubborn_listener(void) {
    struct stubborn stubborn = {NULL, 1 << 20, 0};
    larder_settings settings = defaults(512 << 10);
    settings.on_removed = put_more;
    settings.context = &stubborn;
    settings.shards = 1;
    larder_cache *cache = stubborn.cache = made(&settings);
    uint8_t value[100] = {0};
    for (uint32_t i = 0; i < 6000; i++)
        CHECK(larder_put(cache, (const uint8_t *)&i, sizeof i, value, sizeof value, 0) == LARDER_OK);
    CHECK(stubborn.is_refused);
    larder_free(cache);
}

/* Counts what leaves, by cause. */
struct left {
    size_t causes[5];
    larder_cache *cache;
};

static void on_removed(void *context, larder_cause cause, const uint8_t *key, size_t key_bytes,
                       const uint8_t *value, size_t value_bytes) {
    struct left *left = (struct left *)context;
    CHECK((uintptr_t)key > 4096 && key_bytes > 0 && (uintptr_t)value > 4096 && value_bytes > 0);
    __atomic_add_fetch(&left->causes[cause], 1, __ATOMIC_RELAXED);
    /* It may use the cache. */
    CHECK(larder_get(left->cache, key, key_bytes, NULL, NULL) >= LARDER_OK);
}

static void longest_value(void) {
    static uint8_t value[20000];
    larder_settings settings = defaults(4 << 20);
    larder_cache *cache = made(&settings);
    CHECK(larder_put(cache, bytes("k"), 1, value, sizeof value, 0) == LARDER_ERROR_TOO_LARGE);
    larder_free(cache);
    settings.value_bytes_max = sizeof value;
    cache = made(&settings);
    CHECK(larder_put(cache, bytes("k"), 1, value, sizeof value, 0) == LARDER_OK);
    larder_free(cache);
    settings.value_bytes_max = 32769;
    CHECK(larder_new(&settings, &cache) == LARDER_ERROR_ARGUMENT);
}

static void listeners(void) {
    struct left left = {{0, 0, 0, 0, 0}, NULL};
    larder_settings settings = defaults(512 << 10);
    settings.on_removed = on_removed;
    settings.context = &left;
    settings.shards = 1;
    settings.readers_max = 2;
    settings.entry_bytes_mean = 120;
    larder_cache *cache = left.cache = made(&settings);
    CHECK(put(cache, "k", "1", 0) == LARDER_OK && put(cache, "k", "2", 0) == LARDER_OK);
    CHECK(left.causes[LARDER_CAUSE_REPLACED] == 1);
    CHECK(larder_touch(cache, bytes("k"), 1, 100) == LARDER_OK && left.causes[LARDER_CAUSE_REPLACED] == 1);
    CHECK(larder_remove(cache, bytes("k"), 1) == LARDER_OK && left.causes[LARDER_CAUSE_REMOVED] == 1);
    uint8_t value[100] = {0};
    for (uint32_t i = 0; i < 20000; i++)
        CHECK(larder_put(cache, (const uint8_t *)&i, sizeof i, value, sizeof value, 0) == LARDER_OK);
    larder_stats stats;
    CHECK(larder_stats_get(cache, &stats, sizeof stats) == LARDER_OK);
    CHECK(stats.budget_bytes == 512 << 10 && stats.inserted == 20001 && stats.entries > 1000);
    CHECK(stats.evicted > 10000 && left.causes[LARDER_CAUSE_BUDGET] == stats.evicted);
    CHECK(stats.inserted == stats.entries + stats.evicted + stats.conflicts + stats.removed && stats.updated == 1);
    /* A caller that knows the first member only, and one that knows more than the library. */
    uint64_t few[2] = {7, 7}, more[64];
    memset(more, 7, sizeof more);
    CHECK(larder_stats_get(cache, (larder_stats *)few, 8) == LARDER_OK && few[0] == 512 << 10 && few[1] == 7);
    CHECK(larder_stats_get(cache, (larder_stats *)more, sizeof more) == LARDER_OK && more[63] == 0);
    CHECK(larder_stats_get(cache, NULL, 8) == LARDER_ERROR_ARGUMENT);
    larder_free(cache);
}

static void misuse(void) {
    larder_cache *cache = (larder_cache *)&cache;
    larder_settings settings;
    larder_walk *walk;
    uint64_t number;
    size_t size;
    CHECK(larder_abi_version() == LARDER_ABI_VERSION && strchr(larder_version(), '.') != NULL);
    CHECK(strcmp(larder_status_text(LARDER_MISS), larder_status_text(77)) != 0);
    CHECK(strstr(larder_status_text(77), "unknown") != NULL && strcmp(larder_status_text(0), "done") == 0);
    CHECK(LARDER_SETTINGS_INIT((larder_settings *)NULL) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_new(NULL, NULL) == LARDER_ERROR_ARGUMENT);
    settings = defaults(1);
    CHECK(larder_new(&settings, &cache) == LARDER_ERROR_ARGUMENT && cache == NULL);
    CHECK(strstr(larder_last_error(), "budget") != NULL);
    settings = defaults(1 << 20);
    settings.abi_version = 99;
    CHECK(larder_new(&settings, &cache) == LARDER_ERROR_VERSION && strstr(larder_last_error(), "99") != NULL);
    settings = defaults(1 << 20);
    settings.struct_bytes = 4;
    CHECK(larder_new(&settings, &cache) == LARDER_ERROR_VERSION);
    settings.struct_bytes = sizeof settings - 3;
    CHECK(larder_new(&settings, &cache) == LARDER_ERROR_VERSION);
    settings.struct_bytes = sizeof settings + 8;
    CHECK(larder_new(&settings, &cache) == LARDER_ERROR_VERSION);
    /* A program whose header had fewer members: the others are neither written nor read. */
    memset(&settings, 0x7f, sizeof settings);
    CHECK(larder_settings_init(&settings, LARDER_ABI_VERSION, 16) == LARDER_OK && settings.struct_bytes == 16);
    CHECK(settings.budget_bytes == 64 << 20 && settings.shards == 0x7f7f7f7f);
    CHECK(larder_new(&settings, &cache) == LARDER_OK);
    larder_free(cache);
    CHECK(larder_settings_init(&settings, 2, 16) == LARDER_ERROR_VERSION);
    settings = defaults(1 << 20);
    settings.shards = 65;
    CHECK(larder_new(&settings, &cache) == LARDER_ERROR_ARGUMENT);
    settings = defaults(UINT64_MAX);
    CHECK(larder_new(&settings, &cache) < 0 && cache == NULL);

    CHECK(larder_put(NULL, bytes("k"), 1, bytes("v"), 1, 0) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_get(NULL, bytes("k"), 1, NULL, NULL) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_get_into(NULL, NULL, 0, NULL, 0, &size) == LARDER_ERROR_ARGUMENT && size == 0);
    CHECK(larder_remove(NULL, NULL, 0) == LARDER_ERROR_ARGUMENT && larder_clear(NULL) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_len(NULL, &number) == LARDER_ERROR_ARGUMENT && larder_set_time(NULL, 1) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_walk_new(NULL, &walk) == LARDER_ERROR_ARGUMENT && walk == NULL);
    CHECK(larder_walk_next(NULL, NULL) == LARDER_ERROR_ARGUMENT);
    larder_free(NULL);
    larder_walk_free(NULL);

    CHECK(larder_new(NULL, &cache) == LARDER_OK);
    CHECK(larder_put(cache, NULL, 1, bytes("v"), 1, 0) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_put(cache, bytes("k"), 1, NULL, 1, 0) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_put(cache, bytes("k"), SIZE_MAX, bytes("v"), 1, 0) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_get_into(cache, bytes("k"), 1, NULL, 8, NULL) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_set_time(cache, 5) == LARDER_ERROR_ARGUMENT);
    CHECK(larder_walk_new(cache, NULL) == LARDER_ERROR_ARGUMENT && larder_get(cache, NULL, 0, NULL, NULL) == LARDER_MISS);
    larder_free(cache);
}

struct worker {
    pthread_t thread;
    larder_cache *cache;
    uint32_t number;
    char error[80];
};

static void *work(void *context) {
    struct worker *worker = (struct worker *)context;
    for (uint32_t i = 0; i < 3000; i++) {
        uint32_t key[2] = {worker->number, i}, value[2] = {0, 0};
        size_t size;
        CHECK(larder_put(worker->cache, (const uint8_t *)key, sizeof key, (const uint8_t *)key, sizeof key, 0) == LARDER_OK);
        CHECK(larder_get_into(worker->cache, (const uint8_t *)key, sizeof key, (uint8_t *)value, sizeof value, &size) == LARDER_OK);
        CHECK(size == sizeof key && memcmp(key, value, sizeof key) == 0);
    }
    /* Its last error is its own. */
    CHECK(strcmp(larder_last_error(), "") == 0);
    CHECK(larder_put(worker->cache, NULL, worker->number + 1, NULL, 0, 0) == LARDER_ERROR_ARGUMENT);
    snprintf(worker->error, sizeof worker->error, "%s", larder_last_error());
    return NULL;
}

static void threads(void) {
    struct worker workers[4];
    larder_settings settings = defaults(16 << 20);
    larder_cache *cache = made(&settings);
    for (uint32_t i = 0; i < 4; i++) {
        workers[i].cache = cache;
        workers[i].number = i;
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (uint32_t i = 0; i < 4; i++) {
        char expected[40];
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
        snprintf(expected, sizeof expected, "has %u bytes", i + 1);
        CHECK(strstr(workers[i].error, expected) != NULL);
    }
    uint64_t entries;
    CHECK(larder_len(cache, &entries) == LARDER_OK && entries == 12000);

    /* A child has a cache of its own. */
    CHECK(put(cache, "who", "parent", 0) == LARDER_OK);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(has(cache, "who", "parent") && put(cache, "who", "child", 100) == LARDER_OK && has(cache, "who", "child"));
        /* Not _exit(0): valgrind would count what threads of the parent hold as lost. */
        execlp("true", "true", (char *)NULL);
        _exit(1);
    }
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && has(cache, "who", "parent"));
    larder_free(cache);
}

int main(int count, char **words) {
    CHECK(count == 2);
    CHECK(strcmp(larder_last_error(), "") == 0);
    one_key();
    within_functions();
    changes();
    many_keys();
    files_and_walks(words[1]);
    longest_value();
    listeners();
    stubborn_listener();
    misuse();
    threads();
    puts("all calls of larder.h do what they say");
    return 0;
}
