package larder

// #include <stdlib.h>
// #include "callbacks.h"
import "C"

import (
	"io/fs"
	"runtime"
	"strings"
	"syscall"
	"unsafe"
)

// Stats are figures of a cache. Counters count since it was made.
type Stats struct {
	BudgetBytes, Entries, EntriesMax, EntriesBytes, EntriesBytesMax uint64
	Hits, Misses, ExpiredMisses                                     uint64
	Inserted, Updated, Removed, Evicted, EvictedExpired             uint64
	// Conflicts are entries evicted because all places for a key were full; rare, and not part of Evicted.
	Conflicts uint64
}

// Stats returns the figures of the cache. Hits and misses are those of Get and its like; those of threads that are reading at
// this moment may be missing.
func (cache *Cache) Stats() (Stats, error) {
	used := cache.handle.Load()
	if used == nil {
		return Stats{}, ErrClosed
	}
	defer runtime.KeepAlive(used)
	var stats C.larder_stats
	err := errorOf(C.larder_stats_get(used.cache, &stats, C.sizeof_larder_stats))
	return Stats{
		BudgetBytes: uint64(stats.budget_bytes), Entries: uint64(stats.entries), EntriesMax: uint64(stats.entries_max),
		EntriesBytes: uint64(stats.entries_bytes), EntriesBytesMax: uint64(stats.entries_bytes_max),
		Hits: uint64(stats.hits), Misses: uint64(stats.misses), ExpiredMisses: uint64(stats.expired_misses),
		Inserted: uint64(stats.inserted), Updated: uint64(stats.updated), Removed: uint64(stats.removed),
		Evicted: uint64(stats.evicted), EvictedExpired: uint64(stats.evicted_expired),
		Conflicts: uint64(stats.conflicts),
	}, err
}

// Len returns the number of entries, expired ones included, which stay until their memory is needed.
func (cache *Cache) Len() (uint64, error) {
	used := cache.handle.Load()
	if used == nil {
		return 0, ErrClosed
	}
	defer runtime.KeepAlive(used)
	var entries C.uint64_t
	err := errorOf(C.larder_len(used.cache, &entries))
	return uint64(entries), err
}

// Clear removes all values that are there at the call.
func (cache *Cache) Clear() error {
	used := cache.handle.Load()
	if used == nil {
		return ErrClosed
	}
	defer runtime.KeepAlive(used)
	var panicked C.uintptr_t
	status := C.go_clear(used.cache, &panicked)
	raise(panicked)
	return errorOf(status)
}

// SetTime sets the time of a cache whose settings had TimeSeconds. Time may go back.
func (cache *Cache) SetTime(seconds uint32) error {
	used := cache.handle.Load()
	if used == nil {
		return ErrClosed
	}
	defer runtime.KeepAlive(used)
	return errorOf(C.larder_set_time(used.cache, C.uint32_t(seconds)))
}

// pathOf is a path for C, to be freed.
func pathOf(file string) (*C.char, error) {
	if strings.IndexByte(file, 0) >= 0 {
		return nil, &fs.PathError{Op: "open", Path: file, Err: syscall.EINVAL}
	}
	return C.CString(file), nil
}

// Save writes all live entries to a file, which replaces an older one when it is complete. It returns their number.
func (cache *Cache) Save(file string) (uint64, error) {
	used := cache.handle.Load()
	if used == nil {
		return 0, ErrClosed
	}
	defer runtime.KeepAlive(used)
	path, err := pathOf(file)
	if err != nil {
		return 0, err
	}
	defer C.free(unsafe.Pointer(path))
	var entries C.uint64_t
	err = withText(func() int32 { return C.larder_save(used.cache, path, &entries) })
	return uint64(entries), err
}

// Load stores the entries of a file of Save, and returns their number. An error that is fs.ErrNotExist is a first start. After
// one of a damaged file the entries before the damage are stored.
func (cache *Cache) Load(file string) (uint64, error) {
	used := cache.handle.Load()
	if used == nil {
		return 0, ErrClosed
	}
	defer runtime.KeepAlive(used)
	path, err := pathOf(file)
	if err != nil {
		return 0, err
	}
	defer C.free(unsafe.Pointer(path))
	var entries C.uint64_t
	var status int32
	var panicked C.uintptr_t
	err = withText(func() int32 {
		status = C.go_load(used.cache, path, &entries, &panicked)
		return status
	})
	raise(panicked)
	if status == C.LARDER_MISS {
		err = &fs.PathError{Op: "load", Path: file, Err: fs.ErrNotExist}
	}
	return uint64(entries), err
}
