package larder

// #include "callbacks.h"
import "C"

import (
	"runtime"
	"unsafe"
)

// GetMulti returns copies of the values of many keys, nil for a miss and an empty slice for an empty value. It crosses into C
// once for all that fit into a buffer.
func (cache *Cache) GetMulti(keys [][]byte) ([][]byte, error) {
	used := cache.handle.Load()
	if used == nil {
		return nil, ErrClosed
	}
	defer runtime.KeepAlive(used)
	values := make([][]byte, len(keys))
	room := 0
	for _, key := range keys {
		room += len(key)
	}
	joined := make([]byte, 0, room)
	ends := make([]C.size_t, len(keys))
	places := make([]C.larder_place, len(keys))
	buffer := make([]byte, max(64*len(keys), 256))
	for first := 0; first < len(keys); {
		joined = joined[:0]
		for number, key := range keys[first:] {
			joined = append(joined, key...)
			ends[number] = C.size_t(len(joined))
		}
		var done C.size_t
		status := C.larder_get_many_into(used.cache, at(joined), unsafe.SliceData(ends), C.size_t(len(keys)-first),
			at(buffer), size(buffer), unsafe.SliceData(places), &done)
		if status < 0 {
			return nil, errorOf(status)
		}
		for number, place := range places[:done] {
			if place.at != C.SIZE_MAX {
				begin, end := int(place.at), int(place.at+place.bytes)
				values[first+number] = buffer[begin:end:end]
			}
		}
		first += int(done)
		if status == C.LARDER_BUFFER {
			// The values that were found keep the old one.
			buffer = make([]byte, max(64*(len(keys)-first), 2*len(buffer)))
		}
	}
	return values, nil
}
