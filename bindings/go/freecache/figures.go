package freecache

import "larder"

// stats are the figures since the last ResetStatistics. A cache that has failed has none.
func (cache *Cache) stats() larder.Stats {
	cache.lock.Lock()
	defer cache.lock.Unlock()
	now, err := cache.cache.Stats()
	if err != nil {
		return larder.Stats{}
	}
	before := cache.before
	now.Hits -= before.Hits
	now.Misses -= before.Misses
	now.ExpiredMisses -= before.ExpiredMisses
	now.Updated -= before.Updated
	now.Evicted -= before.Evicted
	now.EvictedExpired -= before.EvictedExpired
	now.Conflicts -= before.Conflicts
	return now
}

// ResetStatistics sets all counters but TouchedCount to 0.
func (cache *Cache) ResetStatistics() {
	cache.lock.Lock()
	defer cache.lock.Unlock()
	if now, err := cache.cache.Stats(); err == nil {
		cache.before = now
	}
}

// EvacuateCount is the number of entries that were evicted before they expired.
func (cache *Cache) EvacuateCount() int64 {
	stats := cache.stats()
	return int64(stats.Evicted - stats.EvictedExpired + stats.Conflicts)
}

// ExpiredCount is the number of entries that were evicted after they had expired, and of lookups that found one that had.
func (cache *Cache) ExpiredCount() int64 {
	stats := cache.stats()
	return int64(stats.ExpiredMisses + stats.EvictedExpired)
}

// EntryCount is the number of entries, expired ones included, which stay until their memory is needed.
func (cache *Cache) EntryCount() int64 { return int64(cache.stats().Entries) }

// HitCount is the number of lookups that found a value.
func (cache *Cache) HitCount() int64 { return int64(cache.stats().Hits) }

// MissCount is the number of lookups that did not.
func (cache *Cache) MissCount() int64 { return int64(cache.stats().Misses) }

// LookupCount is the number of lookups.
func (cache *Cache) LookupCount() int64 {
	stats := cache.stats()
	return int64(stats.Hits + stats.Misses)
}

// HitRate is the share of lookups that found a value, 0 without lookups.
func (cache *Cache) HitRate() float64 {
	stats := cache.stats()
	if stats.Hits+stats.Misses == 0 {
		return 0
	}
	return float64(stats.Hits) / float64(stats.Hits+stats.Misses)
}

// OverwriteCount is the number of values that replaced another one.
func (cache *Cache) OverwriteCount() int64 { return int64(cache.stats().Updated) }

// TouchedCount is the number of calls of Touch that found a value.
func (cache *Cache) TouchedCount() int64 { return cache.touched.Load() }
