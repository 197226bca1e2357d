// Package bigcache has the methods of github.com/allegro/bigcache/v3 over larder: change the import, and most programs
// compile.
//
// What differs:
//   - Memory has a limit: see [Config]. Which entries are evicted at it, larder's policy decides, not their age.
//   - An entry may have up to almost 32 KiB with the part of its key beyond 254 bytes, less in a cache below 12 MiB,
//     instead of its shard's size. ErrEntryTooLarge says that it has more.
//   - An expired entry is not returned, whether or not it was cleaned: Append begins anew, Delete does not find it, and
//     EntryStatus of a [Response] is always 0. Nothing cleans, so Len counts it until its memory is needed.
//   - OnRemove hears of an expired entry when its memory is needed, and not at all if Set or Append replaces it before.
//     It hears of what Reset removes, as Deleted. It runs without a lock, in several goroutines at once where several
//     write, and another goroutine may have stored the key again by then.
//   - A write may fail with larder.ErrBusy while many reads hold memory. One in OnRemove fails, with another error, when it
//     stores too much: see larder.Settings.
//   - Two keys never collide: Stats.Collisions is 0.
//   - Capacity is what the cache may take, and not what it has taken.
//   - Entries of one GetMulti share memory: keeping one of them keeps all.
//   - After Close, calls fail with larder.ErrClosed; an iterator from before goes on. Append counts neither as a hit nor as
//     a miss.
//   - KeyMetadata and OnRemoveWithMetadata are missing: larder does not count reads by key.
package bigcache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"larder"
)

// Errors, with the names and texts that programs know; ErrEntryTooLarge has the text of bigcache's error without a name.
var (
	ErrEntryNotFound = errors.New("Entry not found")
	ErrEntryTooLarge = errors.New("entry is bigger than max shard size")
)

// A RemoveReason is why an entry left.
type RemoveReason uint32

// Why an entry left.
const (
	// Expired: its memory was needed, after its LifeWindow.
	Expired = RemoveReason(iota + 1)
	// NoSpace: the memory was used up.
	NoSpace
	// Deleted by a call.
	Deleted
)

// A Response is what GetWithInfo knows besides the value.
type Response struct {
	// EntryStatus is always 0 here: an entry that left is not returned.
	EntryStatus RemoveReason
}

// Stats are counters since the cache was made, or since ResetStats.
type Stats struct {
	Hits       int64 `json:"hits"`
	Misses     int64 `json:"misses"`
	DelHits    int64 `json:"delete_hits"`
	DelMisses  int64 `json:"delete_misses"`
	Collisions int64 `json:"collisions"`
}

// A BigCache can be used by any number of goroutines at once.
type BigCache struct {
	cache  *larder.Cache
	ttl    time.Duration
	hasher Hasher

	deleted, notThere atomic.Int64

	lock sync.Mutex
	// What larder's figures were when ResetStats was called.
	before larder.Stats
}

// New makes a cache. The context has no effect: no goroutine of the cache has to be ended.
func New(_ context.Context, config Config) (*BigCache, error) {
	settings, err := config.settings()
	if err != nil {
		return nil, err
	}
	cache, err := larder.New(settings)
	if err != nil {
		return nil, err
	}
	hasher := config.Hasher
	if hasher == nil {
		hasher = newDefaultHasher()
	}
	return &BigCache{cache: cache, ttl: config.ttl(), hasher: hasher}, nil
}

// NewBigCache is New.
func NewBigCache(config Config) (*BigCache, error) {
	return New(context.Background(), config)
}

// Close gives the cache up. Its memory returns to the system with the garbage collection after that; see larder.Cache.
func (cache *BigCache) Close() error { return cache.cache.Close() }

func errorOf(err error) error {
	switch {
	case errors.Is(err, larder.ErrNotFound):
		return ErrEntryNotFound
	case errors.Is(err, larder.ErrTooLarge):
		return ErrEntryTooLarge
	}
	return err
}

// Get returns a copy of the entry of a key, or ErrEntryNotFound.
func (cache *BigCache) Get(key string) ([]byte, error) {
	entry, err := cache.cache.Get([]byte(key))
	return entry, errorOf(err)
}

// GetWithInfo is Get.
func (cache *BigCache) GetWithInfo(key string) ([]byte, Response, error) {
	entry, err := cache.Get(key)
	return entry, Response{}, err
}

// GetMulti returns copies of the entries of many keys, nil for one that is not there. From Go it takes much less time a key
// than Get does.
func (cache *BigCache) GetMulti(keys []string) ([][]byte, error) {
	raw := make([][]byte, len(keys))
	for number, key := range keys {
		raw[number] = []byte(key)
	}
	return cache.cache.GetMulti(raw)
}

// Set stores an entry for the LifeWindow. If it fails, the entry that was there is removed: it is out of date.
func (cache *BigCache) Set(key string, entry []byte) error {
	err := cache.cache.Set([]byte(key), entry, cache.ttl)
	if err != nil {
		// Of two errors the first says more.
		_ = cache.cache.Delete([]byte(key))
	}
	return errorOf(err)
}

// Append appends to the entry of a key, or stores one, for the LifeWindow from now. No other write comes between. If it
// fails, the entry stays as it was.
func (cache *BigCache) Append(key string, entry []byte) error {
	_, err := cache.cache.Compute([]byte(key), func(there []byte, _ bool) larder.Change {
		return larder.Insert(append(there, entry...), cache.ttl)
	})
	return errorOf(err)
}

// Delete removes the entry of a key; ErrEntryNotFound if there is none.
func (cache *BigCache) Delete(key string) error {
	_, wasThere, err := cache.cache.Take([]byte(key))
	switch {
	case err != nil:
		return errorOf(err)
	case !wasThere:
		cache.notThere.Add(1)
		return ErrEntryNotFound
	}
	cache.deleted.Add(1)
	return nil
}

// Reset removes all entries that are there at the call.
func (cache *BigCache) Reset() error { return cache.cache.Clear() }

// Len is the number of entries, expired ones included, which stay until their memory is needed. It is 0 after Close.
func (cache *BigCache) Len() int {
	entries, _ := cache.cache.Len()
	return int(entries)
}

// Capacity is the number of bytes that the cache may take, everything counted. It is 0 after Close.
func (cache *BigCache) Capacity() int {
	stats, _ := cache.cache.Stats()
	return int(stats.BudgetBytes)
}

// Stats are the counters. After Close those of reads are 0.
func (cache *BigCache) Stats() Stats {
	cache.lock.Lock()
	defer cache.lock.Unlock()
	stats := Stats{DelHits: cache.deleted.Load(), DelMisses: cache.notThere.Load()}
	if now, err := cache.cache.Stats(); err == nil {
		stats.Hits = int64(now.Hits - cache.before.Hits)
		stats.Misses = int64(now.Misses - cache.before.Misses)
	}
	return stats
}

// ResetStats sets all counters to 0.
func (cache *BigCache) ResetStats() error {
	cache.lock.Lock()
	defer cache.lock.Unlock()
	now, err := cache.cache.Stats()
	if err != nil {
		return err
	}
	cache.before = now
	cache.deleted.Store(0)
	cache.notThere.Store(0)
	return nil
}
