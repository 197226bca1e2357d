// Go's caches in the process, with the keys and values of lab/bench: one line of JSON a figure, in the form of
// lab/bench/src/row.rs.
//
//	go run . [-entries N] [-operations N] [-rounds N] [-gc-entries N]
//
// Set and Get are over keys that are all stored, uniform; Parallel is on as many goroutines as there are cores.
// Every value read is checked. Caches are measured once a round in rotated order, after one round that is thrown
// away. The cost of the garbage collector is measured in a process for each cache, filled with -gc-entries: the
// time of one whole collection, and the pauses in it. larder has no collector, so its figure there is 0.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"sort"
	"strconv"
	"sync"
	"time"

	"github.com/VictoriaMetrics/fastcache"
	"github.com/allegro/bigcache/v3"
	"github.com/coocood/freecache"
	"github.com/maypok86/otter/v2"
)

const (
	keyBytes      = 16
	valueBytesMax = 38
	// Octets of key and value, on average.
	payloadBytesMean = 16 + 22.6
)

type key [keyBytes]byte

// keyOf and valueOf are data.rs's key() and ValueBuffer::value().
func keyOf(number uint32) (k key) {
	n := uint64(number)
	binary.BigEndian.PutUint64(k[:8], n*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(k[8:], n)
	return k
}

func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9
	n = (n ^ (n >> 27)) * 0x94d049bb133111eb
	return n ^ (n >> 31)
}

func valueOf(buffer *[valueBytesMax]byte, number uint32) []byte {
	binary.LittleEndian.PutUint64(buffer[:8], uint64(number))
	mixed := mix(uint64(number))
	length := 8 + int(((mixed>>32)*30)>>32)
	if uint32(mixed) < math.MaxUint32/10 {
		length++
	}
	return buffer[:length]
}

func scatter(seed, counter uint64, limit uint32) uint32 {
	return uint32(((mix(seed^counter*0xd1342543de82ef95) >> 32) * uint64(limit)) >> 32)
}

// A cache takes part with these. get appends to a buffer where the cache can, and gives what it found.
type cache struct {
	name string
	note string
	set  func(k *key, value []byte)
	get  func(k *key, buffer []byte) []byte
}

var makers = map[string]func(entries int) cache{
	"freecache": func(entries int) cache {
		c := freecache.NewCache(entries * 160)
		return cache{"freecache", "GetWithBuf", func(k *key, value []byte) {
			_ = c.Set(k[:], value, 0)
		}, func(k *key, buffer []byte) []byte {
			value, err := c.GetWithBuf(k[:], buffer[:cap(buffer)])
			if err != nil {
				return nil
			}
			return value
		}}
	},
	"bigcache": func(entries int) cache {
		config := bigcache.DefaultConfig(time.Hour)
		config.MaxEntriesInWindow = entries
		config.MaxEntrySize = 128
		config.Verbose = false
		config.CleanWindow = 0
		c, err := bigcache.New(context.Background(), config)
		if err != nil {
			fail(err)
		}
		return cache{"bigcache", "string keys", func(k *key, value []byte) {
			_ = c.Set(string(k[:]), value)
		}, func(k *key, _ []byte) []byte {
			value, err := c.Get(string(k[:]))
			if err != nil {
				return nil
			}
			return value
		}}
	},
	"fastcache": func(entries int) cache {
		c := fastcache.New(entries * 160)
		return cache{"fastcache", "no ends of life", func(k *key, value []byte) {
			c.Set(k[:], value)
		}, func(k *key, buffer []byte) []byte {
			return c.Get(buffer[:0], k[:])
		}}
	},
	"otter": func(entries int) cache {
		c := otter.Must(&otter.Options[key, []byte]{MaximumSize: entries + entries/4})
		return cache{"otter", "W-TinyLFU; a new slice a value", func(k *key, value []byte) {
			c.Set(*k, append([]byte(nil), value...))
		}, func(k *key, _ []byte) []byte {
			value, _ := c.GetIfPresent(*k)
			return value
		}}
	},
	"map": func(entries int) cache {
		var lock sync.RWMutex
		c := make(map[key][]byte, entries)
		return cache{"map", "map[[16]byte][]byte under a RWMutex; evicts nothing", func(k *key, value []byte) {
			lock.Lock()
			c[*k] = append([]byte(nil), value...)
			lock.Unlock()
		}, func(k *key, _ []byte) []byte {
			lock.RLock()
			value := c[*k]
			lock.RUnlock()
			return value
		}}
	},
}

var names = []string{"freecache", "bigcache", "fastcache", "otter", "map"}

func main() {
	entries := flag.Int("entries", 1_000_000, "entries of each cache")
	operations := flag.Int("operations", 1_000_000, "operations a round")
	rounds := flag.Int("rounds", 10, "rounds that count")
	gcEntries := flag.Int("gc-entries", 10_000_000, "entries when the collector is measured; 0 for not at all")
	gcOf := flag.String("gc-of", "", "measure the collector with this cache only, and exit")
	flag.Parse()
	if *gcOf != "" {
		collect(*gcOf, *gcEntries)
		return
	}
	compare(*entries, *operations, *rounds)
	if *gcEntries > 0 {
		program, err := os.Executable()
		if err != nil {
			fail(err)
		}
		for _, name := range names {
			child := exec.Command(program, "-gc-of", name, "-gc-entries", strconv.Itoa(*gcEntries))
			child.Stdout, child.Stderr = os.Stdout, os.Stderr
			if err := child.Run(); err != nil {
				fail(err)
			}
		}
	}
}

type work struct {
	name    string
	threads int
	run     func(c *cache, thread, operations int) error
}

func compare(entries, operations, rounds int) {
	limit := uint32(entries)
	set := func(c *cache, thread, operations int) error {
		var buffer [valueBytesMax]byte
		for i := 0; i < operations; i++ {
			number := scatter(uint64(thread)+11, uint64(i), limit)
			k := keyOf(number)
			c.set(&k, valueOf(&buffer, number))
		}
		return nil
	}
	get := func(c *cache, thread, operations int) error {
		buffer := make([]byte, 64)
		misses := 0
		for i := 0; i < operations; i++ {
			number := scatter(uint64(thread)+17, uint64(i), limit)
			k := keyOf(number)
			value := c.get(&k, buffer)
			if len(value) < 8 {
				misses++
			} else if binary.LittleEndian.Uint64(value) != uint64(number) {
				return errors.New("another key's value")
			}
		}
		if misses > operations/50 {
			return fmt.Errorf("%d misses of %d", misses, operations)
		}
		return nil
	}
	cores := runtime.GOMAXPROCS(0)
	// Sets come last: caches that append to a ring lose the oldest entries by them.
	works := []work{{"Go, Get", 1, get}, {"Go, GetParallel", cores, get}, {"Go, Set", 1, set}, {"Go, SetParallel", cores, set}}
	caches := make([]cache, len(names))
	for i, name := range names {
		caches[i] = makers[name](entries)
		fill(&caches[i], entries)
	}
	for _, w := range works {
		figures := make([][]float64, len(caches))
		for round := 0; round <= rounds; round++ {
			for turn := range caches {
				at := (turn + round) % len(caches)
				figure := measure(&caches[at], w, operations)
				if round > 0 {
					figures[at] = append(figures[at], figure)
				}
			}
		}
		for i, c := range caches {
			print(w.name, w.threads, c.name, c.note, figures[i], nil)
		}
	}
}

// measure gives nanoseconds an operation by the clock, over all goroutines together.
func measure(c *cache, w work, operations int) float64 {
	each := operations / w.threads
	errs := make(chan error, w.threads)
	start := time.Now()
	for thread := 0; thread < w.threads; thread++ {
		go func() { errs <- w.run(c, thread, each) }()
	}
	for thread := 0; thread < w.threads; thread++ {
		if err := <-errs; err != nil {
			fail(fmt.Errorf("%s, %s: %w", w.name, c.name, err))
		}
	}
	return float64(time.Since(start).Nanoseconds()) / float64(each*w.threads)
}

func fill(c *cache, entries int) {
	var buffer [valueBytesMax]byte
	for number := uint32(0); number < uint32(entries); number++ {
		k := keyOf(number)
		c.set(&k, valueOf(&buffer, number))
	}
}

// residentBytes is what the process holds of memory, 0 where the system does not say.
func residentBytes() float64 {
	status, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(status), &size, &resident); err != nil {
		return 0
	}
	return resident * float64(os.Getpagesize())
}

// collect fills one cache, says what an entry took, and collects five times.
func collect(name string, entries int) {
	make, found := makers[name]
	if !found {
		fail(fmt.Errorf("no cache is called %q", name))
	}
	before := residentBytes()
	c := make(entries)
	fill(&c, entries)
	debug.FreeOSMemory()
	if after := residentBytes(); after > 0 {
		bytes := (after-before)/float64(entries) - payloadBytesMean
		printUnit("bytes", fmt.Sprintf("Go, bytes an entry above its payload, resident, %d entries", entries),
			1, name, c.note, []float64{bytes}, nil)
	}
	var times, pauses []float64
	for range 5 {
		var before, after debug.GCStats
		debug.ReadGCStats(&before)
		start := time.Now()
		runtime.GC()
		times = append(times, float64(time.Since(start).Nanoseconds()))
		debug.ReadGCStats(&after)
		pauses = append(pauses, float64((after.PauseTotal - before.PauseTotal).Nanoseconds()))
	}
	zero := 0.0
	print(fmt.Sprintf("Go, one collection, %d entries", entries), 1, name, c.note, times, &zero)
	print(fmt.Sprintf("Go, pauses of one collection, %d entries", entries), 1, name, c.note, pauses, &zero)
	k := keyOf(0)
	_ = c.get(&k, nil)
}

func print(work string, threads int, peer, note string, figures []float64, larder *float64) {
	printUnit("ns", work, threads, peer, note, figures, larder)
}

func printUnit(unit, work string, threads int, peer, note string, figures []float64, larder *float64) {
	sort.Float64s(figures)
	n := len(figures)
	cut := outside(n)
	line := map[string]any{
		"work": work, "threads": threads, "larder_" + unit: larder, "peer": peer, "note": note, "runs": n,
		"peer_" + unit:  (figures[(n-1)/2] + figures[n/2]) / 2,
		"peer_interval": []float64{figures[cut], figures[n-1-cut]},
	}
	text, err := json.Marshal(line)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(text))
}

// outside is sample.rs's ranks_outside(): how many figures lie outside of the interval of 95 % at each end.
func outside(n int) int {
	term := math.Pow(0.5, float64(n))
	sum, cut := term, 0
	for 2*sum <= 0.05 {
		cut++
		term *= float64(n-cut+1) / float64(cut)
		sum += term
	}
	return max(cut-1, 0)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "larder-peers-go:", err)
	os.Exit(2)
}
