module github.com/holdfast-lock/holdfast/bench

go 1.26.0

require (
	github.com/bsm/redislock v0.9.4
	github.com/go-redsync/redsync/v4 v4.17.0
	github.com/go-zookeeper/zk v1.0.4
	github.com/holdfast-lock/holdfast v0.0.0
	github.com/holdfast-lock/holdfast/redisstore v0.0.0
	github.com/holdfast-lock/holdfast/sqlstore v0.0.0-00010101000000-000000000000
	github.com/holdfast-lock/holdfast/zkstore v0.0.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/sys v0.48.0 // indirect
	modernc.org/libc v1.72.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
	modernc.org/sqlite v1.50.0 // indirect
)

replace (
	github.com/holdfast-lock/holdfast => ../
	github.com/holdfast-lock/holdfast/redisstore => ../redisstore
	github.com/holdfast-lock/holdfast/sqlstore => ../sqlstore
	github.com/holdfast-lock/holdfast/zkstore => ../zkstore
)
