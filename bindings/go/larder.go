// Package larder is a cache that many goroutines share, within a number of bytes: the cache of larder, through its
// library for C (bindings/c). The library is found by pkg-config.
//
//	cache, err := larder.New(larder.Settings{BudgetBytes: 64 << 20})
//	err = cache.Set([]byte("192.0.2.1"), []byte("www.example.org"), time.Hour)
//	name, err := cache.Get([]byte("192.0.2.1")) // larder.ErrNotFound for a miss
//
// Its memory is outside of Go's heap: the garbage collector neither scans it nor counts it. A key is any bytes, a value up
// to almost 32 KiB, less in a small cache.
//
// A call into C costs a few tens of nanoseconds, more than the lookup itself. GetMulti crosses once for many keys.
//
// The package freecache has the methods of github.com/coocood/freecache over it.
package larder

/*
#cgo pkg-config: larder
#cgo noescape larder_get
#cgo nocallback larder_get
#cgo noescape larder_get_into
#cgo nocallback larder_get_into
#cgo noescape larder_get_many_into
#cgo nocallback larder_get_many_into
#cgo noescape go_put_unheard
#cgo nocallback go_put_unheard
#cgo noescape go_remove_unheard
#cgo nocallback go_remove_unheard
#cgo noescape larder_stats_get
#cgo nocallback larder_stats_get
#cgo nocallback larder_set_time
#include <stdlib.h>
#include "callbacks.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"runtime/cgo"
	"sync/atomic"
	"time"
	"weak"
)

// Errors that a program acts on. An error of a call wraps one of them, or is another one with the library's text.
var (
	// ErrNotFound is a miss.
	ErrNotFound = errors.New("larder: not found")
	// ErrTooLarge is a value that this cache does not take.
	ErrTooLarge = errors.New("larder: too large")
	// ErrBusy is a write that needs memory that a read holds. Nothing has changed; try again.
	ErrBusy = errors.New("larder: busy")
	// ErrClosed is a call after Close.
	ErrClosed = errors.New("larder: closed")
)

// A Cause is why a value left.
type Cause int

// Why a value left.
const (
	// Evicted: the budget was used up.
	Evicted Cause = C.LARDER_CAUSE_BUDGET
	// Expired: as Evicted, of a value that had expired.
	Expired Cause = C.LARDER_CAUSE_EXPIRED
	// Removed by a caller.
	Removed Cause = C.LARDER_CAUSE_REMOVED
	// Replaced: a caller stored another value.
	Replaced Cause = C.LARDER_CAUSE_REPLACED
	// Conflict: all places for its key were full; rare.
	Conflict Cause = C.LARDER_CAUSE_CONFLICT
)

// Settings of a cache. Members that are 0 have the library's default.
type Settings struct {
	// BudgetBytes is what the cache may take, everything counted; 64 MiB by default.
	BudgetBytes uint64
	// EntryBytesMean is the mean of the bytes of a key and its value. It decides how much of the budget is index.
	EntryBytesMean uint32
	// ReadersMax is how many threads can read at the same moment without waiting for each other; one per core by
	// default, up to 16.
	ReadersMax uint32
	// ValueBytesMax is the length of the longest value, up to 32768; of a key with more than 254 bytes, those after the
	// first 247 count as value, and 4 more. Such values fit, and a budget that is too small for them is refused; if they
	// are short there are more shards.
	ValueBytesMax uint64
	// Shards is the number of parts with a lock each, a power of two up to 64.
	Shards uint32
	// TimeSeconds, if it is not 0, is where time stands; SetTime moves it. By default time is the system's.
	TimeSeconds uint32
	// OnRemoved is called for every value that leaves, but for those that are there when the cache is given up: evicted,
	// removed or replaced. The slices are copies. It runs in a call that writes, which holds no lock then, and may use
	// the cache; it may store four values for each that left, and 16. If it panics, that call finishes its work, and
	// panics. It must not end its goroutine (runtime.Goexit, or FailNow of a test).
	OnRemoved func(cause Cause, key, value []byte)
}

// handle is the library's cache. It is freed by the garbage collector, when no call uses it any more.
type handle struct {
	cache     *C.larder_cache
	onRemoved func(Cause, []byte, []byte)
	// The number of this handle for C, if there is a listener.
	number cgo.Handle
}

// freed is what is left to be freed of a handle.
type freed struct {
	cache  *C.larder_cache
	number cgo.Handle
}

// A Cache can be used by any number of goroutines at once.
type Cache struct {
	handle atomic.Pointer[handle]
}

// New makes a cache.
func New(settings Settings) (*Cache, error) {
	var given C.larder_settings
	if C.larder_settings_init(&given, C.LARDER_ABI_VERSION, C.sizeof_larder_settings) != C.LARDER_OK {
		return nil, fmt.Errorf("larder: the library has version %d of its interface, the header %d; build again",
			C.larder_abi_version(), C.LARDER_ABI_VERSION)
	}
	if settings.BudgetBytes != 0 {
		given.budget_bytes = C.uint64_t(settings.BudgetBytes)
	}
	given.entry_bytes_mean = C.uint32_t(settings.EntryBytesMean)
	given.readers_max = C.uint32_t(settings.ReadersMax)
	given.value_bytes_max = C.uint64_t(settings.ValueBytesMax)
	given.shards = C.uint32_t(settings.Shards)
	given.time_s = C.uint32_t(settings.TimeSeconds)
	made := &handle{onRemoved: settings.OnRemoved}
	if made.onRemoved != nil {
		// Weak: a listener that uses its cache must not keep it.
		made.number = cgo.NewHandle(weak.Make(made))
	}
	if err := withText(func() int32 { return C.go_new(&given, C.uintptr_t(made.number), &made.cache) }); err != nil {
		if made.number != 0 {
			made.number.Delete()
		}
		return nil, err
	}
	runtime.AddCleanup(made, func(freed freed) {
		C.larder_free(freed.cache)
		if freed.number != 0 {
			freed.number.Delete()
		}
	}, freed{made.cache, made.number})
	cache := &Cache{}
	cache.handle.Store(made)
	return cache, nil
}

// Close gives the cache up: later calls return ErrClosed. Its memory returns to the system after a garbage collection that
// finds no call using it. The collector doesn't see that memory: call runtime.GC to have it back soon.
func (cache *Cache) Close() error {
	cache.handle.Store(nil)
	return nil
}

// raise continues the panic of a listener, if there was one during a write.
func raise(number C.uintptr_t) {
	if number != 0 {
		caught := cgo.Handle(number)
		value := caught.Value()
		caught.Delete()
		panic(value)
	}
}

// errorOf is the error of a status.
func errorOf(status int32) error {
	if status >= 0 {
		return nil
	}
	return errorWith(status, C.GoString(C.larder_status_text(C.int32_t(status))))
}

// withText runs a call, and returns its error with the text that the library keeps for the thread. Calls that fail
// seldom and in few ways do without.
func withText(body func() int32) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	status := body()
	if status >= 0 {
		return nil
	}
	return errorWith(status, C.GoString(C.larder_last_error()))
}

func errorWith(status int32, text string) error {
	switch status {
	case C.LARDER_ERROR_TOO_LARGE:
		return fmt.Errorf("%w: %s", ErrTooLarge, text)
	case C.LARDER_ERROR_BUSY:
		return fmt.Errorf("%w: %s", ErrBusy, text)
	}
	return fmt.Errorf("larder: %s", text)
}

// seconds is a TTL in whole seconds, rounded up; 0 and less is for as long as there is room.
func seconds(ttl time.Duration) C.uint32_t {
	if ttl <= 0 {
		return 0
	}
	whole := (ttl-1)/time.Second + 1
	return C.uint32_t(min(whole, math.MaxUint32-1))
}
