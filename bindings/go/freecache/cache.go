// Package freecache has the methods of github.com/coocood/freecache over larder: change the import, and nearly all programs
// compile.
//
// What differs:
//   - Which entries are evicted: larder's policy decides instead of an approximate LRU.
//   - An entry may have up to almost 32 KiB with the part of its key beyond 254 bytes, less in a small cache, instead of
//     1/1024 of the cache. ErrLargeEntry says that it has more.
//   - The cache takes up to twice its size and 2 MiB: see NewCache. Close gives it up.
//   - GetFn and PeekFn pass a copy. Peek does not return expired entries. Update calls its function again if the key was
//     changed meanwhile. Del of an expired entry returns false.
//   - OverwriteCount counts every value that replaced another one.
//   - AverageAccessTime and RingBuf are missing: larder keeps no times of accesses.
package freecache

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"larder"
)

// Constants that programs use to say how much an entry takes in freecache.
const (
	HASH_ENTRY_SIZE = 16
	ENTRY_HDR_SIZE  = 24
)

const (
	sizeMin     = 512 << 10
	keyBytesMax = 65535
)

// Errors, with the names and texts that programs know.
var (
	ErrLargeKey   = errors.New("The key is larger than 65535")
	ErrLargeEntry = errors.New("The entry is larger than the cache takes")
	ErrNotFound   = errors.New("Entry not found")
	ErrOutOfRange = errors.New("out of range")
)

// A Cache can be used by any number of goroutines at once.
type Cache struct {
	cache *larder.Cache
	timer Timer
	// The time that the cache was told.
	told    atomic.Uint32
	touched atomic.Int64

	// Of the cache's time, and of the figures.
	lock sync.Mutex
	// What the figures were when ResetStatistics was called.
	before larder.Stats
}

// An Updater gets the value of a key and whether there is one, and returns a new value, whether to store it, and for how many
// seconds.
type Updater func(value []byte, found bool) (newValue []byte, replace bool, expireSeconds int)

// NewCache makes a cache for entries of size bytes together, at least 512 KiB. What it needs besides them comes on top, as in
// freecache. Here that is up to as much again, and 2 MiB, which the system gives as the cache fills: entries may take all of it.
func NewCache(size int) *Cache {
	return NewCacheCustomTimer(size, nil)
}

// NewCacheCustomTimer is NewCache with another source of time; nil is the system's.
func NewCacheCustomTimer(size int, timer Timer) *Cache {
	if timer == nil {
		timer = systemTimer{}
	}
	settings := larder.Settings{BudgetBytes: 2*uint64(max(size, sizeMin)) + 2<<20, EntryBytesMean: 48, TimeSeconds: 1}
	cache, err := larder.New(settings)
	if err != nil {
		// freecache panics where memory is missing, too: its function has no error to return.
		panic(err)
	}
	made := &Cache{cache: cache, timer: timer}
	made.told.Store(1)
	return made
}

// Close gives the cache up. Its memory returns to the system with the garbage collection after that; see larder.Cache.
func (cache *Cache) Close() error { return cache.cache.Close() }

// tell sets the cache's time to the timer's.
func (cache *Cache) tell() {
	if now := cache.timer.Now(); cache.told.Load() != now {
		cache.setTime(now)
	}
}

func (cache *Cache) setTime(now uint32) {
	cache.lock.Lock()
	defer cache.lock.Unlock()
	// It can fail only for a cache with the system's time. The time is set before others read that it is.
	_ = cache.cache.SetTime(now)
	cache.told.Store(now)
}

// ttlOf is how long an entry lives; 0 and less is for ever, as in freecache.
func ttlOf(expireSeconds int) time.Duration {
	return time.Duration(max(expireSeconds, 0)) * time.Second
}

func errorOf(err error) error {
	switch {
	case errors.Is(err, larder.ErrNotFound):
		return ErrNotFound
	case errors.Is(err, larder.ErrTooLarge):
		return ErrLargeEntry
	}
	return err
}

// Set stores a value, for a time or, at 0 and less, without an end.
func (cache *Cache) Set(key, value []byte, expireSeconds int) error {
	if len(key) > keyBytesMax {
		return ErrLargeKey
	}
	cache.tell()
	return errorOf(cache.cache.Set(key, value, ttlOf(expireSeconds)))
}

// Touch gives a value a new time.
func (cache *Cache) Touch(key []byte, expireSeconds int) error {
	if len(key) > keyBytesMax {
		return ErrLargeKey
	}
	cache.tell()
	err := errorOf(cache.cache.Touch(key, ttlOf(expireSeconds)))
	if err == nil {
		cache.touched.Add(1)
	}
	return err
}

// Get returns the value of a key, or ErrNotFound.
func (cache *Cache) Get(key []byte) ([]byte, error) {
	cache.tell()
	value, err := cache.cache.Get(key)
	return value, errorOf(err)
}

// GetFn passes the value of a key to a function, and returns its error, or ErrNotFound.
func (cache *Cache) GetFn(key []byte, fn func([]byte) error) error {
	value, err := cache.Get(key)
	if err != nil {
		return err
	}
	return fn(value)
}

// Peek is Get, but is not counted, and does not keep the entry from eviction.
func (cache *Cache) Peek(key []byte) ([]byte, error) {
	cache.tell()
	value, _, err := cache.cache.Peek(key)
	return value, errorOf(err)
}

// PeekFn is GetFn, but is not counted, and does not keep the entry from eviction.
func (cache *Cache) PeekFn(key []byte, fn func([]byte) error) error {
	value, err := cache.Peek(key)
	if err != nil {
		return err
	}
	return fn(value)
}

// GetOrSet returns the value of a key; if there is none, it stores one and returns nil.
func (cache *Cache) GetOrSet(key, value []byte, expireSeconds int) ([]byte, error) {
	if len(key) > keyBytesMax {
		return nil, ErrLargeKey
	}
	// A read that counts; Add is none.
	if there, err := cache.Get(key); err == nil {
		return there, nil
	}
	there, _, err := cache.cache.Add(key, value, ttlOf(expireSeconds))
	return there, errorOf(err)
}

// SetAndGet stores a value, and returns the one that was there.
func (cache *Cache) SetAndGet(key, value []byte, expireSeconds int) (old []byte, found bool, err error) {
	if len(key) > keyBytesMax {
		return nil, false, ErrLargeKey
	}
	cache.tell()
	cache.cache.Has(key) // A read that counts.
	old, found, err = cache.cache.Exchange(key, value, ttlOf(expireSeconds))
	return old, found, errorOf(err)
}

// Update stores what the updater makes of the value that is there, as one step: the updater is called again if the key was
// changed meanwhile.
func (cache *Cache) Update(key []byte, updater Updater) (found, replaced bool, err error) {
	if len(key) > keyBytesMax {
		return false, false, ErrLargeKey
	}
	cache.tell()
	cache.cache.Has(key) // A read that counts.
	found, err = cache.cache.Compute(key, func(value []byte, isThere bool) larder.Change {
		var expireSeconds int
		value, replaced, expireSeconds = updater(value, isThere)
		if !replaced {
			return larder.Keep()
		}
		return larder.Insert(value, ttlOf(expireSeconds))
	})
	return found, replaced && err == nil, errorOf(err)
}

// GetWithBuf is Get into a buffer, if the value fits there. Its content is overwritten.
func (cache *Cache) GetWithBuf(key, buf []byte) ([]byte, error) {
	cache.tell()
	value, err := cache.cache.Append(buf[:0], key)
	if err != nil {
		return nil, errorOf(err)
	}
	return value, nil
}

// GetWithExpiration is Get, and returns when the value expires, in seconds since 1970, or 0.
func (cache *Cache) GetWithExpiration(key []byte) (value []byte, expireAt uint32, err error) {
	cache.tell()
	// A read that counts; Peek is none.
	if !cache.cache.Has(key) {
		return nil, 0, ErrNotFound
	}
	value, life, err := cache.cache.Peek(key)
	return value, life.Expires, errorOf(err)
}

// GetWithExpirationAndBuf is GetWithExpiration into a buffer, if the value fits there.
func (cache *Cache) GetWithExpirationAndBuf(key, buf []byte) (value []byte, expireAt uint32, err error) {
	value, expireAt, err = cache.GetWithExpiration(key)
	if err != nil {
		return nil, 0, err
	}
	return append(buf[:0], value...), expireAt, nil
}

// TTL returns the seconds that a value has left, 0 for one without an end, or ErrNotFound.
func (cache *Cache) TTL(key []byte) (timeLeft uint32, err error) {
	life, err := cache.cache.TTL(key)
	if err == nil && life.TTL > 0 {
		cache.tell()
		life, err = cache.cache.TTL(key)
	}
	return uint32(life.TTL / time.Second), errorOf(err)
}

// Del removes a value, and says whether there was one.
func (cache *Cache) Del(key []byte) (affected bool) {
	cache.tell()
	_, affected, _ = cache.cache.Take(key)
	return affected
}

func keyOf(number int64) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 0, 8), uint64(number))
}

// SetInt is Set for a number as the key.
func (cache *Cache) SetInt(key int64, value []byte, expireSeconds int) error {
	return cache.Set(keyOf(key), value, expireSeconds)
}

// GetInt is Get for a number as the key.
func (cache *Cache) GetInt(key int64) ([]byte, error) { return cache.Get(keyOf(key)) }

// GetIntWithExpiration is GetWithExpiration for a number as the key.
func (cache *Cache) GetIntWithExpiration(key int64) (value []byte, expireAt uint32, err error) {
	return cache.GetWithExpiration(keyOf(key))
}

// DelInt is Del for a number as the key.
func (cache *Cache) DelInt(key int64) (affected bool) { return cache.Del(keyOf(key)) }

// Clear removes all entries, and resets the figures.
func (cache *Cache) Clear() {
	_ = cache.cache.Clear()
	cache.ResetStatistics()
}
