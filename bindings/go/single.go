package larder

// #include "callbacks.h"
import "C"

import (
	"bytes"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// at is where bytes begin, for the length of a call.
func at(slice []byte) *C.uint8_t {
	return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(slice)))
}

func size(slice []byte) C.size_t {
	return C.size_t(len(slice))
}

// buffers for values whose size is not known yet.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// Get returns a copy of the value of a key, or ErrNotFound.
func (cache *Cache) Get(key []byte) ([]byte, error) {
	room := buffers.Get().(*[4096]byte)
	defer buffers.Put(room)
	value, err := cache.Append(room[:0], key)
	if err != nil {
		return nil, err
	}
	if cap(value) > cap(room) {
		return value, nil // It did not fit, and has memory of its own.
	}
	return append(make([]byte, 0, len(value)), value...), nil
}

// Append appends the value of a key to a buffer. It allocates nothing if the buffer has room. On an error it returns the
// buffer as it was.
func (cache *Cache) Append(buffer, key []byte) ([]byte, error) {
	used := cache.handle.Load()
	if used == nil {
		return buffer, ErrClosed
	}
	defer runtime.KeepAlive(used)
	grown := buffer
	for {
		var needed C.size_t
		room := grown[len(grown):cap(grown)]
		switch status := C.larder_get_into(used.cache, at(key), size(key), at(room), size(room), &needed); status {
		case C.LARDER_OK:
			return grown[:len(grown)+int(needed)], nil
		case C.LARDER_MISS:
			return buffer, ErrNotFound
		case C.LARDER_BUFFER:
			// A larger value may come before it is asked again.
			grown = append(make([]byte, 0, len(buffer)+int(needed)), buffer...)
		default:
			return buffer, errorOf(status)
		}
	}
}

// Has says whether a key has a value.
func (cache *Cache) Has(key []byte) bool {
	used := cache.handle.Load()
	if used == nil {
		return false
	}
	defer runtime.KeepAlive(used)
	return C.larder_get(used.cache, at(key), size(key), nil, nil) == C.LARDER_OK
}

// Set stores a value for a time, rounded up to seconds; 0 for as long as there is room.
func (cache *Cache) Set(key, value []byte, ttl time.Duration) error {
	used := cache.handle.Load()
	if used == nil {
		return ErrClosed
	}
	defer runtime.KeepAlive(used)
	if used.listener == 0 {
		return errorOf(C.go_put_unheard(used.cache, at(key), size(key), at(value), size(value), seconds(ttl)))
	}
	// A listener can make the stack move. The copies are on the heap; those of the caller may be on the stack.
	ownKey, own := bytes.Clone(key), bytes.Clone(value)
	return errorOf(C.larder_put(used.cache, at(ownKey), size(ownKey), at(own), size(own), seconds(ttl)))
}

// Delete removes a value, if there is one. Take says whether there was.
func (cache *Cache) Delete(key []byte) error {
	used := cache.handle.Load()
	if used == nil {
		return ErrClosed
	}
	defer runtime.KeepAlive(used)
	if used.listener == 0 {
		return errorOf(C.go_remove_unheard(used.cache, at(key), size(key)))
	}
	own := bytes.Clone(key)
	return errorOf(C.larder_remove(used.cache, at(own), size(own)))
}

// TTL returns the time that a value has left, 0 if it does not expire, or ErrNotFound. The policy does not count it as a read.
func (cache *Cache) TTL(key []byte) (time.Duration, error) {
	used := cache.handle.Load()
	if used == nil {
		return 0, ErrClosed
	}
	defer runtime.KeepAlive(used)
	var left C.uint32_t
	status := C.go_ttl(used.cache, at(key), size(key), &left, nil)
	if status == C.LARDER_MISS {
		return 0, ErrNotFound
	}
	return time.Duration(left) * time.Second, errorOf(status)
}

// GetWithTTL is Get and TTL in one step.
func (cache *Cache) GetWithTTL(key []byte) ([]byte, time.Duration, error) {
	used := cache.handle.Load()
	if used == nil {
		return nil, 0, ErrClosed
	}
	defer runtime.KeepAlive(used)
	var left C.uint32_t
	var kept C.kept_value
	status := C.go_ttl(used.cache, at(key), size(key), &left, &kept)
	if status == C.LARDER_MISS {
		return nil, 0, ErrNotFound
	}
	return taken(&kept), time.Duration(left) * time.Second, errorOf(status)
}
