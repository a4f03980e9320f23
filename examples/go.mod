// Not released: it holds programs to read, run and copy from, and nobody imports it.
module github.com/holdfast-lock/holdfast/examples

go 1.26.0

require (
	github.com/holdfast-lock/holdfast v0.0.0
	github.com/holdfast-lock/holdfast/pgstore v0.0.0
	github.com/holdfast-lock/holdfast/redisstore v0.0.0
	github.com/holdfast-lock/holdfast/sqlitestore v0.0.0
	github.com/redis/rueidis v1.0.79
	modernc.org/sqlite v1.50.0
)

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/pgx/v5 v5.12.0 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/ncruces/go-strftime v1.0.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.41.0 // indirect
	modernc.org/libc v1.72.0 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.11.0 // indirect
)

replace (
	github.com/holdfast-lock/holdfast => ../
	github.com/holdfast-lock/holdfast/pgstore => ../pgstore
	github.com/holdfast-lock/holdfast/redisstore => ../redisstore
	github.com/holdfast-lock/holdfast/sqlitestore => ../sqlitestore
)
