package freecache

import "larder"

// An Iterator walks over all entries.
type Iterator struct {
	cache *Cache
	walk  *larder.Walk
}

// An Entry of a walk.
type Entry struct {
	Key      []byte
	Value    []byte
	ExpireAt uint32
}

// NewIterator begins a walk over all live entries, in no order.
func (cache *Cache) NewIterator() *Iterator {
	cache.tell()
	// It can fail only after a defect of larder, or Close. The walk is empty then.
	walk, _ := cache.cache.Walk()
	return &Iterator{cache, walk}
}

// Next returns the next entry that has not expired, or nil at the end.
func (it *Iterator) Next() *Entry {
	if it.walk == nil {
		return nil
	}
	it.cache.tell()
	shown, err := it.walk.Next()
	if err != nil {
		it.walk.Close()
		return nil
	}
	return &Entry{shown.Key, shown.Value, shown.Life.Expires}
}
