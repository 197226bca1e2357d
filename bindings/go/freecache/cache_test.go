package freecache

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// A timer that is set.
type timer struct{ now atomic.Uint32 }

func (timer *timer) Now() uint32 { return timer.now.Load() }

func made(now uint32) (*Cache, *timer) {
	timer := &timer{}
	timer.now.Store(now)
	return NewCacheCustomTimer(0, timer), timer
}

func TestExpiry(t *testing.T) {
	cache, timer := made(100)
	key := []byte("k")
	check := func(expected uint32) {
		t.Helper()
		value, expires, err := cache.GetWithExpiration(key)
		if string(value) != "v" || expires != expected || err != nil {
			t.Fatal(value, expires, err)
		}
		it := cache.NewIterator()
		if entry := it.Next(); entry == nil || entry.ExpireAt != expected {
			t.Fatal(entry)
		}
		if entry := it.Next(); entry != nil || it.Next() != nil {
			t.Fatal(entry)
		}
	}
	if err := cache.Set(key, []byte("v"), 100); err != nil {
		t.Fatal(err)
	}
	check(200)
	timer.now.Store(150)
	check(200)
	if left, err := cache.TTL(key); left != 50 || err != nil {
		t.Fatal(left, err)
	}
	if err := cache.Touch(key, 10); err != nil || cache.TouchedCount() != 1 || cache.OverwriteCount() != 0 {
		t.Fatal(err, cache.TouchedCount(), cache.OverwriteCount())
	}
	check(160)
	it := cache.NewIterator()
	timer.now.Store(160)
	if entry := it.Next(); entry != nil {
		t.Fatal(entry)
	}
	if _, err := cache.Get(key); err != ErrNotFound || cache.ExpiredCount() != 1 {
		t.Fatal(err, cache.ExpiredCount())
	}
	// Time may begin at 0, and go back.
	timer.now.Store(0)
	cache.Set(key, []byte("v"), 5)
	check(5)
	if cache := NewCacheCustomTimer(0, nil); cache.Set(key, key, 1) != nil {
		t.Fatal("no timer")
	}
}

func TestFigures(t *testing.T) {
	cache, _ := made(1)
	key, other := []byte("k"), []byte("other")
	expect := func(hits, misses int64) {
		t.Helper()
		if cache.HitCount() != hits || cache.MissCount() != misses || cache.LookupCount() != hits+misses {
			t.Fatal(cache.HitCount(), cache.MissCount())
		}
	}
	cache.Set(key, key, 0)
	cache.Get(key)
	cache.GetFn(key, func([]byte) error { return nil })
	cache.GetWithBuf(key, nil)
	cache.GetWithExpiration(key)
	cache.GetOrSet(key, other, 0)
	expect(5, 0)
	cache.Get(other)
	cache.GetWithExpiration(other)
	cache.GetOrSet(other, other, 0)
	cache.SetAndGet(other, key, 0)
	cache.Update(other, func(value []byte, found bool) ([]byte, bool, int) { return value, true, 0 })
	expect(7, 3)
	cache.Peek(key)
	cache.PeekFn(key, func([]byte) error { return nil })
	cache.Peek([]byte("none"))
	cache.TTL(key)
	cache.Touch(key, 5)
	expect(7, 3)
	if rate := cache.HitRate(); rate != 0.7 || cache.OverwriteCount() != 2 || cache.EntryCount() != 2 {
		t.Fatal(rate, cache.OverwriteCount(), cache.EntryCount())
	}
	cache.ResetStatistics()
	expect(0, 0)
	if cache.HitRate() != 0 || cache.OverwriteCount() != 0 || cache.TouchedCount() != 1 {
		t.Fatal("not reset")
	}
	if !cache.Del(key) || cache.Del(key) || cache.EntryCount() != 1 {
		t.Fatal("Del")
	}
	cache.Clear()
	if cache.EntryCount() != 0 {
		t.Fatal("Clear")
	}
}

func TestErrors(t *testing.T) {
	cache, _ := made(1)
	long := make([]byte, 65536)
	_, errGet := cache.GetOrSet(long, nil, 0)
	_, _, errExchange := cache.SetAndGet(long, nil, 0)
	_, _, errUpdate := cache.Update(long, nil)
	for _, err := range []error{cache.Set(long, nil, 0), cache.Touch(long, 0), errGet, errExchange, errUpdate} {
		if err != ErrLargeKey {
			t.Fatal(err)
		}
	}
	if err := cache.Set([]byte("k"), make([]byte, 40_000), 0); err != ErrLargeEntry {
		t.Fatal(err)
	}
	if cache.Close() != nil || cache.Set(nil, nil, 0) == nil || cache.NewIterator().Next() != nil || cache.HitRate() != 0 {
		t.Fatal("closed")
	}
}

// The cache's time is the timer's once no call is running, however many tell it.
func TestManyTell(t *testing.T) {
	cache, timer := made(1)
	key := []byte("k")
	var all sync.WaitGroup
	for range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 2000 {
				timer.now.Add(1)
				cache.Get(key)
			}
		}()
	}
	all.Wait()
	cache.Set(key, key, 7)
	if _, expires, err := cache.GetWithExpiration(key); expires != 8001+7 || err != nil {
		t.Fatal(expires, err)
	}
}

// An iterator during Clear and Set shows whole entries only.
func TestIteratorMeanwhile(t *testing.T) {
	cache := NewCache(4 << 20)
	var over atomic.Bool
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		defer all.Done()
		for round := 0; !over.Load(); round++ {
			for number := range 200 {
				text := []byte(fmt.Sprint(number))
				cache.Set(text, bytes.Repeat(text, 20), round%2)
			}
			cache.Clear()
		}
	}()
	for range 300 {
		for it, entry := cache.NewIterator(), (*Entry)(nil); ; {
			if entry = it.Next(); entry == nil {
				break
			}
			if !bytes.Equal(entry.Value, bytes.Repeat(entry.Key, 20)) {
				t.Fatalf("%q: %q", entry.Key, entry.Value)
			}
		}
	}
	over.Store(true)
	all.Wait()
}

func TestCachedTimer(t *testing.T) {
	timer := NewCachedTimer()
	if now := (systemTimer{}).Now(); timer.Now() > now || timer.Now()+5 < now {
		t.Fatal(timer.Now(), now)
	}
	timer.Stop()
	timer.Stop()
}
