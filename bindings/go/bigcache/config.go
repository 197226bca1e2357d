package bigcache

import (
	"errors"
	"hash/fnv"
	"log"
	"math"
	"math/bits"
	"os"
	"time"

	"larder"
)

// A Hasher gives the numbers that EntryInfo.Hash returns. larder finds keys by a hash of its own.
type Hasher interface {
	Sum64(string) uint64
}

// A Logger is accepted, and not used: larder logs nothing.
type Logger interface {
	Printf(format string, v ...interface{})
}

// DefaultLogger is a logger to the standard output.
func DefaultLogger() *log.Logger {
	return log.New(os.Stdout, "", log.LstdFlags)
}

type defaultHasher struct{}

func newDefaultHasher() Hasher { return defaultHasher{} }

// Sum64 is FNV-1a, as bigcache's.
func (defaultHasher) Sum64(key string) uint64 {
	hash := fnv.New64a()
	hash.Write([]byte(key))
	return hash.Sum64()
}

// Config of a cache. Shards, StatsEnabled, Verbose and Logger are checked or accepted, and have no effect: larder chooses its
// own shards, and no reads are counted by key.
type Config struct {
	// Shards must be a power of two.
	Shards int
	// LifeWindow is how long an entry lives, in whole seconds, and up to one second longer. It lives as long as there is room
	// if this is negative, more than 68 years, or less than one second without a CleanWindow.
	LifeWindow time.Duration
	// CleanWindow is used only to tell what a LifeWindow of less than one second means.
	CleanWindow time.Duration
	// MaxEntriesInWindow times twice MaxEntrySize is the limit of memory where HardMaxCacheSize is 0, but at least 64 MiB.
	// The system gives it as the cache fills.
	MaxEntriesInWindow int
	// MaxEntrySize is the usual size of an entry with its key, not a limit. It decides how much of the memory is index. Larger
	// entries fit too; of much smaller ones there is no index for all, and memory stays unused.
	MaxEntrySize int
	StatsEnabled bool
	Verbose      bool
	// Hasher, if it is not nil, gives EntryInfo.Hash.
	Hasher Hasher
	// HardMaxCacheSize is the limit in MiB of all that the cache takes, at least 4.
	HardMaxCacheSize int
	// OnRemove is called for each entry that leaves, but not for one that another replaces. It runs in a call that writes,
	// and may use the cache; see larder.Settings.
	OnRemove func(key string, entry []byte)
	// OnRemoveWithReason is OnRemove with the reason. It is not called if there is an OnRemove.
	OnRemoveWithReason func(key string, entry []byte, reason RemoveReason)
	Logger             Logger

	// A bit for each reason that OnRemoveWithReason is called for; 0 for all.
	reasons uint64
}

// DefaultConfig is what programs begin with: entries live for that long.
func DefaultConfig(eviction time.Duration) Config {
	return Config{
		Shards:             1024,
		LifeWindow:         eviction,
		CleanWindow:        time.Second,
		MaxEntriesInWindow: 600_000,
		MaxEntrySize:       500,
		Verbose:            true,
		Hasher:             newDefaultHasher(),
		Logger:             DefaultLogger(),
	}
}

// OnRemoveFilterSet is the config with calls of OnRemoveWithReason for these reasons only.
func (config Config) OnRemoveFilterSet(reasons ...RemoveReason) Config {
	config.reasons = 0
	for _, reason := range reasons {
		config.reasons |= 1 << reason
	}
	return config
}

const (
	budgetBytesMin      = 64 << 20
	hardBytesMin        = 4 << 20
	entryBytesMeanFirst = 64
	// Later expiries would be beyond the 32 bits of larder's seconds.
	lifeWindowMax = math.MaxInt32 * time.Second
)

// ttl of entries, 0 for as long as there is room. Time passes in whole seconds, and an entry lives for all of its LifeWindow.
func (config Config) ttl() time.Duration {
	window := config.LifeWindow
	if window < 0 || window > lifeWindowMax || window < time.Second && config.CleanWindow <= 0 {
		return 0
	}
	return window.Truncate(time.Second) + time.Second
}

// settings for larder, or what is wrong, with the texts that programs know.
func (config Config) settings() (larder.Settings, error) {
	switch {
	case config.Shards < 1 || bits.OnesCount(uint(config.Shards)) != 1:
		return larder.Settings{}, errors.New("Shards number must be power of two")
	case config.MaxEntrySize < 0:
		return larder.Settings{}, errors.New("MaxEntrySize must be >= 0")
	case config.MaxEntriesInWindow < 0:
		return larder.Settings{}, errors.New("MaxEntriesInWindow must be >= 0")
	case config.HardMaxCacheSize < 0:
		return larder.Settings{}, errors.New("HardMaxCacheSize must be >= 0")
	}
	settings := larder.Settings{EntryBytesMean: uint32(min(max(config.MaxEntrySize, entryBytesMeanFirst), 32<<10))}
	if hard := uint64(config.HardMaxCacheSize); hard > 0 {
		settings.BudgetBytes = max(min(hard, 1<<43)<<20, hardBytesMin)
	} else {
		high, low := bits.Mul64(uint64(config.MaxEntriesInWindow), 2*uint64(config.MaxEntrySize))
		if high != 0 {
			low = 1<<64 - 1
		}
		settings.BudgetBytes = max(low, budgetBytesMin)
	}
	settings.OnRemoved = config.listener()
	return settings, nil
}

// listener for larder, or nil.
func (config Config) listener() func(larder.Cause, []byte, []byte) {
	call := config.OnRemoveWithReason
	if plain := config.OnRemove; plain != nil {
		call = func(key string, entry []byte, _ RemoveReason) { plain(key, entry) }
	} else if reasons := config.reasons; call != nil && reasons != 0 {
		all := call
		call = func(key string, entry []byte, reason RemoveReason) {
			if reasons>>reason&1 == 1 {
				all(key, entry, reason)
			}
		}
	}
	if call == nil {
		return nil
	}
	return func(cause larder.Cause, key, value []byte) {
		switch cause {
		case larder.Expired:
			call(string(key), value, Expired)
		case larder.Removed:
			call(string(key), value, Deleted)
		case larder.Evicted, larder.Conflict:
			call(string(key), value, NoSpace)
		}
	}
}
