package larder

// #include "callbacks.h"
import "C"

import (
	"io"
	"iter"
	"runtime"
	"sync"
	"unsafe"
)

// An Entry of a walk. Its slices are copies.
type Entry struct {
	Key, Value []byte
	Life       Life
}

// A Walk over all live entries, in no order. While the cache is used, any entry may be shown once, twice or not at all.
type Walk struct {
	lock    sync.Mutex
	walk    *C.larder_walk
	cleanup runtime.Cleanup
}

// Walk begins a walk. One that is not closed is closed by the garbage collector.
func (cache *Cache) Walk() (*Walk, error) {
	used := cache.handle.Load()
	if used == nil {
		return nil, ErrClosed
	}
	defer runtime.KeepAlive(used)
	made := &Walk{}
	if status := C.larder_walk_new(used.cache, &made.walk); status < 0 {
		return nil, errorOf(status)
	}
	made.cleanup = runtime.AddCleanup(made, func(walk *C.larder_walk) { C.larder_walk_free(walk) }, made.walk)
	return made, nil
}

// Next returns the next entry, or io.EOF at the end and after Close.
func (walk *Walk) Next() (Entry, error) {
	walk.lock.Lock()
	defer walk.lock.Unlock()
	if walk.walk == nil {
		return Entry{}, io.EOF
	}
	var entry C.larder_entry
	status := C.larder_walk_next(walk.walk, &entry)
	if status == C.LARDER_MISS {
		return Entry{}, io.EOF
	}
	if status < 0 {
		return Entry{}, errorOf(status)
	}
	return Entry{
		Key:   C.GoBytes(unsafe.Pointer(entry.key), C.int(entry.key_bytes)),
		Value: C.GoBytes(unsafe.Pointer(entry.value), C.int(entry.value_bytes)),
		Life:  lifeOf(entry.life),
	}, nil
}

// Close ends the walk. It does nothing the second time.
func (walk *Walk) Close() error {
	walk.lock.Lock()
	defer walk.lock.Unlock()
	if walk.walk != nil {
		walk.cleanup.Stop()
		C.larder_walk_free(walk.walk)
		walk.walk = nil
	}
	return nil
}

// All is a Walk for range. The second value is nil but in the last step of a walk that failed.
func (cache *Cache) All() iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		walk, err := cache.Walk()
		if err != nil {
			yield(Entry{}, err)
			return
		}
		defer walk.Close()
		for {
			entry, err := walk.Next()
			if err == io.EOF || !yield(entry, err) || err != nil {
				return
			}
		}
	}
}
