module larder/bench/peers/go

go 1.24.0

require (
	github.com/VictoriaMetrics/fastcache v1.13.0
	github.com/allegro/bigcache/v3 v3.1.0
	github.com/coocood/freecache v1.2.7
	github.com/maypok86/otter/v2 v2.4.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/golang/snappy v1.0.0 // indirect
	golang.org/x/sys v0.34.0 // indirect
)
