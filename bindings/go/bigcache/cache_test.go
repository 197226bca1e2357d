package bigcache

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"larder"
)

func made(t *testing.T, config Config) *BigCache {
	t.Helper()
	if config.Shards == 0 {
		config.Shards = 1
	}
	cache, err := New(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	return cache
}

func TestConfigsAreChecked(t *testing.T) {
	for text, config := range map[string]Config{
		"Shards number must be power of two": {Shards: -8},
		"MaxEntrySize must be >= 0":          {Shards: 1, MaxEntrySize: -1},
		"MaxEntriesInWindow must be >= 0":    {Shards: 1, MaxEntriesInWindow: math.MinInt},
		"HardMaxCacheSize must be >= 0":      {Shards: 1, HardMaxCacheSize: -1},
	} {
		if cache, err := NewBigCache(config); cache != nil || err == nil || err.Error() != text {
			t.Error(text, cache, err)
		}
	}
	for _, shards := range []int{0, 3, math.MinInt} {
		if cache, err := NewBigCache(Config{Shards: shards}); cache != nil || err == nil {
			t.Error(shards, cache, err)
		}
	}
	// More than there can be is an error, not a panic.
	for _, config := range []Config{
		{Shards: 1, MaxEntriesInWindow: math.MaxInt, MaxEntrySize: math.MaxInt},
		{Shards: 1, HardMaxCacheSize: math.MaxInt},
	} {
		if cache, err := NewBigCache(config); cache != nil || err == nil {
			t.Error(config, cache, err)
		}
	}
}

func TestLimitsOfMemory(t *testing.T) {
	for expected, config := range map[int]Config{
		4 << 20:     {HardMaxCacheSize: 1},
		9 << 20:     {HardMaxCacheSize: 9, MaxEntriesInWindow: 1 << 20, MaxEntrySize: 500},
		64 << 20:    {MaxEntriesInWindow: 10, MaxEntrySize: 10},
		600_000_000: DefaultConfig(time.Second),
	} {
		if bytes := made(t, config).Capacity(); bytes != expected {
			t.Error(expected, bytes)
		}
	}
	cache := made(t, Config{HardMaxCacheSize: 4, MaxEntrySize: 100})
	for number := range 100_000 {
		if err := cache.Set(fmt.Sprint(number), make([]byte, 90)); err != nil {
			t.Fatal(err)
		}
	}
	if entries := cache.Len(); entries < 20_000 || entries*90 > 4<<20 {
		t.Fatal(entries)
	}
}

func TestEntries(t *testing.T) {
	cache := made(t, Config{HardMaxCacheSize: 4})
	if err := cache.Append("k", []byte("one")); err != nil {
		t.Fatal(err)
	}
	if err := cache.Append("k", []byte(" two")); err != nil {
		t.Fatal(err)
	}
	if entry, info, err := cache.GetWithInfo("k"); string(entry) != "one two" || info != (Response{}) || err != nil {
		t.Fatal(entry, info, err)
	}
	if err := cache.Set("empty", nil); err != nil {
		t.Fatal(err)
	}
	entries, err := cache.GetMulti([]string{"none", "k", "empty"})
	if err != nil || entries[0] != nil || string(entries[1]) != "one two" || entries[2] == nil || len(entries[2]) != 0 {
		t.Fatal(entries, err)
	}
	large := make([]byte, 32<<10)
	if err := cache.Set("large", large); err != ErrEntryTooLarge {
		t.Fatal(err)
	}
	// What can't be stored is not a reason to read what was there before.
	if err := cache.Set("empty", large); err != ErrEntryTooLarge {
		t.Fatal(err)
	}
	if entry, err := cache.Get("empty"); entry != nil || err != ErrEntryNotFound {
		t.Fatal(entry, err)
	}
	// What can't be appended leaves what is there.
	if err := cache.Append("k", large); err != ErrEntryTooLarge {
		t.Fatal(err)
	}
	if entry, err := cache.Get("k"); string(entry) != "one two" || err != nil {
		t.Fatal(entry, err)
	}
	if err := cache.Set("", []byte("of no key")); err != nil {
		t.Fatal(err)
	}
	if entry, err := cache.Get(""); string(entry) != "of no key" || err != nil {
		t.Fatal(entry, err)
	}
}

func TestAppendsAtOnce(t *testing.T) {
	cache := made(t, Config{HardMaxCacheSize: 16})
	var all sync.WaitGroup
	for range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 1000 {
				if err := cache.Append("k", []byte("abc")); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	if entry, err := cache.Get("k"); err != nil || !bytes.Equal(entry, bytes.Repeat([]byte("abc"), 4000)) {
		t.Fatal(len(entry), err)
	}
}

type left struct {
	key, entry string
	reason     RemoveReason
}

func TestReasons(t *testing.T) {
	var heard []left
	listener := func(key string, entry []byte, reason RemoveReason) {
		heard = append(heard, left{key, string(entry), reason})
	}
	run := func(config Config) *BigCache {
		heard = nil
		config.HardMaxCacheSize = 4
		cache := made(t, config)
		for _, err := range []error{
			cache.Set("a", []byte("old")), cache.Set("a", []byte("1")), cache.Append("a", []byte("2")),
			cache.Delete("a"), cache.Set("b", nil), cache.Reset(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		return cache
	}
	cache := run(Config{OnRemoveWithReason: listener})
	if !slices.Equal(heard, []left{{"a", "12", Deleted}, {"b", "", Deleted}}) {
		t.Fatal(heard)
	}
	heard = nil
	for number := 0; len(heard) == 0 && number < 100_000; number++ {
		if err := cache.Set(fmt.Sprint(number), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if heard == nil || heard[0].reason != NoSpace || len(heard[0].entry) != 1000 {
		t.Fatal(heard)
	}
	run(Config{OnRemoveWithReason: listener}.OnRemoveFilterSet(NoSpace, Expired))
	if heard != nil {
		t.Fatal(heard)
	}
	run(Config{OnRemoveWithReason: listener}.OnRemoveFilterSet(NoSpace).OnRemoveFilterSet(Deleted))
	if len(heard) != 2 {
		t.Fatal(heard)
	}
	run(Config{OnRemoveWithReason: listener}.OnRemoveFilterSet(63))
	if heard != nil {
		t.Fatal(heard)
	}
	keys := ""
	// Without a reason it comes first, and has no filter.
	plain := Config{OnRemoveWithReason: listener, OnRemove: func(key string, _ []byte) { keys += key }}
	run(plain.OnRemoveFilterSet(NoSpace))
	if heard != nil || keys != "ab" {
		t.Fatal(heard, keys)
	}
}

func TestExpiredEntriesAreHeard(t *testing.T) {
	var expired, others int
	listener := func(key string, _ []byte, reason RemoveReason) {
		// On a slow machine those that need the memory may expire, too.
		switch {
		case reason != Expired:
			others++
		case key[0] == 'a':
			expired++
		}
	}
	config := Config{HardMaxCacheSize: 4, LifeWindow: time.Second, OnRemoveWithReason: listener}
	cache := made(t, config.OnRemoveFilterSet(Expired))
	for number := range 101 {
		if err := cache.Set(fmt.Sprint("a", number), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	// All expire with the last, or before.
	for {
		if _, err := cache.Get("a100"); err == ErrEntryNotFound {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if cache.Len() != 101 || expired+others != 0 {
		t.Fatal(cache.Len(), expired, others)
	}
	// Of no expired entry is anything left for a call, nor is one heard of that is replaced.
	if err := cache.Delete("a100"); err != ErrEntryNotFound {
		t.Fatal(err)
	}
	if err := cache.Append("a100", []byte("more")); err != nil {
		t.Fatal(err)
	}
	if entry, err := cache.Get("a100"); string(entry) != "more" || err != nil || expired != 0 {
		t.Fatal(entry, err, expired)
	}
	for number := 0; expired < 100 && number < 1_000_000; number++ {
		if err := cache.Set(fmt.Sprint("b", number), make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	if expired != 100 || others != 0 {
		t.Fatal(expired, others)
	}
}

func TestLifeWindow(t *testing.T) {
	for _, each := range []struct{ window, clean, expected time.Duration }{
		{0, 0, 0},
		{time.Second - 1, -1, 0},
		{-1, 1, 0},
		{math.MinInt64, 1, 0},
		{0, 1, time.Second},
		{time.Second - 1, 1, time.Second},
		{time.Second, 0, 2 * time.Second},
		{2500 * time.Millisecond, 0, 3 * time.Second},
		{math.MaxInt32 * time.Second, 0, (math.MaxInt32 + 1) * time.Second},
		{math.MaxInt32*time.Second + 1, 0, 0},
		{math.MaxInt64, 1, 0},
	} {
		config := Config{LifeWindow: each.window, CleanWindow: each.clean}
		if ttl := config.ttl(); ttl != each.expected {
			t.Error(each, ttl)
		}
	}
	// The longest is not beyond what larder's seconds can tell.
	cache := made(t, Config{HardMaxCacheSize: 4, LifeWindow: math.MaxInt32 * time.Second})
	if err := cache.Set("a", nil); err != nil {
		t.Fatal(err)
	}
	it := cache.Iterator()
	if !it.SetNext() {
		t.Fatal("no entry")
	}
	info, err := it.Value()
	if now := uint64(time.Now().Unix()); err != nil || info.Timestamp() > now || info.Timestamp() < now-60 {
		t.Fatal(info.Timestamp(), err)
	}
}

func TestIterator(t *testing.T) {
	cache := made(t, Config{HardMaxCacheSize: 4, LifeWindow: 10 * time.Second})
	// larder's clock may be late.
	first := uint64(time.Now().Unix()) - 1
	for _, key := range []string{"a", "b"} {
		if err := cache.Set(key, []byte("v"+key)); err != nil {
			t.Fatal(err)
		}
	}
	last := uint64(time.Now().Unix())
	it := cache.Iterator()
	if info, err := it.Value(); err != ErrInvalidIteratorState || info.Hash() != 0 || info.Key() != "" || info.Timestamp() != 0 {
		t.Fatal(info, err)
	}
	keys := ""
	for it.SetNext() {
		info, err := it.Value()
		if err != nil || string(info.Value()) != "v"+info.Key() || info.Timestamp() < first || info.Timestamp() > last {
			t.Fatal(info, err, first, last)
		}
		// FNV-1a of "a", as its authors publish it.
		if info.Key() == "a" && info.Hash() != 0xaf63dc4c8601ec8c {
			t.Fatal(info.Hash())
		}
		keys += info.Key()
	}
	if _, err := it.Value(); err != ErrInvalidIteratorState || it.SetNext() || keys != "ab" && keys != "ba" {
		t.Fatal(err, keys)
	}
	endless := made(t, Config{HardMaxCacheSize: 4, Hasher: seven{}})
	if err := endless.Set("a", nil); err != nil {
		t.Fatal(err)
	}
	it = endless.Iterator()
	if !it.SetNext() {
		t.Fatal("no entry")
	}
	if info, err := it.Value(); err != nil || info.Timestamp() != 0 || info.Hash() != 7 {
		t.Fatal(info, err)
	}
}

type seven struct{}

func (seven) Sum64(string) uint64 { return 7 }

func TestCounters(t *testing.T) {
	cache := made(t, Config{HardMaxCacheSize: 4})
	use := func() {
		cache.Set("a", nil)
		cache.Get("a")
		cache.Get("none")
		cache.Get("none")
		cache.Delete("a")
		if err := cache.Delete("a"); err != ErrEntryNotFound {
			t.Fatal(err)
		}
	}
	use()
	expected := Stats{Hits: 1, Misses: 2, DelHits: 1, DelMisses: 1}
	if stats := cache.Stats(); stats != expected {
		t.Fatal(stats)
	}
	if err := cache.ResetStats(); err != nil || cache.Stats() != (Stats{}) {
		t.Fatal(err, cache.Stats())
	}
	use()
	if stats := cache.Stats(); stats != expected {
		t.Fatal(stats)
	}
}

func TestClosed(t *testing.T) {
	cache := made(t, Config{HardMaxCacheSize: 4})
	if err := cache.Set("a", nil); err != nil {
		t.Fatal(err)
	}
	it := cache.Iterator()
	for range 2 {
		if err := cache.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, missed := cache.Get("a")
	for _, err := range []error{
		missed, cache.Set("a", nil), cache.Append("a", nil), cache.Delete("a"), cache.Reset(), cache.ResetStats(),
	} {
		if !errors.Is(err, larder.ErrClosed) {
			t.Error(err)
		}
	}
	if cache.Len() != 0 || cache.Capacity() != 0 || cache.Iterator().SetNext() || cache.Stats() != (Stats{}) {
		t.Fatal("open")
	}
	// A walk that has begun has what it walks over.
	if !it.SetNext() || it.SetNext() {
		t.Fatal("not one entry")
	}
}

func TestListenersMayUseTheCache(t *testing.T) {
	var cache *BigCache
	config := Config{HardMaxCacheSize: 4, OnRemove: func(key string, entry []byte) {
		if key == "a" {
			if err := cache.Set("again", entry); err != nil {
				t.Error(err)
			}
		}
	}}
	cache = made(t, config)
	if err := cache.Set("a", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := cache.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if entry, err := cache.Get("again"); string(entry) != "v" || err != nil {
		t.Fatal(entry, err)
	}
}
