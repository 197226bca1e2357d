package larder

// #include <stdlib.h>
// #include "callbacks.h"
import "C"

import (
	"runtime"
	"runtime/cgo"
	"time"
	"unsafe"
	"weak"
)

// taken is a value that a call gave back, as bytes of Go; nil if there was none.
func taken(kept *C.kept_value) []byte {
	if kept.at == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(kept.at))
	bytes := make([]byte, int(kept.bytes))
	copy(bytes, unsafe.Slice((*byte)(unsafe.Pointer(kept.at)), len(bytes)))
	return bytes
}

// Add stores a value under a key that has none. Otherwise it returns a copy of the one that is there, and true.
func (cache *Cache) Add(key, value []byte, ttl time.Duration) (there []byte, isThere bool, err error) {
	used := cache.handle.Load()
	if used == nil {
		return nil, false, ErrClosed
	}
	defer runtime.KeepAlive(used)
	var kept C.kept_value
	var panicked C.uintptr_t
	status := C.go_add(used.cache, at(key), size(key), at(value), size(value), seconds(ttl), &kept, &panicked)
	there = taken(&kept)
	raise(panicked)
	return there, status == C.LARDER_PRESENT, errorOf(status)
}

// Exchange is Set, and returns the value that was there, and whether there was one.
func (cache *Cache) Exchange(key, value []byte, ttl time.Duration) (old []byte, wasThere bool, err error) {
	used := cache.handle.Load()
	if used == nil {
		return nil, false, ErrClosed
	}
	defer runtime.KeepAlive(used)
	var kept C.kept_value
	var panicked C.uintptr_t
	status := C.go_exchange(used.cache, at(key), size(key), at(value), size(value), seconds(ttl), &kept, &panicked)
	old = taken(&kept)
	raise(panicked)
	return old, status == C.LARDER_OK, errorOf(status)
}

// Take removes a value, and returns it, and whether there was one.
func (cache *Cache) Take(key []byte) (old []byte, wasThere bool, err error) {
	used := cache.handle.Load()
	if used == nil {
		return nil, false, ErrClosed
	}
	defer runtime.KeepAlive(used)
	var kept C.kept_value
	var panicked C.uintptr_t
	status := C.go_take(used.cache, at(key), size(key), &kept, &panicked)
	old = taken(&kept)
	raise(panicked)
	return old, status == C.LARDER_OK, errorOf(status)
}

// A Change is what Compute does with a key: make one by Keep, Insert, Renew or Discard.
type Change struct {
	action C.int32_t
	value  []byte
	ttl    time.Duration
}

// Keep changes nothing.
func Keep() Change { return Change{action: C.LARDER_KEEP} }

// Insert stores a value for a time, 0 for as long as there is room.
func Insert(value []byte, ttl time.Duration) Change { return Change{C.LARDER_INSERT, value, ttl} }

// Renew stores a value that expires when the present one would.
func Renew(value []byte) Change { return Change{C.LARDER_UPDATE, value, 0} }

// Discard removes the value.
func Discard() Change { return Change{action: C.LARDER_REMOVE} }

// computing is the state of a Compute: it outlives each call of the function.
type computing struct {
	change func(value []byte, isThere bool) Change
	given  unsafe.Pointer
	panic  any
}

// Compute calls change with a copy of the value of a key, and does what it returns, as one step: if the key is changed
// meanwhile, change is called again with the newer value. It says whether there was a value. change must not change that
// key itself, nor end its goroutine. A panic of change passes through, and nothing has changed.
func (cache *Cache) Compute(key []byte, change func(value []byte, isThere bool) Change) (wasThere bool, err error) {
	used := cache.handle.Load()
	if used == nil {
		return false, ErrClosed
	}
	defer runtime.KeepAlive(used)
	state := &computing{change: change}
	number := cgo.NewHandle(state)
	var status int32
	var panicked C.uintptr_t
	err = withText(func() int32 {
		status = C.go_compute(used.cache, at(key), size(key), C.uintptr_t(number), &panicked)
		return status
	})
	number.Delete()
	C.free(state.given)
	raise(panicked)
	if state.panic != nil {
		panic(state.panic)
	}
	return status == C.LARDER_OK, err
}

//export larderGoChange
func larderGoChange(number C.uintptr_t, value *C.uint8_t, bytes C.size_t, given *C.larder_new_value) (action C.int32_t) {
	state := cgo.Handle(number).Value().(*computing)
	defer func() {
		// It must not unwind through C.
		if state.panic = recover(); state.panic != nil {
			action = C.LARDER_KEEP
		}
	}()
	var there []byte
	if value != nil {
		there = C.GoBytes(unsafe.Pointer(value), C.int(bytes))
	}
	change := state.change(there, value != nil)
	C.free(state.given)
	state.given = C.CBytes(change.value)
	given.at = (*C.uint8_t)(state.given)
	given.bytes = C.size_t(len(change.value))
	given.ttl_s = seconds(change.ttl)
	return change.action
}

//export larderGoRemoved
func larderGoRemoved(number C.uintptr_t, cause C.int, key *C.uint8_t, keyBytes C.size_t, value *C.uint8_t, valueBytes C.size_t) (panicked C.uintptr_t) {
	// The write that calls this keeps the handle.
	used := cgo.Handle(number).Value().(weak.Pointer[handle]).Value()
	if used == nil {
		return 0
	}
	defer func() {
		if value := recover(); value != nil {
			panicked = C.uintptr_t(cgo.NewHandle(value))
		}
	}()
	used.onRemoved(Cause(cause), C.GoBytes(unsafe.Pointer(key), C.int(keyBytes)), C.GoBytes(unsafe.Pointer(value), C.int(valueBytes)))
	return 0
}

//export larderGoForget
func larderGoForget(panicked C.uintptr_t) {
	cgo.Handle(panicked).Delete()
}
