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
	var needed C.size_t
	room := buffer[len(buffer):cap(buffer)]
	switch status := C.larder_get_into(used.cache, at(key), size(key), at(room), size(room), &needed); status {
	case C.LARDER_OK:
		return buffer[:len(buffer)+int(needed)], nil
	case C.LARDER_MISS:
		return buffer, ErrNotFound
	case C.LARDER_BUFFER:
		// Not again in the same way, which would count as another read.
		value, _, err := cache.Peek(key)
		if err != nil {
			return buffer, err
		}
		return append(buffer, value...), nil
	default:
		return buffer, errorOf(status)
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

// Set stores a value for a time in seconds, rounded up; 0 for as long as there is room. Time passes in whole seconds, so the
// value can expire up to one early.
func (cache *Cache) Set(key, value []byte, ttl time.Duration) error {
	used := cache.handle.Load()
	if used == nil {
		return ErrClosed
	}
	defer runtime.KeepAlive(used)
	if used.onRemoved == nil {
		return errorOf(C.go_put_unheard(used.cache, at(key), size(key), at(value), size(value), seconds(ttl)))
	}
	// A listener can make the stack move. The copies are on the heap; those of the caller may be on the stack.
	ownKey, own := bytes.Clone(key), bytes.Clone(value)
	var panicked C.uintptr_t
	status := C.go_put(used.cache, at(ownKey), size(ownKey), at(own), size(own), seconds(ttl), &panicked)
	raise(panicked)
	return errorOf(status)
}

// Delete removes a value, if there is one. Take says whether there was.
func (cache *Cache) Delete(key []byte) error {
	used := cache.handle.Load()
	if used == nil {
		return ErrClosed
	}
	defer runtime.KeepAlive(used)
	if used.onRemoved == nil {
		return errorOf(C.go_remove_unheard(used.cache, at(key), size(key)))
	}
	own := bytes.Clone(key)
	var panicked C.uintptr_t
	status := C.go_remove(used.cache, at(own), size(own), &panicked)
	raise(panicked)
	return errorOf(status)
}

// A Life is how long a value lives.
type Life struct {
	// TTL is the time that it has left, 0 if it does not expire.
	TTL time.Duration
	// Expires is the first second in which it has expired, by the cache's clock, 0 if it does not expire. The system's
	// clock counts from 1970.
	Expires uint32
}

func lifeOf(life C.larder_life) Life {
	return Life{time.Duration(life.left_s) * time.Second, uint32(life.expires_s)}
}

// TTL returns how long a value lives, or ErrNotFound. Neither the figures nor the policy count it as a read.
func (cache *Cache) TTL(key []byte) (Life, error) {
	used := cache.handle.Load()
	if used == nil {
		return Life{}, ErrClosed
	}
	defer runtime.KeepAlive(used)
	var life C.larder_life
	status := C.go_peek(used.cache, at(key), size(key), &life, nil)
	if status == C.LARDER_MISS {
		return Life{}, ErrNotFound
	}
	return lifeOf(life), errorOf(status)
}

// Peek is Get and TTL in one step. Neither the figures nor the policy count it as a read.
func (cache *Cache) Peek(key []byte) ([]byte, Life, error) {
	used := cache.handle.Load()
	if used == nil {
		return nil, Life{}, ErrClosed
	}
	defer runtime.KeepAlive(used)
	var life C.larder_life
	var kept C.kept_value
	status := C.go_peek(used.cache, at(key), size(key), &life, &kept)
	if status == C.LARDER_MISS {
		return nil, Life{}, ErrNotFound
	}
	return taken(&kept), lifeOf(life), errorOf(status)
}

// Touch gives a value a new time from now, 0 for as long as there is room; ErrNotFound if there is none. The value stays:
// OnRemoved is not called.
func (cache *Cache) Touch(key []byte, ttl time.Duration) error {
	used := cache.handle.Load()
	if used == nil {
		return ErrClosed
	}
	defer runtime.KeepAlive(used)
	status := C.larder_touch(used.cache, at(key), size(key), seconds(ttl))
	if status == C.LARDER_MISS {
		return ErrNotFound
	}
	return errorOf(status)
}
