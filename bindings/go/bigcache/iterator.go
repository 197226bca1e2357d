package bigcache

import (
	"time"

	"larder"
)

type iteratorError string

func (e iteratorError) Error() string { return string(e) }

// Errors of an iterator, with the names that programs know, and the text of the one that is returned here.
const (
	ErrInvalidIteratorState = iteratorError("Iterator is in invalid state. Use SetNext() to move to next position")
	ErrCannotRetrieveEntry  = iteratorError("the entry has left")
)

// An EntryInfo is an entry of an iterator.
type EntryInfo struct {
	entry  larder.Entry
	ttl    time.Duration
	hasher Hasher
}

// Key of the entry.
func (info EntryInfo) Key() string { return string(info.entry.Key) }

// Value of the entry.
func (info EntryInfo) Value() []byte { return info.entry.Value }

// Hash of the key by the Hasher of the Config; 0 of no entry.
func (info EntryInfo) Hash() uint64 {
	if info.hasher == nil {
		return 0
	}
	return info.hasher.Sum64(info.Key())
}

// Timestamp is the second since 1970 in which the entry was stored, or 0 if it lives as long as there is room. larder's clock
// may be a quarter of a second late.
func (info EntryInfo) Timestamp() uint64 {
	if info.ttl == 0 {
		return 0
	}
	return uint64(info.entry.Life.Expires) - uint64(info.ttl/time.Second)
}

// An EntryInfoIterator walks over all entries that have not expired, in no order. One goroutine uses it. While the cache is
// used, any entry may be shown once, twice or not at all.
type EntryInfoIterator struct {
	cache   *BigCache
	walk    *larder.Walk
	current EntryInfo
	isValid bool
}

// Iterator begins a walk.
func (cache *BigCache) Iterator() *EntryInfoIterator {
	// It can fail only after a defect of larder, or Close. The walk is empty then.
	walk, _ := cache.cache.Walk()
	return &EntryInfoIterator{cache: cache, walk: walk}
}

// SetNext moves to the next entry; false at the end.
func (it *EntryInfoIterator) SetNext() bool {
	it.isValid = false
	if it.walk == nil {
		return false
	}
	entry, err := it.walk.Next()
	if err != nil {
		it.walk.Close()
		return false
	}
	it.current = EntryInfo{entry, it.cache.ttl, it.cache.hasher}
	it.isValid = true
	return true
}

// Value is the entry that SetNext moved to.
func (it *EntryInfoIterator) Value() (EntryInfo, error) {
	if !it.isValid {
		return EntryInfo{}, ErrInvalidIteratorState
	}
	return it.current, nil
}
