package freecache

import (
	"time"

	"larder"
)

// An Iterator walks over all entries.
type Iterator struct {
	walk *larder.Walk
	now  uint32
}

// An Entry of a walk.
type Entry struct {
	Key      []byte
	Value    []byte
	ExpireAt uint32
}

// NewIterator begins a walk over all live entries, in no order.
func (cache *Cache) NewIterator() *Iterator {
	now := cache.tell()
	// It can fail only after a defect of larder. The walk is empty then.
	walk, _ := cache.cache.Walk()
	return &Iterator{walk, now}
}

// Next returns the next entry, or nil at the end.
func (it *Iterator) Next() *Entry {
	if it.walk == nil {
		return nil
	}
	shown, err := it.walk.Next()
	if err != nil {
		it.walk.Close()
		return nil
	}
	entry := &Entry{Key: shown.Key, Value: shown.Value}
	if shown.TTL > 0 {
		entry.ExpireAt = it.now + uint32(shown.TTL/time.Second)
	}
	return entry
}
