package larder

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

func made(t testing.TB, settings Settings) *Cache {
	t.Helper()
	cache, err := New(settings)
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want fails unless a key has a value, or none if it is nil.
func want(t testing.TB, cache *Cache, key string, value []byte) {
	t.Helper()
	found, err := cache.Get([]byte(key))
	if value == nil {
		if err != ErrNotFound || found != nil {
			t.Fatalf("%q: %q, %v", key, found, err)
		}
	} else if err != nil || !bytes.Equal(found, value) {
		t.Fatalf("%q: %q, %v, not %q", key, found, err, value)
	}
}

func TestOneKey(t *testing.T) {
	cache := made(t, Settings{BudgetBytes: 64 << 20, TimeSeconds: 100})
	want(t, cache, "lynx", nil)
	for _, value := range [][]byte{{}, []byte("seven"), bytes.Repeat([]byte("x"), 4096), bytes.Repeat([]byte("y"), 20000)} {
		check(t, cache.Set([]byte("lynx"), value, 0))
		want(t, cache, "lynx", value)
		buffer, err := cache.Append([]byte("a: "), []byte("lynx"))
		check(t, err)
		if string(buffer) != "a: "+string(value) {
			t.Fatalf("%q", buffer)
		}
	}
	room := make([]byte, 2, 40_000)
	if buffer, err := cache.Append(room, []byte("lynx")); err != nil || &buffer[0] != &room[0] || len(buffer) != 20002 {
		t.Fatal("a buffer with room was not used", err)
	}
	if buffer, err := cache.Append(room, []byte("otter")); err != ErrNotFound || len(buffer) != 2 {
		t.Fatal(buffer, err)
	}
	check(t, cache.Set(nil, nil, 0))
	want(t, cache, "", []byte{})
	if !cache.Has(nil) || cache.Has([]byte("otter")) {
		t.Fatal("Has")
	}
	if err := cache.Set([]byte("k"), make([]byte, 1<<20), 0); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	check(t, cache.Delete(nil))
	want(t, cache, "", nil)
	check(t, cache.Delete(nil))

	check(t, cache.Set([]byte("short"), []byte("v"), 1500*time.Millisecond))
	check(t, cache.SetTime(101))
	value, life, err := cache.Peek([]byte("short"))
	if string(value) != "v" || life != (Life{time.Second, 102}) || err != nil {
		t.Fatal(value, life, err)
	}
	check(t, cache.Touch([]byte("short"), 10*time.Second))
	if life, err := cache.TTL([]byte("short")); life != (Life{10 * time.Second, 111}) || err != nil {
		t.Fatal(life, err)
	}
	check(t, cache.SetTime(111))
	want(t, cache, "short", nil)
	if err := cache.Touch([]byte("short"), time.Second); err != ErrNotFound {
		t.Fatal(err)
	}
	if _, err := cache.TTL([]byte("short")); err != ErrNotFound {
		t.Fatal(err)
	}
}

func TestChanges(t *testing.T) {
	cache := made(t, Settings{BudgetBytes: 4 << 20})
	key := []byte("k")
	if there, isThere, err := cache.Add(key, []byte("a"), 0); there != nil || isThere || err != nil {
		t.Fatal(there, isThere, err)
	}
	if there, isThere, err := cache.Add(key, []byte("b"), 0); string(there) != "a" || !isThere || err != nil {
		t.Fatal(there, isThere, err)
	}
	if old, was, err := cache.Exchange(key, nil, 0); string(old) != "a" || !was || err != nil {
		t.Fatal(old, was, err)
	}
	if old, was, err := cache.Take(key); old == nil || len(old) != 0 || !was || err != nil {
		t.Fatal(old, was, err)
	}
	if old, was, err := cache.Take(key); old != nil || was || err != nil {
		t.Fatal(old, was, err)
	}
	// All threads count, and none is lost.
	var all sync.WaitGroup
	for range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 500 {
				_, err := cache.Compute(key, func(value []byte, isThere bool) Change {
					if !isThere {
						return Insert([]byte{1, 0}, time.Hour)
					}
					if value[0]++; value[0] == 0 {
						value[1]++
					}
					return Renew(value)
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	all.Wait()
	want(t, cache, "k", []byte{2000 % 256, 2000 / 256})
	if life, err := cache.TTL(key); life.TTL <= 59*time.Minute || err != nil {
		t.Fatal(life, err)
	}
	if was, err := cache.Compute(key, func([]byte, bool) Change { return Keep() }); !was || err != nil {
		t.Fatal(was, err)
	}
	func() {
		defer func() {
			if recover() != "mine" {
				t.Fatal("the panic was lost")
			}
		}()
		cache.Compute(key, func([]byte, bool) Change { panic("mine") })
	}()
	want(t, cache, "k", []byte{2000 % 256, 2000 / 256})
	if was, err := cache.Compute(key, func([]byte, bool) Change { return Discard() }); !was || err != nil {
		t.Fatal(was, err)
	}
	want(t, cache, "k", nil)
}

func TestGetMulti(t *testing.T) {
	cache := made(t, Settings{BudgetBytes: 16 << 20})
	var keys [][]byte
	for number := range 1000 {
		key := []byte(fmt.Sprint(number))
		keys = append(keys, key)
		if number%3 != 0 {
			check(t, cache.Set(key, bytes.Repeat(key, number%500), 0))
		}
	}
	keys = append(keys, nil, bytes.Repeat([]byte("long"), 500))
	check(t, cache.Set(keys[1001], []byte("value"), 0))
	values, err := cache.GetMulti(keys)
	check(t, err)
	for number, value := range values[:1000] {
		if number%3 == 0 {
			if value != nil {
				t.Fatal(number, value)
			}
		} else if value == nil || !bytes.Equal(value, bytes.Repeat(keys[number], number%500)) {
			t.Fatal(number, value)
		}
	}
	if values[1000] != nil || string(values[1001]) != "value" {
		t.Fatal(values[1000:])
	}
	// Large values: each key is counted once or, at the end of a buffer, a few times more.
	before, err := cache.Stats()
	check(t, err)
	_, err = cache.GetMulti(keys[400:500])
	check(t, err)
	after, err := cache.Stats()
	check(t, err)
	if asked := after.Hits + after.Misses - before.Hits - before.Misses; asked > 400 {
		t.Fatal(asked, "lookups for 100 keys")
	}
	values, err = cache.GetMulti([][]byte{keys[1], keys[1]})
	check(t, err)
	if string(values[0]) != "1" || string(append(values[0], 'x')) != "1x" || string(values[1]) != "1" {
		t.Fatal(values)
	}
	if values, err := cache.GetMulti(nil); len(values) != 0 || err != nil {
		t.Fatal(values, err)
	}
}

func TestFilesAndWalks(t *testing.T) {
	cache := made(t, Settings{BudgetBytes: 4 << 20})
	for number := range 300 {
		check(t, cache.Set([]byte(fmt.Sprint(number)), []byte("v"), time.Hour*time.Duration(number%2)))
	}
	file := filepath.Join(t.TempDir(), "cache")
	if saved, err := cache.Save(file); saved != 300 || err != nil {
		t.Fatal(saved, err)
	}
	other := made(t, Settings{BudgetBytes: 4 << 20})
	if _, err := other.Load(file + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if _, err := other.Load(filepath.Dir(file)); err == nil {
		t.Fatal("a folder was loaded")
	}
	if _, err := cache.Save(file + "\x00.txt"); !errors.Is(err, syscall.EINVAL) {
		t.Fatal(err)
	}
	if loaded, err := other.Load(file); loaded != 300 || err != nil {
		t.Fatal(loaded, err)
	}
	seen := map[string]bool{}
	for entry, err := range other.All() {
		check(t, err)
		seen[string(entry.Key)] = true
		var number int
		fmt.Sscan(string(entry.Key), &number)
		if (entry.Life.TTL > 0) != (number%2 == 1) || string(entry.Value) != "v" {
			t.Fatal(entry)
		}
	}
	if len(seen) != 300 {
		t.Fatal(len(seen))
	}
	for range other.All() {
		break
	}
	walk, err := other.Walk()
	check(t, err)
	check(t, other.Close())
	if _, err := walk.Next(); err != nil {
		t.Fatal("a walk ended with its cache:", err)
	}
	check(t, walk.Close())
	check(t, walk.Close())
	if _, err := walk.Next(); err != io.EOF {
		t.Fatal(err)
	}
	check(t, cache.Clear())
	if entries, err := cache.Len(); entries != 0 || err != nil {
		t.Fatal(entries, err)
	}
}

func TestListener(t *testing.T) {
	left := map[Cause]int{}
	var lock sync.Mutex
	var cache *Cache
	cache = made(t, Settings{BudgetBytes: 512 << 10, Shards: 1, ReadersMax: 2, EntryBytesMean: 120, OnRemoved: func(cause Cause, key, value []byte) {
		lock.Lock()
		defer lock.Unlock()
		left[cause]++
		if (cause == Evicted) != (len(value) == 100) || cause != Evicted && string(key) != "k" {
			t.Errorf("%v: %q, %q", cause, key, value)
		}
		cache.Has(key)
	}})
	check(t, cache.Set([]byte("k"), []byte("1"), 0))
	check(t, cache.Set([]byte("k"), []byte("2"), 0))
	check(t, cache.Touch([]byte("k"), time.Hour))
	check(t, cache.Delete([]byte("k")))
	for number := range 20000 {
		check(t, cache.Set([]byte(fmt.Sprint(number)), make([]byte, 100), 0))
	}
	stats, err := cache.Stats()
	check(t, err)
	if left[Replaced] != 1 || left[Removed] != 1 || stats.Evicted < 10000 || left[Evicted] != int(stats.Evicted) {
		t.Fatal(left, stats)
	}
	if stats.Inserted != stats.Entries+stats.Evicted+stats.Conflicts+stats.Removed || stats.BudgetBytes != 512<<10 {
		t.Fatal(stats)
	}
}

// A listener's panic reaches the caller of the write that called it, once; the write is done, and so are the next ones. Also
// that of a write within a listener.
func TestListenerPanics(t *testing.T) {
	panics, within := true, false
	var cache *Cache
	cache = made(t, Settings{OnRemoved: func(_ Cause, key, _ []byte) {
		if within && string(key) == "outer" {
			// What it removes is reported by the outer write.
			check(t, cache.Delete([]byte("inner")))
			return
		}
		if panics {
			panic("mine")
		}
	}})
	caught := func(write func()) (value any) {
		defer func() { value = recover() }()
		write()
		return nil
	}
	key := []byte("k")
	writes := []func(){
		func() { cache.Set(key, []byte("2"), 0) },
		func() { cache.Exchange(key, []byte("3"), 0) },
		func() { cache.Compute(key, func([]byte, bool) Change { return Renew([]byte("4")) }) },
		func() { cache.Take(key) },
		func() { cache.Delete(key) },
		func() { cache.Clear() },
	}
	for number, write := range writes {
		panics = false
		check(t, cache.Set(key, []byte(fmt.Sprint(number)), 0))
		panics = true
		if value := caught(write); value != "mine" {
			t.Fatal(number, value)
		}
		panics = false
		if value := caught(func() { cache.Set(key, []byte("x"), 0) }); value != nil {
			t.Fatal(number, value)
		}
		want(t, cache, "k", []byte("x"))
	}
	check(t, cache.Set([]byte("outer"), nil, 0))
	check(t, cache.Set([]byte("inner"), nil, 0))
	panics, within = true, true
	if value := caught(func() { cache.Delete([]byte("outer")) }); value != "mine" {
		t.Fatal(value)
	}
	want(t, cache, "inner", nil)
}

func TestClosed(t *testing.T) {
	cache := made(t, Settings{})
	check(t, cache.Set([]byte("k"), []byte("v"), 0))
	var all sync.WaitGroup
	for range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				if _, err := cache.Get([]byte("k")); err == ErrClosed {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	check(t, cache.Close())
	all.Wait()
	runtime.GC()
	check(t, cache.Close())
	_, err := cache.GetMulti(nil)
	for number, err := range []error{
		err, cache.Set(nil, nil, 0), cache.Delete(nil), cache.Touch(nil, 0), cache.Clear(), cache.SetTime(1),
	} {
		if err != ErrClosed {
			t.Fatal(number, err)
		}
	}
	for _, err := range cache.All() {
		if err != ErrClosed {
			t.Fatal(err)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, wrong := range []Settings{{BudgetBytes: 1}, {Shards: 3}, {BudgetBytes: 1 << 62}, {ValueBytesMax: 32769}} {
		cache, err := New(wrong)
		if err == nil || cache != nil {
			t.Fatal(wrong)
		}
		t.Log(err)
	}
	long := make([]byte, 20000)
	if err := made(t, Settings{BudgetBytes: 4 << 20}).Set([]byte("k"), long, 0); err == nil {
		t.Fatal("stored, so ValueBytesMax has no effect")
	}
	if err := made(t, Settings{BudgetBytes: 4 << 20, ValueBytesMax: 20000}).Set([]byte("k"), long, 0); err != nil {
		t.Fatal(err)
	}
	if err := made(t, Settings{}).SetTime(5); err == nil {
		t.Fatal("the system's time was set")
	}
}

// A cache that is not used any more is freed, also one whose listener uses it. Its memory would be seen as resident.
func TestCollected(t *testing.T) {
	resident := func() (pages int) {
		text, err := os.ReadFile("/proc/self/statm")
		if err != nil {
			t.Skip(err)
		}
		fmt.Sscan(string(text), new(int), &pages)
		return pages
	}
	value := make([]byte, 1000)
	before := resident()
	for range 60 {
		var cache *Cache
		cache = made(t, Settings{BudgetBytes: 64 << 20, OnRemoved: func(_ Cause, key, _ []byte) { cache.Has(key) }})
		for number := range 10_000 {
			check(t, cache.Set([]byte(fmt.Sprint(number)), value, 0))
		}
		runtime.GC()
	}
	// Cleanups run on a goroutine of their own.
	for wait := 0; resident()-before > 200<<20/os.Getpagesize(); wait++ {
		if wait == 200 {
			t.Fatalf("%d pages more than before: 60 caches have 150,000 pages", resident()-before)
		}
		runtime.GC()
		time.Sleep(50 * time.Millisecond)
	}
}

// large is a cache whose memory is larger than the CPU's cache, and its keys in no order.
func large(b *testing.B) (*Cache, [][]byte) {
	cache := made(b, Settings{BudgetBytes: 256 << 20, EntryBytesMean: 40})
	keys := make([][]byte, 1_000_000)
	for number := range keys {
		keys[number] = []byte(fmt.Sprintf("%08d", number))
		check(b, cache.Set(keys[number], make([]byte, 32), 0))
	}
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return cache, keys
}

func BenchmarkLargeGet(b *testing.B) {
	cache, keys := large(b)
	next := 0
	b.ReportAllocs()
	for b.Loop() {
		cache.Get(keys[next])
		next = (next + 1) % len(keys)
	}
}

func BenchmarkLargeGetMulti32(b *testing.B) {
	cache, keys := large(b)
	next := 0
	b.ReportAllocs()
	for b.Loop() {
		cache.GetMulti(keys[next : next+32])
		next = (next + 32) % (len(keys) - 32)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*32), "ns/key")
}

func BenchmarkGet(b *testing.B) {
	cache := made(b, Settings{BudgetBytes: 64 << 20})
	key, buffer := []byte("12345678"), make([]byte, 0, 64)
	check(b, cache.Set(key, make([]byte, 32), 0))
	b.ReportAllocs()
	for b.Loop() {
		cache.Append(buffer, key)
	}
}

func BenchmarkGetMulti32(b *testing.B) {
	cache := made(b, Settings{BudgetBytes: 64 << 20})
	var keys [][]byte
	for number := range 32 {
		keys = append(keys, []byte(fmt.Sprintf("%08d", number)))
		check(b, cache.Set(keys[number], make([]byte, 32), 0))
	}
	b.ReportAllocs()
	for b.Loop() {
		cache.GetMulti(keys)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*32), "ns/key")
}

func BenchmarkSet(b *testing.B) {
	cache := made(b, Settings{BudgetBytes: 64 << 20})
	key, value := []byte("12345678"), make([]byte, 32)
	b.ReportAllocs()
	for b.Loop() {
		cache.Set(key, value, 0)
	}
}
