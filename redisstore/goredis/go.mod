module github.com/holdfast-lock/holdfast/redisstore/goredis

go 1.25.0

require (
	github.com/holdfast-lock/holdfast v0.0.0
	github.com/holdfast-lock/holdfast/redisstore v0.0.0
	github.com/redis/go-redis/v9 v9.9.0
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace (
	github.com/holdfast-lock/holdfast => ../../
	github.com/holdfast-lock/holdfast/redisstore => ../
)
