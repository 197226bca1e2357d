package freecache

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Timer tells the time, in seconds since 1970.
type Timer interface {
	Now() uint32
}

// A StoppableTimer is a Timer with a goroutine of its own, which Stop ends.
type StoppableTimer interface {
	Timer
	Stop()
}

type systemTimer struct{}

func (systemTimer) Now() uint32 { return uint32(time.Now().Unix()) }

type cachedTimer struct {
	now  atomic.Uint32
	stop func()
}

// NewCachedTimer makes a timer that looks at the clock once a second, which makes Now a read of memory.
func NewCachedTimer() StoppableTimer {
	done := make(chan struct{})
	timer := &cachedTimer{stop: sync.OnceFunc(func() { close(done) })}
	timer.now.Store(systemTimer{}.Now())
	go func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				timer.now.Store(systemTimer{}.Now())
			}
		}
	}()
	return timer
}

func (timer *cachedTimer) Now() uint32 { return timer.now.Load() }

func (timer *cachedTimer) Stop() { timer.stop() }
